import math

import numpy as np
import pytest

from flanp.checks import BadInput
from flanp.data import Digits, Synthetic
from flanp.measurement import Look, Measurement, noise
from flanp.problems import LinearRegression, LogisticRegression
from flanp.stage import Stage
from flanp.stopping import (
    Authors,
    FixedRounds,
    GradientNoise,
    Halving,
    LossNoise,
    Never,
    StatisticalAccuracy,
)

FIRST, SECOND, LAST = (Stage(k, 3, n, 4) for k, n in ((0, 1), (1, 2), (2, 4)))


def seen(grad_norm_sq, samples=100.0, noise=1.0):
    return Measurement(2, samples, 0.5, grad_norm_sq, noise)


def test_statistical_accuracy_is_the_papers_threshold():
    rule = StatisticalAccuracy(mu=0.1, c=5.0)
    threshold = 2 * 0.1 * 5.0 / 100
    assert rule.met({}, FIRST, 0, seen(threshold))[0]
    assert not rule.met({}, FIRST, 0, seen(threshold * 1.0001))[0]


def test_statistical_accuracy_takes_the_problems_constants():
    data = Synthetic(clients=5, samples=200, dim=4).load()
    rule = StatisticalAccuracy().complete(LinearRegression(), data)
    constants = LinearRegression().constants(data)
    assert (rule.mu, rule.c) == (constants.mu, constants.c)
    with pytest.raises(BadInput, match="use GradientNoise"):
        StatisticalAccuracy().complete(LogisticRegression(), Digits(clients=3).load())
    known = StatisticalAccuracy(c=2.0).complete(
        LogisticRegression(l2=0.5), Digits(clients=3).load()
    )
    assert known == StatisticalAccuracy(mu=0.5, c=2.0)


def test_halving():
    rule = Halving(fraction=0.1)
    over, memory = rule.met({}, FIRST, 0, seen(8.0))
    assert not over
    assert rule.met(memory, FIRST, 1, seen(0.8))[0]
    assert not rule.met(memory, SECOND, 1, seen(0.41))[0]
    assert rule.met(memory, SECOND, 1, seen(0.4))[0]
    assert rule.met(memory, LAST, 1, seen(0.2))[0]
    assert Halving(threshold=3.0).met({}, FIRST, 0, seen(3.0))[0]


def test_gradient_noise():
    rule = GradientNoise(theta=0.5, at_most=4)
    assert rule.met({}, SECOND, 1, seen(0.5, noise=1.0))[0]
    assert not rule.met({}, SECOND, 1, seen(0.51, noise=1.0))[0]
    assert rule.met({}, SECOND, 4, seen(9.0))[0]
    assert not rule.met({}, LAST, 400, seen(9.0))[0]
    assert not GradientNoise(theta=0.5, at_most=None).met({}, FIRST, 400, seen(9.0))[0]


def test_fixed_rounds_and_never():
    assert not FixedRounds(3).met({}, FIRST, 2, None)[0]
    assert FixedRounds(3).met({}, FIRST, 3, None)[0]
    assert not Never().met({}, LAST, 10**6, None)[0]


def test_the_rule_of_the_authors_script():
    rule = Authors()
    assert rule.looks_at(FIRST, 20) is Look.NOTHING
    assert rule.looks_at(FIRST, 21) is rule.looks_at(SECOND, 0) is Look.WHOLE
    assert not rule.met({}, FIRST, 20, None)[0]
    over, memory = rule.met({}, FIRST, 21, seen(16.0))
    assert over
    assert memory == {"first": 4.0}
    assert not rule.met(memory, SECOND, 0, seen(4.1))[0]
    assert rule.met(memory, SECOND, 0, seen(4.0))[0]  # norm 2 = 4 / 2
    assert rule.met(memory, LAST, 0, seen(1.0))[0]  # norm 1 = 4 / 4
    assert not rule.met(memory, LAST, 19, seen(9.0))[0]
    assert rule.met(memory, LAST, 20, seen(9.0))[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: StatisticalAccuracy(mu=0.0, c=1.0),
        lambda: StatisticalAccuracy(mu=1.0, c=-1.0),
        lambda: Halving(threshold=0.0),
        lambda: Halving(fraction=1.0),
        lambda: GradientNoise(theta=0.0),
        lambda: GradientNoise(at_most=0),
        lambda: FixedRounds(0),
        lambda: Authors(first_rounds=0),
        lambda: Authors(at_most=0),
    ],
)
def test_bad_rules_are_refused(make):
    with pytest.raises(BadInput):
        make()


