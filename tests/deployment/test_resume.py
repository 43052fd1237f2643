"""A killed SuperLink, with real processes, TLS and node keys on loopback."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from flanp.flower.local.leftovers import living_in
from fleet.task import loss_over

from scenarios import found, lines, run, wait_for, with_nodes

SOLVERS = ("FedAvg", "FedGATE")
ROUNDS = 3


def start(deployment, kind, solver, **config):
    config = {"nodes": 2, "rounds": ROUNDS, "solver": solver, **config}
    return run(deployment, "resumed", name=f"{kind}-{solver}", wait=False, **config)


def result(deployment, kind, solver, started):
    return found(deployment, *started, f"{kind}-{solver}")


def test_runs_outlive_their_superlink(tmp_path):
    """Kill the SuperLink and all nodes in the middle of two runs, start anew, resume both."""
    with with_nodes(tmp_path / "first", 2) as deployment:
        whole = result(deployment, "whole", "FedAvg", start(deployment, "whole", "FedAvg"))
        for process, out in [start(deployment, "cut", solver) for solver in SOLVERS]:
            history = Path(f"{out}.run") / "history.csv"
            wait_for(lambda history=history: history.exists() and lines(history) > 1, process)
        for name in ("superlink", "node-0", "node-1"):
            deployment.kill(name)
    with with_nodes(tmp_path / "second", 2) as deployment:
        started = {}
        for solver in SOLVERS:
            cut = tmp_path / "first" / f"cut-{solver}.json.run"
            assert lines(cut / "history.csv") < 2 + ROUNDS, "the run ended before it was cut"
            cut.rename(tmp_path / "second" / f"again-{solver}.json.run")
            started[solver] = start(deployment, "again", solver, resume=True)
        again = {s: result(deployment, "again", s, started[s]) for s in SOLVERS}
        log = deployment.log("again-FedGATE")
    assert not living_in(tmp_path / "first" / "flwr")
    for solver in SOLVERS:
        assert again[solver]["rounds"] == whole["rounds"] == list(range(ROUNDS + 1))
    np.testing.assert_array_equal(again["FedAvg"]["model"], whole["model"])
    assert "tracking restarts" in log
    target = whole["loss"] + 0.05 * (loss_over(6, np.zeros(10)) - whole["loss"])
    assert again["FedGATE"]["loss"] < target
