"""A killed SuperLink, with real processes, TLS and node keys on loopback."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from fleet.task import loss_over

from scenarios import found, lines, run, wait_for, with_nodes

SOLVERS = ("FedAvg", "FedGATE")
ROUNDS = 3


def start(deployment, kind, **config):
    """Start a run with each solver, at the same time."""
    config = {"nodes": 2, "rounds": ROUNDS, **config}
    return {
        solver: run(
            deployment, "resumed", name=f"{kind}-{solver}", wait=False, solver=solver, **config
        )
        for solver in SOLVERS
    }


def results(deployment, kind, runs):
    return {s: found(deployment, *started, f"{kind}-{s}") for s, started in runs.items()}


def test_runs_outlive_their_superlink(tmp_path):
    """Kill the SuperLink and all nodes in the middle, start anew, resume."""
    with with_nodes(tmp_path / "first", 2) as deployment:
        straight = results(deployment, "straight", start(deployment, "straight"))
        for process, out in start(deployment, "cut").values():
            history = Path(f"{out}.run") / "history.csv"
            wait_for(lambda history=history: history.exists() and lines(history) > 1, process)
        for name in ("superlink", "node-0", "node-1"):
            deployment.kill(name)
    with with_nodes(tmp_path / "second", 2) as deployment:
        for solver in SOLVERS:
            cut = tmp_path / "first" / f"cut-{solver}.json.run"
            assert lines(cut / "history.csv") < 2 + ROUNDS, "the run ended before it was cut"
            cut.rename(tmp_path / "second" / f"again-{solver}.json.run")
        again = results(deployment, "again", start(deployment, "again", resume=True))
        log = deployment.log("again-FedGATE")
    for solver in SOLVERS:
        assert again[solver]["rounds"] == straight[solver]["rounds"] == list(range(ROUNDS + 1))
    np.testing.assert_array_equal(again["FedAvg"]["model"], straight["FedAvg"]["model"])
    assert "tracking restarts" in log
    reached, wanted = again["FedGATE"]["loss"], straight["FedGATE"]["loss"]
    assert reached - wanted < 0.05 * (loss_over(6, np.zeros(10)) - wanted)
