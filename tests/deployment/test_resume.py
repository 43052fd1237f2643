"""A killed SuperLink, with real processes, TLS and node keys on loopback."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from flanp.flower.deployment import Deployment
from fleet.task import loss_over

from scenarios import lines, run, wait_for


@pytest.mark.parametrize("solver", ["FedAvg", "FedGATE"])
def test_a_run_outlives_its_superlink(solver, tmp_path):
    """Kill the SuperLink and all nodes in the middle, start anew, resume."""
    rounds = 3
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
        wait_for(lambda: history.exists() and lines(history) > 1, process)
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
