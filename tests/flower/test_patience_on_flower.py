"""Rounds that end early on Flower as they do in the simulator, and what else a review found."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord

from flanp import History, Method
from flanp.checks import BadInput
from flanp.compression import TopK
from flanp.flower import Flanp, OwnTraining
from flanp.flower.packing import CODES, PLACES, TABLE, VALUES, pack, unpack
from flanp.participation import Everyone, Growing
from flanp.patience import Deadline, Ends, Patience, Quorum
from flanp.solvers import FedAvg, FedGATE, FedOpt
from flanp.stopping import FixedRounds, Never

from fleets import (
    W_0,
    asked_to_train,
    deltas,
    fleet,
    node_of,
    plain_app,
    slow_fleet,
    strategy,
    w_of,
)
from nodes import FakeTime
from small import linear_clients


def test_a_quorum_does_not_wait_and_whoever_was_outrun_comes_back():
    grid, time = slow_fleet((1.0, 1.0, 1.0, 1.0, 5.0))
    run = strategy(
        FedGATE(eta=0.05), time=time, participation=Everyone(), stop=Never(), patience=Quorum(0.8)
    )
    run.start(grid, W_0, num_rounds=12)
    assert {row.n for row in run.history.rows[1:]} == {4}
    seconds = np.diff(run.history.column("time"))
    assert (seconds[1:] < 2.0).all()
    assert asked_to_train(grid).count(4) >= 3
    assert run.history.about["counts"].keys() == {"exchanges"}  # nobody was late, nothing was lost
    np.testing.assert_allclose(sum(deltas(grid).values()), 0, atol=1e-6)


def test_a_deadline_that_finds_too_few_waits_for_no_more_than_it_needs():
    grid, time = slow_fleet((1.0, 1.0, 1.0, 11.0, 40.0))
    run = strategy(
        FedAvg(eta=0.05),
        time=time,
        participation=Everyone(),
        stop=Never(),
        patience=Deadline(10.0, quorum=0.8),
    )
    run.start(grid, W_0, num_rounds=1)
    assert run.history.rows[-1].n == 4
    assert np.diff(run.history.column("time"))[0] == pytest.approx(11.0, abs=1.0)


def test_a_patience_of_ones_own_is_asked_for_the_round_that_it_is_for():
    class PerClient(Patience):
        def ends(self, n):
            if n < 3:
                raise ValueError("made for rounds of three and more")
            return Ends(n, 4.0 * n, 1)

    grid, time = slow_fleet((1.0, 1.0, 1.0, 1.0, 18.0))
    run = strategy(
        FedAvg(eta=0.05), time=time, participation=Everyone(), stop=Never(), patience=PerClient()
    )
    run.start(grid, W_0, num_rounds=1)
    assert run.history.rows[-1].n == 5


def test_a_target_is_not_reached_by_those_of_an_earlier_stage():
    clients = linear_clients(5, s=12)
    x, y = clients[3]  # the slowest
    clients[3] = (x, y + 50.0)
    run = strategy(stop=FixedRounds(6), target={"loss": 0.3})
    run.start(fleet(clients=clients), W_0, num_rounds=40)
    assert str(run.history.ended) == "limit of 40 rounds"
    assert run.history.rows[-1].n == 5


def test_an_empty_fleet_at_the_start_of_a_stage_is_waited_for():
    grid = fleet(N=3)
    away = iter([True] * 4)

    class Leave:
        def __init__(self, time):
            self.time = time

        def now(self):
            return self.time.now()

        def sleep(self, seconds):
            self.time.sleep(seconds)
            if next(away, None) is None:
                for i in range(3):
                    node_of(grid, i).online = True

    def leave(round_, arrays):
        if round_ == 3:
            for i in range(3):
                node_of(grid, i).online = False

    run = strategy(stop=FixedRounds(3), time=Leave(FakeTime()))
    run.start(grid, W_0, num_rounds=9, evaluate_fn=leave)
    assert run.history.rows[-1].round >= 6


@pytest.mark.parametrize("name", ["time", "n", "waiting"])
def test_a_metric_cannot_take_a_columns_name(name, tmp_path):
    run = strategy(save=tmp_path)
    with pytest.raises(BadInput, match="is a column of each history"):
        run.start(fleet(), W_0, num_rounds=2, evaluate_fn=lambda r, a: MetricRecord({name: 1.0}))


def test_a_metric_that_is_not_a_number_is_refused():
    with pytest.raises(BadInput, match="'accuracy' is .*: it must be a number"):
        strategy().start(
            fleet(), W_0, num_rounds=2, evaluate_fn=lambda r, a: MetricRecord({"accuracy": [1.0]})
        )


def test_metrics_of_before_are_kept_when_a_resumed_run_has_none(tmp_path):
    first = strategy(save=tmp_path, stop=Never())
    first.start(fleet(), W_0, num_rounds=3, evaluate_fn=lambda r, a: MetricRecord({"acc": 0.5}))
    second = strategy(save=tmp_path, resume=True, stop=Never())
    second.start(fleet(), W_0, num_rounds=5)
    values = History.load(tmp_path).column("acc")
    np.testing.assert_array_equal(values[:3], 0.5)
    assert np.isnan(values[-1])


def test_a_servers_own_state_outlives_it(tmp_path):
    solver = FedOpt(eta=0.05, gamma=0.1)
    kind = dict(participation=Everyone(), stop=Never())
    whole = strategy(solver, **kind).start(fleet(), W_0, num_rounds=6)
    strategy(solver, **kind, save=tmp_path).start(fleet(), W_0, num_rounds=3)
    again = strategy(solver, **kind, save=tmp_path, resume=True).start(fleet(), W_0, num_rounds=6)
    np.testing.assert_allclose(w_of(again), w_of(whole), atol=1e-7)


def test_plain_clients_take_the_policy_that_the_docstring_shows():
    run = Flanp(Method(OwnTraining(), Growing(n0=3), FixedRounds(2)), time=FakeTime())
    run.start(fleet(N=5, app=plain_app(linear_clients(5))), W_0, num_rounds=4)
    assert [row.n for row in run.history.rows] == [0, 3, 3, 5, 5]
    with pytest.raises(BadInput, match="do not compress"):
        Flanp(Method(OwnTraining(compression=TopK())))


@pytest.mark.parametrize(
    "packed",
    [
        {TABLE: np.zeros(1, "V100000"), CODES: np.zeros(2, np.uint8)},
        {TABLE: np.zeros(2**17, np.float32), CODES: np.zeros(34, np.uint8)},
        {TABLE: np.zeros(3, np.float32), CODES: np.full(4, 255, np.uint8)},
        {TABLE: np.zeros((2, 2), np.float32), CODES: np.zeros(2, np.uint8)},
        {TABLE: np.zeros(0, np.float32), CODES: np.zeros(2, np.uint8)},
        {PLACES: np.array([16], np.uint32), VALUES: np.zeros(1, np.float32)},
        {PLACES: np.array([1], np.int64), VALUES: np.zeros(1, np.float32)},
        {PLACES: np.array([1], np.uint32), VALUES: np.zeros(1, "V9999")},
        {VALUES: np.zeros(1, np.float32)},
    ],
)
def test_a_packed_message_that_is_none_is_refused_before_it_takes_memory(packed):
    with pytest.raises(ValueError):
        unpack(packed, 16)


@pytest.mark.parametrize("levels", [1, 2, 3, 16, 300, 70_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_packing_loses_nothing(levels, dtype):
    rng = np.random.default_rng(levels)
    m = rng.standard_normal(levels).astype(dtype)[rng.integers(0, levels, 100_001)]
    sparse = np.where(rng.random(len(m)) < 0.01, m, 0).astype(dtype)
    for vector in (m, sparse, m[:1], np.zeros(7, dtype)):
        packed = pack(vector)
        np.testing.assert_array_equal(unpack(packed, len(vector)), vector)
        assert sum(a.nbytes for a in packed.values()) <= vector.nbytes


def test_a_solver_that_cannot_travel_is_refused_at_once():
    from dataclasses import dataclass

    from flanp.solvers import Solver

    @dataclass(frozen=True)
    class Odd(Solver):
        f: object = np.tanh

        def server_step(self, w, server, m, step):
            return w - m, server

    with pytest.raises(BadInput, match="Odd on the wire failed"):
        strategy(Odd(eta=0.1))
    assert ArrayRecord({"w": Array(np.zeros(1))})
