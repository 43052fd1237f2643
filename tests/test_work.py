import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp.checks import BadInput
from flanp.work import Balanced, Equal, Partial, SpeedMatched

speeds = st.lists(st.floats(0.001, 1000), min_size=1, max_size=40).map(np.array)


@given(speeds, st.integers(1, 30), st.integers(1, 20))
def test_speed_matched_work_never_delays_a_round(T, tau, limit):
    steps = SpeedMatched(tau=tau, limit=limit).steps(T, np.full(len(T), 10.0))
    assert (steps >= tau).all()
    assert (steps <= limit * tau).all()
    assert (steps % tau == 0).all()
    assert (steps * T).max() <= tau * T.max() * (1 + 1e-6)
    one_more = (steps + tau) * T
    could_do_more = one_more < tau * T.max() * (1 - 1e-6)
    assert not (could_do_more & (steps < limit * tau)).any()


@given(speeds, st.integers(1, 30), st.floats(0, 1))
def test_partial_work_is_done_by_the_quantile_and_its_slower_ones_stop_there(T, tau, quantile):
    steps = Partial(tau=tau, quantile=quantile).steps(T, np.full(len(T), 10.0))
    assert (steps >= 1).all()
    assert (steps <= tau).all()
    time = np.quantile(tau * T, quantile, method="lower")
    assert (steps[tau * T <= time] == tau).all()
    assert (steps * T <= np.maximum(time, T) * (1 + 1e-6)).all()
    assert not (((steps + 1) * T < time * (1 - 1e-6)) & (steps < tau)).any()


@given(
    tau=st.integers(1, 20),
    ratio=st.floats(0, 1e4),
    roots=st.floats(0.5, 4),
    most=st.integers(1, 99),
)
def test_balanced_work_is_an_odd_multiple_next_to_the_root(tau, ratio, roots, most):
    T, s = np.array([2.0, 5.0, 9.0]), np.full(3, 10.0)
    steps = Balanced(tau=tau, roots=roots, most=most).steps(T, s, np.full(3, 5.0 * ratio))
    assert (steps == steps[0]).all()
    times = steps[0] // tau
    assert steps[0] == tau * times
    assert times == most or (times % 2 == 1 and abs(times - roots * ratio**0.5) <= 2 + 1e-9)
    assert times <= most


def test_balanced_work_does_tau_steps_where_exchanges_are_free_or_nothing_is_known():
    T, s = np.ones(3), np.full(3, 10.0)
    assert Balanced(tau=4).steps(T, s, np.zeros(3)).tolist() == [4, 4, 4]
    assert Balanced(tau=4).steps(np.full(3, np.inf), s, np.full(3, np.inf)).tolist() == [4, 4, 4]


def test_the_authors_rule_for_fednova():
    """tau_i = floor(T_max / T_i) epochs."""
    T = np.array([50.0, 120.0, 260.0, 500.0])
    steps = SpeedMatched(epochs=1, batch=100, limit=10).steps(T, np.full(4, 3000.0))
    assert steps.tolist() == [300, 120, 30, 30]


def test_quotients_that_floating_point_makes_too_small():
    assert SpeedMatched(tau=1).steps(np.array([0.1, 0.3]), np.ones(2)).tolist() == [3, 1]


def test_epochs_follow_each_clients_samples():
    s = np.array([100.0, 55.0, 3.0])
    assert Equal(epochs=1, batch=10).steps(np.ones(3), s).tolist() == [10, 6, 1]
    assert Equal(epochs=0.5, batch=10).steps(np.ones(3), s).tolist() == [5, 3, 1]
    assert Equal(epochs=3).steps(np.ones(3), s).tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    "bad",
    [{}, {"tau": 3, "epochs": 1}, {"tau": 0}, {"epochs": 0}, {"tau": 1, "batch": 0}],
)
def test_bad_work_is_refused(bad):
    with pytest.raises(BadInput):
        Equal(**bad)


def test_bad_limit_is_refused():
    with pytest.raises(BadInput, match="limit"):
        SpeedMatched(tau=1, limit=0)
