"""Flower with real processes, TLS and node keys on loopback."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")


from flanp import Method, prepare
from flanp.data import from_clients
from flanp.flower.local.deployment import Deployment
from flanp.participation import Growing
from flanp.problems import LinearRegression
from flanp.solvers import FedGATE
from flanp.speeds import Measured
from flanp.stopping import GradientNoise
from flanp.work import Equal
from fleet.task import L2, samples

from scenarios import run, with_nodes


def check_parity(deployment, N, rounds):
    found = run(deployment, "parity", nodes=N, rounds=rounds)
    simulation = prepare(
        LinearRegression(l2=L2),
        from_clients([samples(i) for i in range(N)]),
        Method(FedGATE(eta=0.05), Growing(n0=2), GradientNoise(at_most=2), Equal(tau=5, batch=20)),
        Measured(tuple(float(1 + i) for i in range(N))),
        max_rounds=rounds,
    )
    expected = np.asarray(simulation.to_the_end().params)
    np.testing.assert_allclose(found["model"], expected, atol=1e-5)


in_one_process = pytest.mark.xdist_group("three nodes")


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with with_nodes(tmp_path_factory.mktemp("three"), 3) as deployment:
        yield deployment


@in_one_process
def test_a_deployment_gives_the_simulators_model(three):
    check_parity(three, N=3, rounds=3)


@in_one_process
def test_bad_nodes_change_nothing_and_strangers_get_nowhere(three):
    """Three bad nodes and one without a registered key join; the model is the good three's."""
    for i, fault in enumerate(("nan", "shape", "garbage"), start=3):
        three.start_node(i, {"partition-id": i, "num-partitions": 6, "fault": fault})
    three.start_node(9, {"partition-id": 9, "num-partitions": 6}, registered=False)
    three.wait_for_nodes(6)
    bad = run(three, "bad_nodes", nodes=6, rounds=1)
    assert bad["nodes"] == 6
    assert bad["counts"]["malformed"] == 3
    assert three.processes["node-9"].wait(120) != 0
    three.stop(*(f"node-{i}" for i in (3, 4, 5)))
    good = run(three, "bad_nodes", name="good_nodes", nodes=3, rounds=1)
    np.testing.assert_allclose(bad["model"], good["model"], atol=1e-7)


def test_the_simulation_runtime_gives_the_simulators_model(tmp_path):
    with Deployment(tmp_path, simulated=20) as deployment:
        check_parity(deployment, N=20, rounds=8)
