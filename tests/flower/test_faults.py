"""Replies that are late, bad or missing."""

import json
import math

import numpy as np
import pytest
from flwr.app import RecordDict

from flanp import BadInput, History, Reason
from flanp.flower import NobodyAnswered, client
from flanp.flower import exchange as exchanges
from flanp.participation import Everyone, Growing
from flanp.patience import TRIES, Deadline
from flanp.solvers import FedAvg
from flanp.stopping import FixedRounds, Never

from fleets import (
    FIRST_ID,
    W_0,
    asked_to_train,
    deltas,
    fleet,
    garbage,
    gradient,
    node_of,
    plain_app,
    send,
    slow_fleet,
    strategy,
    w_of,
)
from nodes import FakeTime, LocalGrid, LocalNode, SlowGrid
from small import linear_clients


def test_a_node_that_answers_the_probe_with_nonsense_stays_out():
    grid = fleet(N=3)
    node_of(grid, 1).faults.append(garbage)
    run = strategy(participation=Everyone(), stop=Never())
    run.start(grid, W_0, num_rounds=2)
    assert run.history.about["counts"]["malformed"] == 1
    assert [row.n for row in run.history.rows] == [0, 2, 2]


@pytest.mark.parametrize(
    "fault",
    [
        send(m=[math.nan, 0, 0]),
        send(m=[1.0, 2.0]),
        send(m=[1e30, 0, 0]),
        send(num_examples=-3.0),
        send(seconds_per_step=math.inf),
        garbage,
        "crash",
    ],
    ids=["nan", "shape", "absurd", "samples", "seconds", "garbage", "crash"],
)
def test_a_bad_reply_changes_nothing_but_a_counter(fault):
    """The run goes on as if the client had not been there in that round."""

    def go(grid):
        run = strategy(
            FedAvg(eta=0.05),
            participation=Everyone(),
            stop=Never(),
            patience=Deadline(60.0, quorum=0.2),
        )
        return run, run.start(grid, W_0, num_rounds=4)

    bad = fleet()
    node_of(bad, 1).faults.extend([None, None, *[fault] * (TRIES if fault == "crash" else 1)])
    run, result = go(bad)
    counts = run.history.about["counts"]
    assert counts.get("malformed", 0) + counts.get("failed", 0) in (1, TRIES)
    absent = fleet()
    node_of(absent, 1).faults.extend([None, None, *["crash"] * TRIES])
    np.testing.assert_array_equal(w_of(result), w_of(go(absent)[1]))
    assert not np.array_equal(w_of(result), w_of(go(fleet())[1]))


def crashing_fleet(who, crashes=1, number=2):
    """Return three nodes that take 10, 2 and 30 seconds, one of which fails in a round."""
    seconds = (10.0, 2.0, 30.0)
    grid, time = slow_fleet(seconds)
    for node, takes in zip(grid.nodes.values(), seconds, strict=True):
        node.faults.extend([send(seconds_per_step=takes / 7)] * 9)
    for _ in range(crashes):
        node_of(grid, who).faults.insert(number, "crash")
    return grid, time


@pytest.mark.parametrize("crashes", [1, TRIES - 1, TRIES])
def test_who_fails_while_others_are_at_work_is_asked_again(crashes):
    """Client 1 would be back in 2 of the 30 seconds that client 2 takes."""

    def go(crashes):
        grid, time = crashing_fleet(1, crashes)
        run = strategy(participation=Everyone(), stop=Never(), time=time)
        return grid, run, run.start(grid, W_0, num_rounds=4)

    (_, calm, expected), (grid, run, result) = go(0), go(crashes)
    assert run.history.about["counts"]["failed"] == crashes
    assert run.history.about["counts"]["asked again"] == min(crashes, TRIES - 1)
    rows, calmly = run.history.rows, calm.history.rows
    assert [row.time for row in rows] == pytest.approx([row.time for row in calmly], abs=1.0)
    if crashes < TRIES:
        np.testing.assert_array_equal(w_of(result), w_of(expected))
        assert asked_to_train(grid).count(1) == 4 + crashes
    else:
        assert [row.n for row in rows].count(2) == 1


