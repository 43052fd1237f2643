"""What the strategy costs beyond Flower itself; to be run alone, since it measures time."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from scenarios import run, with_nodes


def test_our_strategy_costs_little_beyond_flowers_own(tmp_path):
    with with_nodes(tmp_path, 3) as deployment:
        seconds = run(deployment, "overhead", nodes=3, rounds=4)
    ours, theirs = (float(np.median(seconds[name])) for name in ("flanp", "flower"))
    print(f"seconds per round: ours {ours:.2f}, Flower's {theirs:.2f}: {ours / theirs - 1:+.0%}")
    assert ours <= 1.1 * theirs
