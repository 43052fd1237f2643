"""Killed nodes and a killed SuperLink, with real processes, TLS and node keys on loopback."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from flanp.flower.deployment import Deployment
from fleet.task import loss_over

from scenarios import found, run, wait_for


def test_flanp_outlives_killed_and_restarted_nodes_and_beats_everyone(tmp_path):
    """Six nodes, two of them 4x slower; one is killed, one restarted in the middle of a stage."""
    slow = (3.0, 3.0, 3.0, 3.0, 12.0, 12.0)
    with Deployment(tmp_path) as deployment:
        config = {
            i: {"partition-id": i, "num-partitions": 6, "slow": s} for i, s in enumerate(slow)
        }
        for i in config:
            deployment.start_node(i, config[i])
        deployment.wait_for_nodes(6)
        process, out = run(deployment, "stragglers", wait=False, nodes=6)
        history = Path(f"{out}.run.FLANP") / "history.csv"

        def after(rounds):
            wait_for(lambda: history.exists() and _lines(history) > 1 + rounds, process)

        after(rounds=1)
        ranking = json.loads((history.parent / "fleet.json").read_text())["ranking"]
        killed, restarted = [int(name) for name in ranking if int(name) < 4][:2]
        deployment.kill(f"node-{killed}")
        after(rounds=3)
        deployment.stop(f"node-{restarted}")
        deployment.start_node(restarted, config[restarted])
        result = found(deployment, process, out, "stragglers")
    flanp, everyone = result["FLANP"], result["FedAvg"]
    ratio = flanp["seconds"] / everyone["seconds"]
    print(f"everyone {everyone['seconds']:.0f} s, FLANP {flanp['seconds']:.0f} s: {ratio:.2f}")
    print(flanp)
    assert everyone["ended"] == flanp["ended"] == "target reached"
    assert flanp["loss"] <= 1.12
    dropped = {name: n for name, n in flanp["counts"].items() if name != "exchanges"}
    assert sum(dropped.values()) >= 1
    assert flanp["seconds"] < everyone["seconds"]


def _lines(path):
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("solver", ["FedAvg", "FedGATE"])
def test_a_run_outlives_its_superlink(solver, tmp_path):
    """Kill the SuperLink and all nodes in the middle, start anew, resume."""
    rounds = 4
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
        wait_for(lambda: history.exists() and _lines(history) > 2, process)
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
