"""Algorithm 1: stages, warm start, growth, the end, the clock; and the invariants of runs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flanp
from flanp.clock import Clock
from flanp.participation import Everyone, Growing
from flanp.solvers import FedAvg, FedGATE, FedNova, Scaffold
from flanp.speeds import Exponential, Measured
from flanp.stopping import FixedRounds, StatisticalAccuracy
from flanp.work import Equal, SpeedMatched

from small import history_bytes, linear_clients, models, one_round, run, simulation, speeds

SIZES = [(1, 1, 2), (2, 1, 2), (7, 2, 1.5), (7, 3, 3), (37, 5, 2)]


@pytest.mark.parametrize(("N", "n0", "growth"), SIZES)
@pytest.mark.parametrize("seed", [0, 1])
def test_stages_are_the_n_fastest_and_end_with_everyone(N, n0, growth, seed):
    _, trace = run(N=N, participation=Growing(n0, growth), stop=FixedRounds(2), seed=seed)
    T = speeds(N, seed)
    sizes = Growing(n0, growth).stages(N)
    assert [len(state.active) for state, _ in trace] == [n for n in sizes for _ in range(2)]
    for state, _ in trace:
        n = len(state.active)
        assert sorted(T[state.active]) == sorted(T)[:n]
    assert len(trace[-1][0].active) == N


@pytest.mark.parametrize(("N", "n0", "growth"), SIZES)
@pytest.mark.parametrize("work", [Equal(tau=4), SpeedMatched(tau=3, limit=5)])
def test_virtual_time_is_the_sum_over_stages(N, n0, growth, work):
    """sum over stages of (rounds x tau x T of the slowest participant)."""
    _, trace = run(N=N, participation=Growing(n0, growth), stop=FixedRounds(3), work=work)
    T = np.sort(speeds(N))
    expected = sum(3 * work.tau * T[n - 1] for n in Growing(n0, growth).stages(N))
    assert trace[-1][0].clock.time == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("N", [1, 2, 7, 37])
@pytest.mark.parametrize(
    "solver", [FedAvg(eta=0.05), FedGATE(eta=0.05), FedNova(eta=0.05), Scaffold(eta=0.05)]
)
def test_flanp_from_all_clients_is_the_bare_solver(N, solver):
    _, with_flanp = run(N=N, solver=solver, participation=Growing(n0=N))
    _, bare = run(N=N, solver=solver, participation=Everyone())
    np.testing.assert_array_equal(models(with_flanp), models(bare))
    assert [s.clock.time for s, _ in with_flanp] == [s.clock.time for s, _ in bare]


def test_each_stage_starts_from_the_model_reached():
    """A run cut at a transition and a run of the next stage alone from there give the same."""
    engine, trace = run(N=7, participation=Growing(3, 3), stop=FixedRounds(4))
    first_of_second = next(j for j, (state, _) in enumerate(trace) if state.k == 1)
    warm = trace[first_of_second - 1][1]["w"]
    model, _ = engine.load({"w": warm, "clients.own": np.zeros((7, 3))}, Clock())
    state, arrays = trace[first_of_second]
    after = one_round(engine, model, state.rounds - 1, state.active, np.full(7, 4), 0.05, 1.0)
    np.testing.assert_allclose(np.asarray(after.w), arrays["w"], atol=1e-12)


def test_every_stage_ends_at_its_own_accuracy():
    mu, c = 0.5, 0.4
    rule = StatisticalAccuracy(mu, c)
    engine, trace = run(N=37, participation=Growing(2), stop=rule, rounds=1000)
    data = linear_clients(37)
    for (state, arrays), following in zip(trace, [*trace[1:], None], strict=True):
        w, active = arrays["w"], state.active
        gradient = np.mean(
            [x.T @ (x @ w - y) / len(y) for x, y in (data[i] for i in active)], axis=0
        )
        reached = gradient @ gradient <= 2 * mu * c / (20 * len(active))
        stage_over = following is None or following[0].k > state.k
        assert reached == stage_over
    assert len(trace[-1][0].active) == 37


def test_a_stage_whose_start_is_accurate_takes_no_round():
    _, trace = run(N=7, participation=Growing(1), stop=StatisticalAccuracy(mu=1e9, c=1e9))
    assert trace == []


@pytest.mark.parametrize("seed", [0, 3])
def test_same_seed_same_bytes(tmp_path, seed):
    a = history_bytes(simulation(seed=seed), tmp_path / "a")
    assert a == history_bytes(simulation(seed=seed), tmp_path / "b")
    assert a != history_bytes(simulation(seed=seed + 1), tmp_path / "c")


@pytest.mark.parametrize("order", [[6, 5, 4, 3, 2, 1, 0], [3, 0, 6, 1, 5, 2, 4]])
@pytest.mark.parametrize("speeds", [Exponential(), Measured((2.0, 1.0, 1.0, 2.0, 1.0, 3.0, 2.0))])
def test_the_order_of_clients_does_not_matter(tmp_path, order, speeds):
    a = history_bytes(simulation(speeds=speeds), tmp_path / "a")
    assert a == history_bytes(simulation(speeds=speeds, order=order), tmp_path / "b")


def test_ties_in_speed_are_broken_by_id():
    _, trace = run(N=7, T=[2, 1, 1, 2, 1, 3, 2], participation=Growing(2, 1.5), stop=FixedRounds(1))
    assert trace[0][0].active.tolist() == [1, 2]
    assert trace[1][0].active.tolist() == [1, 2, 4]
    assert trace[2][0].active.tolist() == [1, 2, 4, 0]


def test_jitter_redraws_speeds_around_the_mean():
    run_ = simulation(
        speeds=Measured((1.0,) * 7, jitter=0.3), stop=FixedRounds(50), participation=Everyone()
    )
    rows = list(run_)
    seconds = np.diff([row.time for row in rows])
    assert len(set(seconds)) == 50
    assert 4 < seconds.mean() < 8  # tau = 4, and the slowest of seven is above the mean


@given(
    N=st.integers(1, 3000),
    n0=st.integers(1, 3000),
    growth=st.floats(1.01, 10, allow_nan=False),
)
@settings(max_examples=200)
def test_growth_is_strict_and_ends_at_N(N, n0, growth):
    sizes = Growing(n0, growth).stages(N)
    if n0 > N:
        with pytest.raises(flanp.BadInput, match="at most the number of clients"):
            Growing(n0, growth).check(N)
    assert sizes[0] == min(n0, N)
    assert sizes[-1] == N
    for a, b in zip(sizes, sizes[1:], strict=False):
        assert a < b <= max(a + 1, growth * a)
