import numpy as np
import pytest

from flanp.planning import plan
from flanp.speeds import Devices, Measured, Uniform
from flanp.speeds.devices import bandwidths

MANY = 200_000
MS = {
    0: 15, 5: 19, 10: 21, 20: 23, 30: 25, 40: 28, 50: 41, 60: 64, 65: 118, 70: 138, 80: 154,
    90: 174, 95: 189, 100: 199,
}  # fmt: skip
KBITS = {
    0: 1017, 5: 1393, 10: 1818, 20: 2255, 30: 3503, 40: 4799, 50: 6075, 60: 8418, 70: 11837,
    80: 19751, 90: 32546, 95: 51663, 99: 100207, 100: 204057,
}  # fmt: skip


@pytest.fixture(scope="module")
def milliseconds():
    """Those of inference: a third of training."""
    return Devices().draw([""] * MANY, np.random.default_rng(0)) * 1000 / 3


def test_the_draws_have_the_quantiles_of_the_measured_phones(milliseconds):
    assert np.percentile(milliseconds, [*MS]) == pytest.approx([*MS.values()], rel=0.03)


def test_two_groups(milliseconds):
    assert (milliseconds < 100).mean() == pytest.approx(0.63, abs=0.01)
    assert ((milliseconds > 64) & (milliseconds < 118)).mean() == pytest.approx(0.05, abs=0.005)


def test_the_links_have_the_quantiles_of_the_measured_ones():
    drawn = bandwidths(np.random.default_rng(0).random(MANY))
    assert np.percentile(drawn, [*KBITS]) == pytest.approx([*KBITS.values()], rel=0.03)


def test_quantiles_are_those_of_the_tables_and_increase():
    u = np.linspace(0, 1, 10_001)
    for function in (Devices().quantile, bandwidths):
        assert (np.diff(function(u)) > 0).all()
        assert function(u.reshape(73, 137)).shape == (73, 137)
    assert (Devices().quantile(np.array([*MS]) / 100) * 1000 / 3).round(9).tolist() == [
        *MS.values()
    ]
    assert bandwidths(np.array([*KBITS]) / 100).round(6).tolist() == [*KBITS.values()]


def test_plans_take_as_long_as_a_step_over_all_samples():
    assert (Devices.per_sample, Devices().per_sample, Uniform.per_sample) == (True, True, False)
    few, many = (plan(Devices(), 100, samples) for samples in (10, 1000))
    assert pytest.approx(100 * few.stages[-1].T) == many.stages[-1].T
    assert pytest.approx(10 * 0.597, rel=0.02) == few.stages[-1].T
    assert plan(Measured((3.0,)), 1, 1000).stages[-1].T == 3
