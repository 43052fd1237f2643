import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp.checks import BadInput
from flanp.config.building import build_part
from flanp.describe import describe
from flanp.speeds import Drift, SlowDowns, Steady, Uniform

CHANGES = [Drift(), Drift(sigma=3.0, period=1.0), SlowDowns(), SlowDowns(0.5, 2.0, 1e9)]


def test_steady_speeds_have_no_course():
    assert Steady().course(5, 1.0, 0) is None
    assert Uniform().change == Steady()
    assert Uniform().course(["a"]) is None


@pytest.mark.parametrize("change", CHANGES)
def test_the_factors_depend_on_the_time_alone(change):
    times = np.random.default_rng(0).uniform(0, 1e4, 50).tolist()
    one = change.course(20, 3.0, 5)
    forth = [one(t).tolist() for t in times]
    other = change.course(20, 3.0, 5)
    assert [other(t).tolist() for t in reversed(times)] == forth[::-1]
    assert one(times[0]).shape == (20,)
    assert change.course(20, 3.0, 6)(times[0]).tolist() != forth[0]


@given(st.sampled_from(CHANGES), st.floats(1e-100, 1e100), st.floats(0, 1e100))
def test_factors_are_positive_numbers_at_any_scale(change, step, t):
    factors = change.course(3, step, 0)(t)
    assert ((factors >= 1e-3) & (factors <= 1e3)).all()


@given(st.floats(0, 3), st.floats(1, 1e6), st.floats(1e-6, 1e6))
def test_drift_has_its_deviation_and_its_period(sigma, period, step):
    factors = Drift(sigma, period).course(4, step, 1)
    logs = np.log([factors(share * period * step) for share in np.linspace(0, 1, 400)[:-1]])
    np.testing.assert_allclose(logs.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(logs.std(axis=0), sigma, atol=1e-6)
    np.testing.assert_allclose(factors(0.0), factors(period * step), rtol=1e-6)


def test_drift_is_slow_and_clients_are_not_in_step():
    factors = Drift().course(100, 1.0, 0)
    assert abs(np.log(factors(501.0) / factors(500.0))).max() < 0.01
    assert 0.3 < np.log(factors(0.0)).std() < 0.7


def test_slow_downs_hit_a_share_of_the_clients_in_each_window():
    factors = SlowDowns(share=0.1, factor=5.0, period=100.0).course(2000, 2.0, 0)
    windows = np.array([factors(200.0 * k + 1.0) for k in range(50)])
    assert {*windows.ravel()} == {1, 5}
    slow = windows == 5
    np.testing.assert_allclose(slow.mean(axis=1), 0.1, atol=0.035)
    np.testing.assert_allclose(slow.mean(axis=0).std(), 0.3 / 50**0.5, rtol=0.1)
    again = (slow[1:] & slow[:-1]).sum() / slow[:-1].sum()  # independent of the window before
    assert again == pytest.approx(0.1, abs=0.01)


def test_slow_downs_hold_for_a_window():
    factors = SlowDowns(share=0.5, period=10.0).course(50, 3.0, 0)
    assert factors(30.0) is factors(59.9)
    assert (factors(30.0) != factors(60.0)).any()
    assert not factors(30.0).flags.writeable


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Drift(sigma=-1), "sigma = -1.0: it must be a number from 0 to 3"),
        (lambda: Drift(period=0), "period = 0.0: it must be a number from 1 to"),
        (lambda: SlowDowns(share=1.5), "share = 1.5: it must be a number from 0 to 1"),
        (lambda: SlowDowns(factor=0.5), "factor = 0.5: it must be a number from 1 to 1,000"),
        (lambda: SlowDowns(factor=float("nan")), "factor = nan"),
        (lambda: Uniform(change="Drift"), "change = 'Drift': it must be a Change, such as Steady"),
        (lambda: Uniform(change=Drift), "change = the class Drift: it must be a Change"),
    ],
)
def test_bad_changes_are_refused(make, words):
    with pytest.raises(BadInput) as error:
        make()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_changes_in_a_configuration(tmp_path):
    table = {"name": "uniform", "change": {"name": "slowdowns", "share": 0.5}}
    speeds = build_part("speeds", table, "speeds", tmp_path)
    assert speeds == Uniform(change=SlowDowns(share=0.5))
    assert describe(speeds)["change"] == {
        "name": "SlowDowns", "share": 0.5, "factor": 5.0, "period": 100.0,
    }  # fmt: skip
    assert build_part("speeds", describe(speeds), "speeds", tmp_path) == speeds
    table["change"] = {"name": "Drift", "sigm": 1.0}
    with pytest.raises(BadInput, match="speeds.change.sigm: unknown key; did you mean 'sigma'"):
        build_part("speeds", table, "speeds", tmp_path)
