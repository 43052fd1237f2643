"""Clients that take no part are remembered on Flower as they are in the simulator."""

import json

import numpy as np
import pytest

from flanp import Method, prepare
from flanp.data import from_clients
from flanp.participation import Everyone, FastestK, Growing
from flanp.solvers import FedGATE, Memory
from flanp.speeds import Measured
from flanp.stopping import FixedRounds, GradientNoise, Never
from flanp.work import Equal

from fleets import PROBLEM, W_0, fleet, node_of, send, strategy, w_of
from nodes import FakeTime, SlowGrid
from small import linear_clients

MEMORY = Memory(eta=0.05)
T = (3.0, 1.0, 1.5, 7.25, 4.5)
"""Multiples of the quarter of a second after which replies are looked for."""
CLIENTS = linear_clients(5, s=12, unequal=True)


class BusyGrid(SlowGrid):
    """Each node does one task after the other, and takes T_i for each of its local steps."""

    def __init__(self, nodes, T, time):
        super().__init__(nodes, 0.0, time)
        self.T = dict(zip(self.nodes, T, strict=True))

    def push_messages(self, messages):
        for message in messages:
            id_ = message.metadata.dst_node_id
            task = json.loads(message.content.config_records["config"]["flanp"])
            train = message.metadata.message_type == "train"
            self.nodes[id_].takes = self.T[id_] * (task["tau"] if train else 0)
        return super().push_messages(messages)


def run_of(solver=MEMORY, rounds=30, T=T, watch=None, timeout=3600.0, **options):
    """Return a strategy after its run, and what it returned; `watch` sees grid and round."""
    time = FakeTime()
    grid = BusyGrid(fleet(clients=CLIENTS).nodes.values(), T, time)
    speeds = {str(i): seconds for i, seconds in enumerate(T)}
    parts = {"participation": FastestK(2), "stop": Never(), "work": Equal(tau=1)}
    run = strategy(solver, time=time, **parts | {"speeds": speeds} | options)
    evaluate = watch and (lambda round_, arrays: watch(grid, round_))
    return run, run.start(grid, W_0, num_rounds=rounds, timeout=timeout, evaluate_fn=evaluate)


def minimiser(clients):
    return prepare(PROBLEM, from_clients(clients), Method(MEMORY)).engine.machine._w_star


def simulated(rounds=30, **options):
    parts = {"participation": FastestK(2), "stop": Never(), "work": Equal(tau=1)} | options
    method = Method(MEMORY, **parts)
    run = prepare(PROBLEM, from_clients(CLIENTS), method, Measured(T), max_rounds=rounds)
    list(run)
    return run


@pytest.mark.parametrize("tau", [1, 3])
@pytest.mark.parametrize(
    ("participation", "stop"),
    [
        (FastestK(2), Never()),
        (Growing(n0=2), FixedRounds(6)),
        # A stage that a test ends takes one exchange more on real machines.
        (FastestK(2), GradientNoise(theta=1e-9)),
    ],
    ids=["fastest", "growing", "tested"],
)
def test_the_fleet_remembers_as_the_simulator_does(tau, participation, stop):
    parts = {"participation": participation, "stop": stop, "work": Equal(tau=tau, batch=5)}
    run, result = run_of(**parts)
    expected = simulated(**parts)
    assert [row[:3] for row in run.history.rows] == [row[:3] for row in expected.history.rows]
    seconds, theirs = (np.diff(h.column("time")) for h in (run.history, expected.history))
    np.testing.assert_allclose(seconds[1:], theirs[1:], atol=1e-9)
    np.testing.assert_allclose(w_of(result), expected.history.params, atol=2e-5)
    for column in ("sent", "received"):
        ours, theirs = run.history.column(column), expected.history.column(column)
        np.testing.assert_array_equal(ours, theirs)
    if isinstance(stop, GradientNoise):
        ours = run.history.column("stage_grad_norm_sq")[:-1]
        theirs = expected.history.column("stage_grad_norm_sq")[:-1]
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    assert run.history.about["counts"]["background tasks"] > 5


def test_two_nodes_and_a_memory_find_the_minimiser_over_all():
    run, result = run_of(Memory(eta=0.3), rounds=400)
    w_star = minimiser(CLIENTS)
    np.testing.assert_allclose(w_of(result), w_star, atol=1e-5)
    assert {row.n for row in run.history.rows[1:]} == {2}
    _, without = run_of(FedGATE(eta=0.3), rounds=400)
    assert np.abs(w_of(without) - w_star).max() > 0.05


