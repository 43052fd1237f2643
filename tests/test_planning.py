"""What a plan says: rounds, times, verdicts."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flanp.comparison import compare
from flanp.data import Synthetic
from flanp.method import Method
from flanp.participation import Everyone, Growing
from flanp.planning import expected_rounds, plan
from flanp.problems import LinearRegression
from flanp.solvers import FedGATE
from flanp.speeds import Exponential, Homogeneous, LogNormal, Measured, Uniform
from flanp.stopping import Never, StatisticalAccuracy
from flanp.work import Equal


@pytest.mark.parametrize("speeds", [Exponential(), Uniform()])
def test_the_plan_predicts_the_simulator(speeds):
    """Figure 7's problem with N = 32: predicted and measured ratio within a quarter."""
    data, gate, work = Synthetic(clients=32, samples=100), FedGATE(eta=0.05), Equal(tau=10)
    methods = {
        "FLANP": Method(gate, Growing(1), StatisticalAccuracy(), work),
        "FedGATE": Method(gate, Everyone(), Never(), work),
    }
    measured = compare(
        LinearRegression(), data, methods, speeds, seeds=8, target="statistical accuracy",
        progress=False,
    ).speed_up("FLANP", "FedGATE")  # fmt: skip
    predicted = plan(speeds, clients=32, samples=100, kappa=20, start=0.32)
    assert predicted.speed_up == pytest.approx(measured.mean, rel=0.25)


def test_more_samples_or_clients_make_it_pay_more():
    ups = [plan(Exponential(), 50, s).speed_up for s in (20, 200, 2000)]
    assert ups == sorted(ups)
    ups = [plan(Exponential(), N, 100).speed_up for N in (10, 100, 1000)]
    assert ups == sorted(ups)


def test_stage_times_add_up_and_scale_with_tau():
    once, ten = (plan(Uniform(), 37, 100, n0=5, growth=3, tau=tau) for tau in (1, 10))
    assert [stage.n for stage in once.stages] == [5, 15, 37]
    assert ten.time == pytest.approx(10 * once.time)
    assert ten.speed_up == once.speed_up
    for stage in once.stages:
        assert stage.time == pytest.approx(stage.rounds * stage.T)
    assert once.low <= once.speed_up <= once.high


def test_the_best_choice_is_at_least_as_good():
    for speeds in (Exponential(), Uniform(), LogNormal()):
        result = plan(speeds, 40, 100)
        assert result.best_speed_up >= result.speed_up


def test_verdicts():
    assert plan(Exponential(), 100, 100).verdict().startswith("worth it: ")
    assert plan(Homogeneous(), 3, 2).verdict().startswith("not worth it: ")
    poor = plan(Measured((1.0, 1.0, 1.0, 50.0)), 4, 100, n0=4)
    assert "not worth it with n0 = 4" in poor.verdict()


def test_one_client_gains_nothing():
    assert plan(Exponential(), 1, 100).speed_up == 1


def test_rounds_are_those_of_the_recursion():
    """Check the closed form against the recursion, round by round."""
    sizes, s, kappa, start = [2, 4, 7], 30.0, 10.0, 1.0
    lam = np.geomspace(1 / kappa, 1, 20)
    a = np.full(20, 2 * start * 10 / lam.sum())
    counted, m = [], None
    for n in sizes:
        a = a if m is None else a + (1 / (m * s) - 1 / (n * s)) / lam
        r = 0
        while (lam**2 * a).sum() > 2 / kappa * 10 / (n * s):
            a, r = a * np.exp(-lam), r + 1
        counted.append(r)
        m = n
    assert expected_rounds(sizes, s, kappa, start).tolist() == counted


