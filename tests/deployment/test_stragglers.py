"""Slow, killed and restarted nodes, with real processes, TLS and node keys on loopback."""

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from scenarios import found, lines, node_config, run, wait_for, with_nodes

SLOW = (2.0, 2.0, 2.0, 10.0)


def test_flanp_outlives_killed_and_restarted_nodes_and_beats_everyone(tmp_path, record_property):
    """Four nodes, one of them slow; one is restarted, one killed in the middle of a stage."""
    with with_nodes(tmp_path, 4, slow=SLOW) as deployment:
        process, out = run(deployment, "stragglers", wait=False, nodes=4)
        history = Path(f"{out}.run.FLANP") / "history.csv"

        def after(rounds):
            wait_for(lambda: history.exists() and lines(history) > 1 + rounds, process)

        after(rounds=1)
        ranking = json.loads((history.parent / "fleet.json").read_text())["ranking"]
        killed, restarted = [int(name) for name in ranking[:2]]
        deployment.stop(f"node-{restarted}")
        deployment.start_node(restarted, node_config(restarted, 4, slow=SLOW))
        after(rounds=3)
        deployment.kill(f"node-{killed}")
        result = found(deployment, process, out, "stragglers")
    flanp, everyone = result["FLANP"], result["FedAvg"]
    ratio = flanp["seconds"] / everyone["seconds"]
    times = f"{flanp['seconds']:.0f} s / {everyone['seconds']:.0f} s = {ratio:.2f}"
    record_property("to the target, FLANP / everyone", times)
    record_property("of FLANP's replies", flanp["counts"])
    assert everyone["ended"] == flanp["ended"] == "target reached"
    assert flanp["loss"] <= 1.2
    dropped = {name: n for name, n in flanp["counts"].items() if name != "exchanges"}
    assert sum(dropped.values()) >= 1
    assert ratio < 1