def test_nobody_is_asked_again_who_cannot_be_back_by_the_deadline():
    """Client 0 takes 10 seconds: it fails after them, and the round ends at 15, not at 30."""
    grid, time = crashing_fleet(0, number=1)
    known = {"0": 10.0 / 7, "1": 2.0 / 7, "2": 30.0 / 7}
    kind = {"participation": Everyone(), "stop": Never(), "time": time, "speeds": known}
    run = strategy(FedAvg(0.05), patience=Deadline(15.0, quorum=0.3), **kind)
    run.start(grid, W_0, num_rounds=1)
    counts = run.history.about["counts"]
    assert (counts["failed"], counts["late"]) == (1, 1)
    assert "asked again" not in counts


def test_the_slowest_is_not_asked_again_for_all_to_wait():
    grid, time = crashing_fleet(2)
    run = strategy(FedAvg(0.05), participation=Everyone(), stop=Never(), time=time)
    run.start(grid, W_0, num_rounds=3)
    assert "asked again" not in run.history.about["counts"]
    assert [row.n for row in run.history.rows].count(2) == 1


def test_a_client_that_is_late_is_dropped_and_weighted_out():
    grid = fleet(N=3)
    node_of(grid, 0).faults.extend([None, "silent"])
    run = strategy(FedAvg(eta=0.05), participation=Everyone(), stop=Never(), patience=Deadline(0.1))
    result = run.start(grid, W_0, num_rounds=1)
    assert run.history.about["counts"]["late"] == 1
    pair = linear_clients(3, s=12)[1:]
    app = client(
        gradient=gradient, data=lambda context: pair[context.node_config["partition-id"] - 1]
    )
    two = LocalGrid([LocalNode(app, {"partition-id": i}, FIRST_ID + i) for i in (1, 2)])
    alone = strategy(FedAvg(eta=0.05), participation=Everyone(), stop=Never())
    np.testing.assert_allclose(w_of(result), w_of(alone.start(two, W_0, num_rounds=1)), atol=1e-7)


def test_a_client_that_is_late_is_asked_again_when_it_has_answered(monkeypatch):
    monkeypatch.setattr(exchanges, "REST", math.inf)
    grid = fleet()
    fastest = node_of(grid, 1)
    fastest.faults.extend([None, None, "late"])

    def deliver(round_, arrays):
        if round_ == 4:
            grid.deliver(fastest)

    run = strategy(stop=FixedRounds(6), participation=Growing(n0=2), patience=Deadline(0.1))
    run.start(grid, W_0, num_rounds=6, evaluate_fn=deliver)
    trained = asked_to_train(grid)
    pairs = [{*trained[i : i + 2]} for i in range(0, len(trained), 2)]
    assert pairs == [{1, 2}] * 2 + [{2, 0}] * 2 + [{1, 2}] * 2
    assert run.history.about["counts"]["late"] == 1
    np.testing.assert_allclose(deltas(grid)[1] + deltas(grid)[2], 0, atol=1e-6)


def test_a_client_that_never_answers_is_tried_again_after_a_while(monkeypatch):
    monkeypatch.setattr(exchanges, "REST", 0.0)
    grid = fleet(N=3)
    node_of(grid, 1).faults.extend([None, "silent"])
    run = strategy(FedAvg(eta=0.05), participation=Everyone(), stop=Never(), patience=Deadline(0.1))
    run.start(grid, W_0, num_rounds=3)
    trained = asked_to_train(grid)
    assert trained.count(1) == 3


def test_a_node_that_owes_two_replies_is_left_alone_until_it_has_sent_both():
    grid = fleet(N=1, app=plain_app(linear_clients(1)))
    node_of(grid, 0).faults.extend(["late", "late"])
    exchange = exchanges.Exchange(grid, FakeTime())
    for _ in range(2):
        exchange.ask(
            {FIRST_ID: RecordDict({"arrays": W_0})}, "train", 0.5, lambda *_: None, needed=0
        )
    assert exchange.overdue() == {FIRST_ID}
    grid.deliver(node_of(grid, 0))
    assert exchange.overdue() == {FIRST_ID}
    grid.deliver(node_of(grid, 0))
    assert exchange.overdue() == set()