@pytest.mark.parametrize("n", [2, 5, 40])
def test_noise_is_the_squared_standard_error_of_the_mean_gradient(n):
    rng = np.random.default_rng(n)
    g = rng.standard_normal((n, 3))
    mean = g.mean(axis=0)
    by_hand = ((g - mean) ** 2).sum() / (n * (n - 1))
    got = noise(n, 10 * n, mean @ mean, (g**2).sum(axis=1).mean(), within=0.0)
    assert got == pytest.approx(by_hand)


def test_noise_predicts_the_error_of_the_gradient_with_unequal_clients():
    """Monte Carlo: its mean is the mean of ||g - true gradient||^2, here with gradient 0."""
    rng = np.random.default_rng(0)
    s = np.array([1, 2, 5, 30, 62])
    S = s.sum()
    errors, predictions = [], []
    for _ in range(20_000):
        g_i = rng.standard_normal((len(s), 2)) / np.sqrt(s)[:, None]
        g = s @ g_i / S
        errors.append(g @ g)
        predictions.append(noise(len(s), S, g @ g, s @ (g_i**2).sum(axis=1) / S, 0.0))
    assert np.mean(predictions) == pytest.approx(np.mean(errors), rel=0.03)


def test_noise_of_a_single_client_comes_from_its_halves():
    assert noise(1, 10, grad_norm_sq=1.0, mean_sq=1.0, within=0.7) == 0.7
    assert noise(1, 1, grad_norm_sq=1.0, mean_sq=1.0, within=0.0) == math.inf


def judged(rule, stage, norms, noise=1.0):
    """Return in which rounds a stage with these squared norms of the gradient would end."""
    memory, ends = {}, []
    for r, norm in enumerate(norms):
        met, memory = rule.met(memory, stage, r, seen(norm, noise=noise))
        ends += [r] if met else []
    return ends


def test_the_excess_loss_is_weighed_by_how_fast_the_gradient_falls():
    steady = [100.0 * 0.1**r for r in range(6)]
    assert judged(LossNoise(theta=0.3), LAST, steady) == [3, 4, 5]  # 0.1 <= 0.3
    slower = [100.0, 1.0, 0.5, 0.4, 0.35, 0.3, 0.28]  # what is left lies where curvature is low
    assert judged(LossNoise(theta=0.3), LAST, slower) == []
    assert judged(GradientNoise(theta=0.3), LAST, slower) == [5, 6]


def test_a_stage_that_gets_nowhere_ends_unless_it_is_the_last():
    flat, falling = [9.0] * 8, [9.0 * 0.85**r for r in range(8)]
    assert judged(LossNoise(at_most=4), SECOND, flat)[0] == 4
    assert judged(LossNoise(at_most=4), LAST, flat) == []
    assert judged(LossNoise(at_most=4), SECOND, falling) == []
    assert judged(LossNoise(at_most=None), SECOND, flat) == []


def test_one_sample_has_no_noise_to_tell():
    norms = [9.0, 1.0, 0.1]
    assert judged(LossNoise(), LAST, norms, noise=math.inf) == []
    assert judged(LossNoise(), SECOND, norms, noise=math.inf) == [1, 2]
    assert judged(LossNoise(), LAST, [0.0]) == [0]
