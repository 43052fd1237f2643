"""What the strategy costs beyond Flower itself; to be run alone, since it measures time."""

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from scenarios import run, with_nodes


def test_our_strategy_costs_little_beyond_flowers_own(tmp_path, record_property):
    with with_nodes(tmp_path, 3) as deployment:
        seconds = run(deployment, "overhead", nodes=3, rounds=3)
    for name, rounds in seconds.items():
        record_property(f"{name}, seconds per round", ", ".join(f"{s:.2f}" for s in rounds))
    # The least is what the strategy needs; the rest is what else the machine does.
    ratio = min(seconds["flanp"]) / min(seconds["flower"])
    record_property("flanp's least / flower's least", f"{ratio:.2f}")
    assert ratio <= 1.1
