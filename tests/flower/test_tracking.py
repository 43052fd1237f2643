"""The states that solvers keep at the clients, whoever loses or takes one away."""

import numpy as np
import pytest

from flanp.participation import Everyone, Growing
from flanp.solvers import FedGATE, Scaffold
from flanp.stopping import FixedRounds, Never
from flanp.work import Equal

from fleets import W_0, asked_to_train, deltas, fleet, node_of, strategy, w_of
from small import linear_clients


def test_tracking_variables_sum_to_zero():
    grid = fleet()
    strategy(participation=Everyone(), stop=Never()).start(grid, W_0, num_rounds=5)
    found = deltas(grid)
    assert len(found) == 5
    assert max(np.abs(delta).max() for delta in found.values()) > 1e-3
    np.testing.assert_allclose(sum(found.values()), 0, atol=1e-6)


def test_a_client_that_lost_its_state_is_noticed_and_tracking_restarts():
    grid = fleet()
    node = node_of(grid, 2)
    node.faults.extend([None] * 4)  # the probe and three rounds
    node.faults.append(lambda reply: (node.restart(), reply)[1])
    run = strategy(participation=Everyone(), stop=Never())
    run.start(grid, W_0, num_rounds=8)
    assert run.history.about["counts"]["lost states"] == 1
    np.testing.assert_allclose(sum(deltas(grid).values()), 0, atol=1e-6)


@pytest.mark.parametrize(
    "solver", [FedGATE(eta=0.05), Scaffold(eta=0.05)], ids=["gate", "scaffold"]
)
def test_the_optimum_is_found_whoever_loses_its_state(solver):
    clients = linear_clients(4, s=12)
    grid = fleet(clients=clients, N=4)
    node = node_of(grid, 2)
    node.faults.extend([None] * 60)  # until the messages are a thousand times as short
    node.faults.append(lambda reply: (node.restart(), reply)[1])
    run = strategy(solver, participation=Everyone(), stop=Never(), work=Equal(tau=7))
    w = w_of(run.start(grid, W_0, num_rounds=150))
    x, y = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    best = np.linalg.solve(x.T @ x / len(x) + 0.1 * np.eye(3), x.T @ y / len(x))
    np.testing.assert_allclose(w, best, atol=1e-4)
    counts = run.history.about["counts"]
    assert counts["lost states"] == 1
    assert "malformed" not in counts


def test_a_client_that_leaves_takes_its_tracking_variable_with_it():
    grid = fleet()

    def leave(round_, arrays):
        node_of(grid, 3).online = round_ < 3

    run = strategy(participation=Everyone(), stop=Never())
    run.start(grid, W_0, num_rounds=7, evaluate_fn=leave)
    there = {id_: delta for id_, delta in deltas(grid).items() if id_ != 3}
    np.testing.assert_allclose(sum(there.values()), 0, atol=1e-6)
    assert run.history.rows[-1].round == 7


def test_a_substitute_that_leaves_takes_its_tracking_variable_with_it():
    grid = fleet()

    def away(round_, arrays):
        node_of(grid, 1).online = not 2 <= round_ < 5

    run = strategy(stop=FixedRounds(9), participation=Growing(n0=2))
    run.start(grid, W_0, num_rounds=9, evaluate_fn=away)
    trained = asked_to_train(grid)
    assert trained[:7] == [1, 2, 1, 2, 2, 2, 0]
    last = {id_: delta for id_, delta in deltas(grid).items() if id_ in (1, 2)}
    np.testing.assert_allclose(sum(last.values()), 0, atol=1e-6)
