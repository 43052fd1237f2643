"""Tuning: each method's own best knobs, on other seeds."""

import math

import pytest

from flanp import Method, compare, data, prepare, problems
from flanp.checks import BadInput
from flanp.participation import Everyone, Growing
from flanp.solvers import FedBuff, FedGATE
from flanp.trying import attempt, tune_methods
from flanp.tuning import GRIDS, Attempt, knobs_of, tune, with_knobs
from flanp.work import Equal

START = Method(FedGATE(eta=0.25), Growing(n0=4), work=Equal(tau=5))
ETAS = [2.0**k for k in range(-8, 4)]


def valley(eta, tau):
    """A time that is least at eta = 1, tau = 2; it diverges where eta tau is above 4."""

    def run(method, seed, limit):
        e, t = method.solver.eta, method.work.tau
        if e * t > 4:
            return Attempt(math.nan)
        time = seed + math.exp(abs(math.log(e / eta)) + abs(math.log(t / tau)))
        return Attempt(time) if time <= limit else Attempt(math.inf, time / limit)

    return run


def test_the_least_time_is_found_from_afar():
    found = tune(valley(1.0, 2), START, {"solver.eta": ETAS, "work.tau": [1, 2, 5, 10]}, [1, 2])
    assert found.knobs == {"solver.eta": 1.0, "work.tau": 2}
    assert found.method.solver.eta == 1.0
    assert found.method.work.tau == 2
    assert found.time == pytest.approx(math.sqrt(2 * 3))
    assert found.runs < 2 * len(ETAS) * 4


def test_a_hill_between_two_valleys_does_not_end_the_search():
    """tau = 2 is worse than 5, and only tau = 1 reaches the target on both seeds."""

    def run(method, seed, limit):
        tau = method.work.tau
        if tau == 1:
            return Attempt(10.0)
        if tau == 5 and seed == 1:
            return Attempt(9.0)
        return Attempt(math.inf, {1: 1.0, 2: 9.0, 5: 3.0, 10: 20.0}[tau])

    knobs = {"solver.eta": ETAS, "work.tau": [1, 2, 5, 10]}
    assert tune(run, START, knobs, [1, 2]).knobs["work.tau"] == 1


def test_long_lists_are_walked_in_strides_and_then_refined():
    dense = [2.0 ** (k / 4) for k in range(-32, 17)]
    found = tune(valley(2.0**0.25, 2), START, {"solver.eta": dense, "work.tau": [2]}, [1])
    assert found.knobs["solver.eta"] == pytest.approx(2.0**0.25)
    assert found.runs < 25


def test_where_nothing_converges_it_says_so_in_one_line():
    def never(method, seed, limit):
        return Attempt(math.nan)

    def far(method, seed, limit):
        return Attempt(math.inf, 10 / method.solver.eta)

    for run in (never, far):
        with pytest.raises(BadInput, match=r"solver\.eta .*reach its target") as error:
            tune(run, START, {"solver.eta": ETAS}, [1])
        assert "\n" not in str(error.value)


def test_what_misses_the_target_least_is_where_the_search_goes():
    """Only the longest step reaches it: each shorter one misses it by more."""

    def run(method, seed, limit):
        eta = method.solver.eta
        return Attempt(5.0) if eta >= ETAS[-1] else Attempt(math.inf, 100 / eta)

    assert tune(run, START, {"solver.eta": ETAS}, [1]).knobs == {"solver.eta": ETAS[-1]}


def attempted(eta, **options):
    return attempt(
        prepare(
            problems.LinearRegression(),
            data.Synthetic(clients=6, samples=20, dim=4),
            Method(FedGATE(eta), Everyone(), work=Equal(tau=1)),
            target={"grad_norm_sq": 1e-4},
            **options,
        )
    )


def test_a_run_that_only_becomes_worse_diverges_long_before_its_numbers_overflow():
    """Were it taken for one that misses by what its start misses, the search would stand still."""
    assert math.isnan(attempted(eta=3.0, max_rounds=40).time)
    slow = attempted(eta=1e-6, max_rounds=3)
    assert math.isinf(slow.time)
    assert slow.gap > 1
    assert attempted(eta=0.5).time < math.inf


def test_a_run_that_cannot_be_the_best_is_given_up():
    limits = []

    def run(method, seed, limit):
        limits.append(limit)
        return Attempt(10 / method.solver.eta if method.solver.eta < 8 else math.nan)

    tune(run, START, {"solver.eta": ETAS}, [1], limit=1000.0)
    assert limits[0] == 1000.0
    assert limits[-1] == pytest.approx(1.5 * 10 / 4)


def test_knobs_by_name_by_path_and_with_values():
    knobs = knobs_of(START, ["eta", "work.tau", "K"], N=100)
    assert list(knobs) == ["solver.eta", "work.tau"]  # FedGATE has no K
    assert knobs["work.tau"] == list(GRIDS["work.tau"])
    assert knobs_of(START, {"n0": [1, 2, 400]}, N=100) == {"participation.n0": [1, 2]}
    assert knobs_of(Method(FedBuff(0.1)), ["K"], 5)["solver.K"][0] == 1
    with pytest.raises(BadInput, match="no knob 'etta'.*eta"):
        knobs_of(START, ["etta"], N=100)


def test_knobs_are_put_into_their_parts():
    method = with_knobs(START, {"solver.eta": 2.0, "participation.n0": 7})
    assert (method.solver.eta, method.participation.n0, method.work) == (2.0, 7, START.work)


def test_a_comparison_tunes_on_seeds_that_it_does_not_use():
    methods = {
        "FLANP": Method(FedGATE(eta=0.05), work=Equal(tau=5)),
        "everyone": Method(FedGATE(eta=0.05), Everyone(), work=Equal(tau=5)),
    }
    result = compare(
        problems.LinearRegression(),
        data.Synthetic(clients=8, samples=40, dim=3, condition=3.0),
        methods,
        seeds=2,
        seed=3,
        target="statistical accuracy",
        tune={"eta": [0.05, 0.2, 0.8]},
        tuning_seeds=2,
        progress=False,
    )
    tuned = result.about["tuned"]
    assert tuned["seeds"] == [5, 6]
    assert tuned["knobs"]["everyone"]["solver.eta"] > 0.05
    used = result.histories["everyone"][0].about
    assert used["seed"] == 3
    assert used["solver"]["eta"] == tuned["knobs"]["everyone"]["solver.eta"]


def test_tuning_needs_a_target():
    with pytest.raises(BadInput, match="tune needs a target"):
        tune_methods(
            problems.LinearRegression(),
            data.Synthetic(clients=4),
            {"a": START},
            None,
            ["eta"],
            [1],
            None,
        )