def rounds_in_a_table(sizes, s, kappa, start, step, modes=20):
    """Return the rounds as the first version had them: from the gradients after all rounds."""
    curvature = np.geomspace(1 / kappa, 1, modes)
    c = modes / 2
    a = np.full(modes, 2 * start * c / curvature.sum())
    decay = np.exp(-2 * step * curvature)
    rounds = []
    for m, n in zip([math.inf, *sizes[:-1]], sizes, strict=True):
        a = a + (1 / (m * s) - 1 / (n * s)) / curvature if m < n else a
        limit = 2 / kappa * c / (n * s)
        slowest = curvature[0] ** 2 * a.sum() + (curvature**2 * a).sum()
        most = max(0, math.ceil(math.log(slowest / limit) / (2 * step * curvature[0])) + 1)
        gradients = (curvature**2 * a) @ decay[:, None] ** np.arange(most + 1)
        assume(np.abs(gradients / limit - 1).min() > 1e-9)  # there rounding decides
        rounds.append(int(np.argmax(gradients <= limit)))
        a = a * decay ** rounds[-1]
    return rounds


@given(
    N=st.integers(1, 1000),
    n0=st.integers(1, 20),
    growth=st.floats(1.1, 20),
    s=st.floats(1, 1e5),
    kappa=st.floats(1, 300),
    start=st.floats(1e-6, 1e6),
    step=st.floats(0.1, 10),
)
def test_rounds_are_those_of_a_table_of_all_rounds(N, n0, growth, s, kappa, start, step):
    sizes = Growing(min(n0, N), growth).stages(N)
    expected = rounds_in_a_table(sizes, s, kappa, start, step)
    assert expected_rounds(sizes, s, kappa, start, step).tolist() == expected


@given(
    n=st.integers(1, 10**9),
    s=st.floats(1, 1e12),
    kappa=st.floats(1, 1e12),
    start=st.floats(1e-12, 1e12),
    step=st.floats(1e-9, 1e9),
)
def test_no_fewer_rounds_would_do(n, s, kappa, start, step):
    lam = np.geomspace(1 / kappa, 1, 20)
    limit = 20 / kappa / (n * s)

    def gradient(r):
        return math.fsum(lam**2 * 20 * start / lam.sum() * np.exp(-2 * step * lam * r))

    (r,) = expected_rounds([n], s, kappa, start, step).tolist()
    assert isinstance(r, int)
    assert gradient(r) <= limit * (1 + 2e-12)
    if r:
        assert gradient(min(r - 1, math.nextafter(r, 0))) > limit * (1 - 1e-12)


@given(n=st.integers(1, 10**6), s=st.floats(1, 1e6), r=st.integers(0, 60), step=st.floats(0.01, 1))
def test_a_gradient_just_at_the_limit_is_there(n, s, r, step):
    """With kappa = 1 it is start exp(-2 step r) against 1 / (n s): equal but for rounding."""
    start = math.exp(2 * step * r) / (n * s)
    assert expected_rounds([n], s, 1, start, step).tolist() == [r]


def test_rounds_of_a_plan_are_those_of_its_stages_alone():
    result = plan(Exponential(), 12345, 77, kappa=300, n0=3, growth=1.1, start=5)
    sizes = [stage.n for stage in result.stages]
    assert sizes == Growing(3, 1.1).stages(12345)
    rounds = expected_rounds(sizes, 77, 300, 5).tolist()
    assert [stage.rounds for stage in result.stages] == rounds
    assert result.full_rounds == expected_rounds([12345], 77, 300, 5)[0]


def test_a_start_that_is_good_enough_needs_nothing():
    result = plan(Exponential(), 8, 1, kappa=1, n0=8, start=1e-12)
    assert (result.full_rounds, result.time, result.speed_up) == (0, 0, 1)
    assert "the start is within" in result.verdict()


@pytest.mark.parametrize("N", [1, 2, 50, 10**9])
def test_order_statistics_of_exponential_speeds(N):
    """The n-th smallest of N has mean 1/N + 1/(N-1) + ... + 1/(N-n+1)."""
    result = plan(Exponential(), N, 100)
    last = result.stages[-1]
    mean = math.log(N) + np.euler_gamma if N > 50 else sum(1 / i for i in range(1, N + 1))
    assert pytest.approx(mean, abs=5 * 1.3 / result.draws**0.5) == last.T
    first = result.stages[0]
    assert pytest.approx(1 / N, abs=5 / N / result.draws**0.5) == first.T
    assert all(a.T < b.T for a, b in zip(result.stages, result.stages[1:], strict=False))
