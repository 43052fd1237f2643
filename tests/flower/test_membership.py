"""Nodes that come, go, come back, and are found to be fast or slow."""

import pytest

from flanp.checks import BadInput
from flanp.participation import Everyone, Growing, RandomK
from flanp.stopping import FixedRounds, Never

from fleets import FIRST_ID, W_0, asked, asked_to_train, fleet, joining, node_of, send, strategy
from small import linear_clients


def test_the_next_fastest_takes_the_place_of_a_dead_participant():
    grid = fleet()
    fastest = node_of(grid, 1)

    def die(round_, arrays):
        fastest.online = round_ < 1

    run = strategy(stop=FixedRounds(3), participation=Growing(n0=1))
    run.start(grid, W_0, num_rounds=3, evaluate_fn=die)
    trained = asked_to_train(grid)
    assert trained == [1, 2, 2]


def test_a_node_that_joins_is_measured_and_takes_part():
    grid = fleet(N=4)
    run = strategy(stop=FixedRounds(2))
    run.start(grid, W_0, num_rounds=30, evaluate_fn=joining(node_of(grid, 3), after=2))
    assert [row.n for row in run.history.rows] == [0, 1, 1, 2, 2, 4, 4]


def test_a_node_that_joins_in_the_last_stage_makes_another():
    grid = fleet(N=3)
    run = strategy(stop=FixedRounds(3), participation=Everyone())
    run.start(grid, W_0, num_rounds=30, evaluate_fn=joining(node_of(grid, 2), after=1))
    assert [row.n for row in run.history.rows] == [0, 2, 2, 2, 3, 3, 3]


def test_a_node_that_joins_a_run_to_a_target_takes_part():
    grid = fleet(N=3)
    run = strategy(participation=Everyone(), stop=Never(), target={"loss": -1.0})
    run.start(grid, W_0, num_rounds=5, evaluate_fn=joining(node_of(grid, 2), after=2))
    assert [row.n for row in run.history.rows] == [0, 2, 2, 2, 2, 3]


@pytest.mark.parametrize("target", [None, {"loss": -1.0}])
def test_a_node_that_joins_and_fails_is_asked_once_in_a_stage(target):
    grid = fleet(N=3)
    mute = node_of(grid, 2)
    mute.faults.extend(["crash"] * 100)
    run = strategy(stop=FixedRounds(2), participation=Everyone(), target=target)
    run.start(grid, W_0, num_rounds=8, evaluate_fn=joining(mute, after=1))
    assert {(row.stage, row.n) for row in run.history.rows[1:]} == {(0, 2)}
    assert asked(grid).count(2) == 1


def test_a_node_that_comes_back_under_another_id_takes_part():
    grid = fleet(N=3)
    clients = linear_clients(5, s=12)
    other = node_of(fleet(clients=clients, N=3), 2)
    other.id = 17

    def replace(round_, arrays):
        if round_ == 2:
            del grid.nodes[FIRST_ID + 2]
            grid.nodes[17] = other

    run = strategy(participation=Everyone(), stop=Never(), target={"loss": -1.0})
    run.start(grid, W_0, num_rounds=8, evaluate_fn=replace)
    assert [row.n for row in run.history.rows] == [0, 3, 3, 2, 2, 3, 3, 3, 3]


def test_a_client_that_answers_the_probe_late_takes_part_from_the_next_stage_on():
    grid = fleet(N=3)
    slow = node_of(grid, 0)
    slow.faults.append("late")

    def deliver(round_, arrays):
        if round_ == 1:
            grid.deliver(slow)

    run = strategy(stop=FixedRounds(3), participation=Everyone())
    run.start(grid, W_0, num_rounds=30, evaluate_fn=deliver)
    assert [row.n for row in run.history.rows] == [0, 2, 2, 2, 3, 3, 3]


def test_when_fewer_are_left_than_the_policy_asks_for_those_go_on():
    grid = fleet(N=4)

    def leave(round_, arrays):
        for i in (2, 3):
            node_of(grid, i).online = round_ < 2

    run = strategy(participation=RandomK(3), stop=Never(), target={"loss": -1.0})
    run.start(grid, W_0, num_rounds=5, evaluate_fn=leave)
    assert [row.n for row in run.history.rows] == [0, 3, 3, 2, 2, 2]
    with pytest.raises(BadInput, match="at most the number of clients, 4"):
        strategy(participation=RandomK(5)).start(fleet(N=4), W_0)


def test_all_nodes_may_be_gone_for_a_moment(monkeypatch):
    grid = fleet(N=3)
    looks = iter([True] * 12 + [False] * 20)
    online = grid.get_node_ids
    monkeypatch.setattr(grid, "get_node_ids", lambda: online() if next(looks, True) else [])
    run = strategy(participation=Everyone(), stop=Never())
    run.start(grid, W_0, num_rounds=6)
    assert [row.n for row in run.history.rows][-1] == 3
    assert next(looks, None) is None


def test_ranking_is_measured_by_the_clients_and_one_odd_round_does_not_move_it():
    grid = fleet(N=3)
    for node, seconds in zip(grid.nodes.values(), (0.03, 0.01, 0.02), strict=True):
        node.faults.extend([send(seconds_per_step=seconds)] * 3)
    node_of(grid, 1).faults.extend([send(seconds_per_step=9.0), send(seconds=0.01)])
    run = strategy(stop=FixedRounds(3), speeds=None, participation=Growing(n0=1))
    run.start(grid, W_0, num_rounds=6)
    trained = asked_to_train(grid)
    assert trained[:5] == [1, 1, 1, 1, 2]
