"""The default stage rule: the excess loss against its noise, by successive gradients."""

import math

import pytest

from flanp.measurement import Measurement
from flanp.stage import Stage
from flanp.stopping import LossNoise

MIDDLE, LAST = Stage(1, 3, 4, 16), Stage(2, 3, 16, 16)


def rounds_of(squares, noise=1.0, stage=MIDDLE, rule=LossNoise(), memory=None):  # noqa: B008
    """Return after which of these squared norms the stage ends; None if after none."""
    memory = memory or {}
    for r, g in enumerate(squares):
        met, memory = rule.judged(memory, stage, r, Measurement(4, 400.0, 1.0, g, noise))
        if met:
            return r
    return None


def falling(rate, count=200, start=100.0):
    return [start * math.exp(-2 * rate * r) for r in range(count)]


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5])
def test_at_one_rate_it_is_the_plain_test(rate):
    squares = falling(rate)
    expected = next(r for r, g in enumerate(squares) if g <= 0.3)
    assert rounds_of(squares) == expected


def test_where_the_gradient_falls_more_slowly_less_of_it_is_enough_to_go_on():
    """Half of it lies where the curvature is a tenth: the threshold becomes a tenth."""
    squares = [50 * math.exp(-r) + 50 * math.exp(-0.1 * r) for r in range(400)]
    expected = next(r for r, g in enumerate(squares) if g <= 0.3 * 0.1 / (0.5 * 1.1))
    assert abs(rounds_of(squares) - expected) < 15
    assert rounds_of(squares) > next(r for r, g in enumerate(squares) if g <= 0.3) + 10


def test_a_gradient_that_does_not_fall_ends_a_stage_but_not_the_last():
    assert rounds_of([100.0] * 50) == 10
    assert rounds_of([100.0] * 50, stage=LAST) is None
    assert rounds_of([100.0] * 50, rule=LossNoise(at_most=None)) is None
    assert rounds_of([100.0 + r % 3 for r in range(50)]) == 10


def test_slow_progress_is_progress():
    """It loses a tenth in eight rounds: the stage goes on to its accuracy."""
    squares = falling(0.5 * 0.11 / 8, count=2000)
    assert squares[rounds_of(squares)] <= 0.3


def test_each_stage_begins_anew():
    left = {"g_1": 1e-9, "g_2": 1e-3, "g_3": 1.0, "r_1": 50.0, "lowest": 1e-9, "since": 0}
    assert rounds_of(falling(0.2), memory=left) == rounds_of(falling(0.2))


def test_nothing_to_learn_ends_at_once():
    assert rounds_of([0.0, 0.0]) == 0
    assert rounds_of([1e-3] * 3) == 1


def test_one_sample_has_no_noise_to_tell():
    assert rounds_of(falling(0.5), noise=math.inf) == 1
    assert rounds_of(falling(0.5), noise=math.inf, stage=LAST) is None
