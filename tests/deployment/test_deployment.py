"""Flower with real processes, TLS and node keys on loopback."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from flanp.data import from_clients
from flanp.flower.deployment import Deployment
from flanp.participation import Flanp
from flanp.problems import LinearRegression
from flanp.simulation import Simulation
from flanp.solvers import FedAvg, FedGATE
from flanp.speeds import Measured
from flanp.stopping import GradientNoise
from flanp.work import Equal

APP = Path(__file__).parent / "app"
sys.path.insert(0, str(APP))
from fleet.task import L2, loss_over, samples  # noqa: E402

ROUNDS = 5


def run(deployment, scenario, name=None, wait=True, **config):
    """Run a scenario of the app and return what it found."""
    out = deployment.folder / f"{name or scenario}.json"
    process = deployment.run(
        APP, {"scenario": scenario, "out": str(out), **config}, name=name or scenario
    )
    return found(deployment, process, out, name or scenario) if wait else (process, out)


def found(deployment, process, out, name):
    process.wait(300)
    del deployment.processes[name]
    assert out.exists(), deployment.log(name)[-4000:]
    return json.loads(out.read_text())


def simulated(solver, N):
    simulation = Simulation(
        LinearRegression(l2=L2),
        from_clients([samples(i) for i in range(N)]),
        solver,
        Flanp(n0=1),
        GradientNoise(at_most=2),
        Equal(tau=5, batch=20),
        Measured(tuple(float(1 + i) for i in range(N))),
        max_rounds=ROUNDS,
    )
    list(simulation)
    return np.asarray(simulation.history.params)


def check_parity(models, N):
    for solver in (FedGATE(eta=0.05), FedAvg(eta=0.05)):
        expected = simulated(solver, N)
        np.testing.assert_allclose(models[type(solver).__name__], expected, atol=1e-5)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with Deployment(tmp_path_factory.mktemp("three")) as deployment:
        for i in range(3):
            deployment.start_node(i, {"partition-id": i, "num-partitions": 3})
        deployment.wait_for_nodes(3)
        yield deployment


def test_a_deployment_gives_the_simulators_models(three):
    check_parity(run(three, "parity", nodes=3, rounds=ROUNDS)["models"], 3)


def test_our_strategy_costs_little_beyond_flowers_own(three):
    seconds = run(three, "overhead", nodes=3, rounds=3)
    flower, ours = (float(np.median(seconds[name])) for name in ("flower", "flanp"))
    print(f"seconds per round: Flower's FedAvg {flower:.2f}, flanp {ours:.2f}")
    assert ours <= 1.1 * flower


def test_bad_nodes_change_nothing_and_strangers_get_nowhere(three):
    """Three bad nodes and one without a registered key join; the model is the good three's."""
    for i, fault in enumerate(("nan", "shape", "garbage"), start=3):
        three.start_node(i, {"partition-id": i, "num-partitions": 6, "fault": fault})
    three.start_node(9, {"partition-id": 9, "num-partitions": 6}, registered=False)
    three.wait_for_nodes(6)
    bad = run(three, "bad_nodes", nodes=6, rounds=2)
    assert bad["nodes"] == 6
    assert bad["counts"]["malformed"] == 3 * 2
    assert three.processes["node-9"].wait(60) != 0
    for i in (3, 4, 5):
        three.stop(f"node-{i}")
    good = run(three, "bad_nodes", name="good_nodes", nodes=3, rounds=2)
    np.testing.assert_allclose(bad["model"], good["model"], atol=1e-7)


def test_the_simulation_runtime_gives_the_simulators_models(tmp_path):
    N = 20
    with Deployment(tmp_path, simulated=N) as deployment:
        check_parity(run(deployment, "parity", nodes=N, rounds=ROUNDS)["models"], N)


def test_flanp_outlives_killed_and_restarted_nodes_and_beats_everyone(tmp_path):
    """Six nodes, two of them 4x slower; one is killed, one restarted in the middle of a stage."""
    slow = (2.5, 2.5, 2.5, 2.5, 10.0, 10.0)
    with Deployment(tmp_path) as deployment:
        config = {
            i: {"partition-id": i, "num-partitions": 6, "slow": s} for i, s in enumerate(slow)
        }
        for i in config:
            deployment.start_node(i, config[i])
        deployment.wait_for_nodes(6)
        process, out = run(deployment, "stragglers", wait=False, nodes=6)
        history = Path(f"{out}.run.FLANP") / "history.csv"
        wait_for(lambda: history.exists() and len(history.read_text().splitlines()) > 3, process)
        ranking = json.loads((history.parent / "fleet.json").read_text())["ranking"]
        fast = [int(name) for name in ranking if int(name) < 4]
        deployment.kill(f"node-{fast[0]}")
        deployment.stop(f"node-{fast[1]}")
        deployment.start_node(fast[1], config[fast[1]])
        result = found(deployment, process, out, "stragglers")
    flanp, everyone = result["FLANP"], result["FedAvg"]
    print(f"everyone {everyone['seconds']:.0f} s, FLANP {flanp['seconds']:.0f} s", flanp)
    assert everyone["ended"] == flanp["ended"] == "target reached"
    assert flanp["loss"] <= 0.62
    dropped = {name: n for name, n in flanp["counts"].items() if name != "exchanges"}
    assert sum(dropped.values()) >= 1
    assert flanp["seconds"] < everyone["seconds"]


def wait_for(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.parametrize("solver", ["FedAvg", "FedGATE"])
def test_a_run_outlives_its_superlink(solver, tmp_path):
    """Kill the SuperLink and all nodes in the middle, start anew, resume."""
    rounds = 5
    options = {"solver": solver, "nodes": 2, "rounds": rounds}

    def start(folder):
        deployment = Deployment(folder).__enter__()
        for i in range(2):
            deployment.start_node(i, {"partition-id": i, "num-partitions": 2})
        deployment.wait_for_nodes(2)
        return deployment

    deployment = start(tmp_path / "first")
    try:
        straight = run(deployment, "resumed", name="straight", **options)
        process, out = run(deployment, "resumed", name="cut", wait=False, pause=0.5, **options)
        history = Path(f"{out}.run") / "history.csv"
        wait_for(lambda: history.exists() and len(history.read_text().splitlines()) > 3, process)
        for name in ("superlink", "node-0", "node-1"):
            deployment.kill(name)
    finally:
        deployment.__exit__(None, None, None)
    second = start(tmp_path / "second")
    try:
        (tmp_path / "first" / "cut.json.run").rename(tmp_path / "second" / "again.json.run")
        again = run(second, "resumed", name="again", resume=True, **options)
        log = second.log("again")
    finally:
        second.__exit__(None, None, None)
    assert again["rounds"] == straight["rounds"] == list(range(rounds + 1))
    if solver == "FedAvg":
        np.testing.assert_array_equal(again["model"], straight["model"])
    else:
        assert "tracking restarts" in log
        start_loss = loss_over(6, np.zeros(10))
        assert again["loss"] - straight["loss"] < 0.05 * (start_loss - straight["loss"])