def test_with_everyone_it_is_fedgate():
    parts = {"participation": Everyone(), "rounds": 9, "work": Equal(tau=3, batch=5)}
    _, ours = run_of(MEMORY, **parts)
    _, theirs = run_of(FedGATE(eta=0.05), **parts)
    np.testing.assert_allclose(w_of(ours), w_of(theirs), atol=1e-6)


def test_nodes_that_start_anew_lose_nothing():
    restarts = {5: 0, 9: 1, 11: 3}

    def restart(grid, round_):
        if round_ in restarts:
            node_of(grid, restarts[round_]).restart()

    _, straight = run_of(rounds=40)
    _, again = run_of(rounds=40, watch=restart)
    np.testing.assert_array_equal(w_of(again), w_of(straight))


def test_a_run_goes_on_with_its_memories(tmp_path):
    """On new nodes, and with the work under way lost, it starts as near as it was."""
    run_of(Memory(eta=0.3), rounds=200, save=tmp_path / "run")
    again, result = run_of(Memory(eta=0.3), rounds=204, save=tmp_path / "run", resume=True)
    np.testing.assert_allclose(w_of(result), minimiser(CLIENTS), atol=1e-4)
    assert again.history.rows[-1].round == 204


def test_a_run_is_not_over_before_all_were_heard():
    run, _ = run_of(stop=GradientNoise(theta=1e6), rounds=100)
    assert str(run.history.ended) == "accuracy reached"
    assert run.history.rows[-1].time >= max(T)


def test_whoever_never_answers_is_given_up():
    forever = (*T[:3], 1e9, T[4])
    run, _ = run_of(stop=GradientNoise(theta=1e6), rounds=1000, T=forever, timeout=60.0)
    assert str(run.history.ended) == "accuracy reached"
    assert 60 <= run.history.rows[-1].time < 80


def ends(**options):
    run, _ = run_of(stop=GradientNoise(theta=1e6), rounds=150, timeout=60.0, **options)
    return str(run.history.ended), run.history.rows[-1].time


def test_a_node_that_always_fails_does_not_keep_a_run_from_its_end():
    def fail(grid, round_):
        node_of(grid, 4).faults.append("crash")

    ended, _ = ends(watch=fail)
    assert ended == "accuracy reached"


def test_a_node_that_leaves_before_it_was_heard_does_not_either():
    def leave(grid, round_):
        node_of(grid, 3).online = round_ < 2

    ended, time = ends(watch=leave)
    assert ended == "accuracy reached"
    assert time < max(T)


def test_a_node_that_comes_back_under_another_id_counts_once():
    """The slowest is still waited for."""

    def change(grid, round_):
        if round_ == 2:
            node = grid.nodes.pop(node_of(grid, 0).id)
            node.id += 1000
            grid.nodes[node.id] = node
            grid.T[node.id] = T[0]

    ended, time = ends(watch=change)
    assert ended == "accuracy reached"
    assert time >= max(T)


def test_a_node_whose_message_is_lost_is_asked_again():
    def lose(grid, round_):
        if round_ == 1:
            node_of(grid, 4).faults.append("silent")
        asked.append([id_ for id_, _ in grid.log].count(node_of(grid, 4).id))

    asked = []
    run_of(rounds=100, watch=lose, timeout=30.0)
    assert asked[-1] > 10


def test_an_absurd_message_from_an_absent_node_is_dropped():
    def lie(grid, round_):
        if round_ == 6:
            node_of(grid, 4).faults.append(send(m=[1e12] * 3))

    run, result = run_of(rounds=60, watch=lie)
    _, honest = run_of(rounds=60)
    assert run.history.about["counts"]["malformed"] == 1
    np.testing.assert_allclose(w_of(result), w_of(honest), atol=0.05)


def test_who_leaves_does_not_count_any_more():
    def leave(grid, round_):
        node_of(grid, 3).online = round_ < 50

    _, result = run_of(Memory(eta=0.3), rounds=450, watch=leave)
    left = [client for i, client in enumerate(CLIENTS) if i != 3]
    np.testing.assert_allclose(w_of(result), minimiser(left), atol=1e-4)


@pytest.mark.parametrize(
    "fault",
    ["crash", "silent", send(m=[np.nan] * 3), send(m=[1.0]), send(num_examples=-1)],
    ids=["crash", "silent", "nan", "short", "samples"],
)
def test_bad_news_from_absent_nodes_do_not_end_a_run(fault):
    def spoil(grid, round_):
        if round_ == 3:
            node_of(grid, 4).faults.append(fault)

    run, result = run_of(rounds=20, watch=spoil)
    assert np.isfinite(w_of(result)).all()
    assert len(run.history.rows) == 21
