"""What a plan says of memory, of exchanges, and of what nobody can undercut."""

import numpy as np
import pytest

from flanp import Method, compare
from flanp.data import Synthetic
from flanp.forecast import best_m, memory_time
from flanp.network import Exchange, Lines, Phones
from flanp.participation import Nimble
from flanp.planning import plan
from flanp.problems import LinearRegression
from flanp.solvers import Memory
from flanp.speeds import Devices, Exponential, Homogeneous, Measured, Uniform
from flanp.work import Equal


@pytest.mark.parametrize(("speeds", "k"), [(Exponential(), 5), (Uniform(), 6)])
def test_the_plan_predicts_memory(speeds, k):
    """The league's problem, at a step size near the longest: within a quarter."""
    method = Method(Memory(1.41), Nimble(), work=Equal(tau=1))
    times = compare(
        LinearRegression(), Synthetic(), {"memory": method}, speeds, seeds=6,
        target="statistical accuracy", progress=False,
    ).times("memory")  # fmt: skip
    predicted = plan(speeds, clients=100, samples=100, kappa=20, start=0.3, step=1.41)
    assert predicted.memory_time == pytest.approx(np.exp(np.log(times).mean()), rel=0.25)
    assert predicted.memory_k == k  # least (50 + 4.5 k)(1 + 3 / k) with uniform speeds


def test_it_takes_no_less_than_its_rounds_nor_than_reports_from_most():
    steps = np.array([1.0] * 50 + [1000.0] * 50)
    assert memory_time(1.0, steps, 1e4, 20.0, 0.3, 1.0) > 1000.0
    assert memory_time(1.0, np.ones(9), 1e4, 20.0, 0.3, 1.0) < 100.0
    near, far = (memory_time(1.0, steps, 1e4, 20.0, start, 1.0) for start in (0.1, 10.0))
    assert near <= far


def test_exchanges_count_in_every_round():
    free = plan(Uniform(), 40, 100, tau=1)
    dear = plan(Uniform(), 40, 100, tau=1, network=Lines(1e12, 1e12, latency=150.0))
    for a, b in zip(free.stages, dear.stages, strict=True):
        assert b.rounds == a.rounds
        assert b.time == pytest.approx(a.time + 300.0 * a.rounds)
    assert dear.bound == pytest.approx(free.bound + 300.0)
    assert dear.speed_up < free.speed_up


def test_where_exchanges_cost_much_rounds_have_more_steps():
    assert plan(Uniform(), 40, 100).tau == 1
    dear = plan(Uniform(), 40, 100, network=Exchange(10.0))
    assert dear.tau > 3
    assert dear.full_rounds < plan(Uniform(), 40, 100).full_rounds
    bytes_count = plan(Homogeneous(), 4, 100, network=Lines(8.0, 8.0, 0.0), megabytes=1e-3)
    assert bytes_count.bound == pytest.approx(
        1.0 + 2.0
    )  # a kilobyte each way at a kilobyte a second


def test_phones_are_ranked_by_what_a_round_takes_them():
    result = plan(Devices(), 50, 100, network=Phones(), megabytes=5.0)
    times = [stage.T for stage in result.stages]
    assert times == sorted(times)
    assert result.bound > plan(Devices(), 50, 100).bound


def test_the_bound_is_that_of_one_client_where_links_differ():
    """Not the slowest step of one and the slowest exchange of another."""
    speeds, links, weight = Exponential(rate=1 / 60), Phones(), 5_000_000
    bound = plan(speeds, 100, 100, network=links, megabytes=5.0).bound
    rng, longest, ids = np.random.default_rng(0), [], [str(i) for i in range(100)]
    for _ in range(400):
        exchange = sum(links.links(ids, rng, 1.0).seconds(0.0, weight, weight))
        longest.append((rng.exponential(60, 100) + exchange).max())
    assert bound == pytest.approx(np.mean(longest), rel=0.05)


@pytest.mark.parametrize("N", [500, 5000, 100_000])
def test_the_median_step_is_that_of_all_clients(N):
    result = plan(Exponential(), N, 100, tau=1, network=Exchange(10.0))
    free = plan(Exponential(), N, 100, tau=1)
    assert result.bound - free.bound == pytest.approx(10 * np.log(2), rel=0.02)


def test_the_bound_is_the_slowest_clients_step():
    assert plan(Measured((1.0, 2.0, 7.0)), 3, 100).bound == 7.0


def test_the_best_m_grows_with_the_accuracy_that_is_asked_for():
    T = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    found = [best_m(T, noise) for noise in (0.01, 1.0, 10.0, 1e4)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, 5)

    def time(m, noise):
        return (1 + noise / m) / np.mean(1 / T[:m])

    for noise in (0.1, 1.0, 3.0, 30.0):
        assert best_m(T[::-1], noise) == 1 + np.argmin([time(m, noise) for m in range(1, 6)])


def test_words_of_the_verdict():
    words = plan(Homogeneous(), 10, 100).verdict()
    assert "a memory of absent clients (method = auto) is not worth it" in words
    assert "quickest: 5 clients and a memory" in plan(Exponential(), 100, 100).verdict()