def test_those_who_owe_a_reply_are_asked_where_nobody_else_is_left(monkeypatch):
    monkeypatch.setattr(exchanges, "REST", math.inf)
    grid = fleet(N=2)
    node_of(grid, 1).faults.extend([None, "silent"])

    def leave(round_, arrays):
        node_of(grid, 0).online = round_ < 1

    run = strategy(
        FedAvg(eta=0.05), participation=Everyone(), stop=Never(), patience=Deadline(0.05)
    )
    run.start(grid, W_0, num_rounds=2, evaluate_fn=leave)
    trained = asked_to_train(grid)
    assert trained == [1, 0, 1]


def test_a_late_reply_still_tells_how_fast_a_client_is(monkeypatch, tmp_path):
    monkeypatch.setattr(exchanges, "REST", math.inf)
    grid = fleet(N=3)
    fastest = node_of(grid, 1)
    for node, seconds in zip(grid.nodes.values(), (0.03, 0.01, 0.02), strict=True):
        node.faults.extend([send(seconds_per_step=seconds)] * 9)
    fastest.faults[1], fastest.faults[2] = "late", send(seconds_per_step=9.0)

    def deliver(round_, arrays):
        if round_ == 2:
            send(seconds_per_step=9.0)(fastest.late[0][1])
            grid.deliver(fastest)

    run = strategy(
        stop=FixedRounds(3),
        speeds=None,
        participation=Growing(n0=2),
        patience=Deadline(0.1),
        save=tmp_path,
    )
    run.start(grid, W_0, num_rounds=3, evaluate_fn=deliver)
    assert json.loads((tmp_path / "fleet.json").read_text())["ranking"][-1] == "1"


def test_nobody_answers_stops_with_an_error_and_the_model_saved(tmp_path):
    grid = fleet(N=3)

    def die(round_, arrays):
        for node in grid.nodes.values():
            node.online = round_ < 2

    run = strategy(participation=Everyone(), stop=Never(), save=tmp_path / "run")
    with pytest.raises(NobodyAnswered, match="none of 3 clients"):
        run.start(grid, W_0, num_rounds=9, evaluate_fn=die)
    saved = History.load(tmp_path / "run")
    assert saved.rows[-1].round == 2
    assert "NobodyAnswered" in str(saved.ended)
    assert saved.ended.reason is Reason.FAILED
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_too_few_nodes_are_not_waited_for_without_end():
    with pytest.raises(NobodyAnswered, match="start more"):
        strategy(min_available_nodes=9).start(fleet(), W_0, timeout=0.1)


def test_deadlines_leave_time_for_all_that_a_client_does(monkeypatch):
    """Steps are quick; reading the data is not, and the first message shows it."""
    from flanp.flower import timing

    monkeypatch.setattr(timing, "LEAST_DEADLINE", 0.01)
    time = FakeTime()
    grid = SlowGrid(fleet(N=2).nodes.values(), seconds=0.0, time=time)
    slow = node_of(grid, 1)
    slow.takes = 0.5
    slow.faults.extend([send(seconds_busy=0.5)] * 4)
    speeds = {"0": 1e-3, "1": 1e-3}
    run = strategy(
        FedAvg(eta=0.05), participation=Everyone(), stop=Never(), speeds=speeds, time=time
    )
    run.start(grid, W_0, num_rounds=3)
    assert run.history.about["counts"] == {"exchanges": 4}


def test_a_hung_node_does_not_hide_the_target():
    grid = fleet(N=4)
    node_of(grid, 3).faults.extend([None, *["silent"] * 50])
    options = dict(participation=Everyone(), stop=Never(), target={"loss": 0.3})
    run = strategy(**options, patience=Deadline(0.05))
    run.start(grid, W_0, num_rounds=50)
    assert str(run.history.ended) == "target reached"
    assert run.history.rows[-1].n == 3


@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")
def test_a_model_that_diverges_is_told_from_nodes_that_are_slow():
    with pytest.raises(NobodyAnswered, match="could be used.*NaN or infinity"):
        strategy(FedAvg(eta=1e9), participation=Everyone(), stop=Never()).start(
            fleet(N=3), W_0, num_rounds=9
        )


@pytest.mark.parametrize("parts", [FedAvg, [FedAvg(eta=0.1)], ["FedAvg"], [int], {FedAvg}])
def test_parts_of_a_client_are_classes(parts):
    with pytest.raises(BadInput, match="give a list of your classes"):
        client(gradient=gradient, data=lambda context: (), parts=parts)
