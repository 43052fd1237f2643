import json

import numpy as np
import pytest

import flanp
from flanp.checks import BadInput
from flanp.comparison import Comparison, compare, speed_up
from flanp.data import Digits, Synthetic
from flanp.history import History
from flanp.method import Method
from flanp.participation import Everyone, Growing
from flanp.plots import plot_comparison, plot_run
from flanp.problems import LinearRegression, LogisticRegression
from flanp.solvers import FedAvg, FedGATE
from flanp.speeds import Exponential
from flanp.stopping import GradientNoise
from flanp.target import Target
from flanp.work import Equal

GATE, RULE, WORK = FedGATE(eta=0.1), GradientNoise(), Equal(tau=10)
METHODS = {
    "FLANP": Method(GATE, Growing(1), RULE, WORK),
    "FedGATE": Method(GATE, Everyone(), RULE, WORK),
    "FedAvg": Method(FedAvg(eta=0.1), Everyone(), RULE, WORK),
}
DATA = Synthetic(clients=32, samples=50, dim=5)


@pytest.fixture(scope="module")
def result() -> Comparison:
    return compare(
        LinearRegression(),
        DATA,
        METHODS,
        Exponential(),
        seeds=3,
        target="statistical accuracy",
        progress=False,
    )


def test_flanp_is_sooner(result):
    assert result.baselines == ("FedGATE", "FedAvg")
    up = result.speed_up("FLANP", "FedGATE")
    assert up.seeds == 3
    assert up.low <= up.mean <= up.high
    assert up.mean > 1.5
    assert result.speed_up("FedGATE", "FedGATE").mean == 1


def test_methods_share_data_start_and_speeds(result):
    for seed in range(3):
        starts = {runs[seed].rows[0].loss for runs in result.histories.values()}
        assert len(starts) == 1
        # Everyone waits for the same slowest client, tau = 10.
        seconds = {
            runs[seed].rows[1].time for name, runs in result.histories.items() if name != "FLANP"
        }
        assert len(seconds) == 1


def test_the_target_is_the_papers_statistical_accuracy(result):
    for seed, target in enumerate(result.targets):
        constants = LinearRegression().constants(DATA.load(seed))
        level = 2 * constants.mu * constants.c / (32 * 50)
        assert target == Target("grad_norm_sq", pytest.approx(level))


def test_saved_in_full(result, tmp_path):
    result.save(tmp_path)
    saved = json.loads((tmp_path / "comparison.json").read_text())
    assert [row["method"] for row in saved["methods"]] == list(METHODS)
    back = History.load(tmp_path / "fedgate" / "seed-2")
    assert back.rows == result.histories["FedGATE"][2].rows


def test_plots_are_written_and_repeat_to_the_byte(result, tmp_path):
    first = [path.read_bytes() for path in plot_comparison(result, tmp_path / "a")]
    second = [path.read_bytes() for path in plot_comparison(result, tmp_path / "b")]
    assert first == second
    assert first[0].startswith(b"\x89PNG")
    assert b"<svg" in first[1]
    assert len(plot_run(result.histories["FLANP"][0], tmp_path / "run")) == 2


def test_without_a_target_it_is_the_lowest_loss_all_reach():
    result = compare(
        LogisticRegression(), Digits(clients=5), METHODS, seeds=1, max_rounds=5, progress=False
    )
    worst = max(min(h[0].column("loss")) for h in result.histories.values())
    assert result.targets == [Target("loss", worst)]
    assert all(np.isfinite(result.times(name)).all() for name in METHODS)


def test_a_method_that_diverges_misses_the_target():
    methods = {**METHODS, "wild": Method(FedAvg(eta=100.0), Everyone(), RULE, WORK)}
    result = compare(
        LinearRegression(),
        DATA,
        methods,
        seeds=1,
        target={"distance": 0.5},
        max_rounds=50,
        progress=False,
    )
    assert np.isnan(result.times("wild")).all()
    assert result.speed_up("FLANP", "wild").seeds == 0
    assert result.histories["wild"][0].diverged
    assert "diverged" in str(result.histories["wild"][0].ended)


def test_a_method_that_diverges_does_not_set_the_common_target():
    methods = {**METHODS, "wild": Method(FedAvg(eta=100.0), Everyone(), RULE, WORK)}
    result = compare(LinearRegression(), DATA, methods, seeds=1, max_rounds=9, progress=False)
    start = result.histories["FLANP"][0].rows[0].loss
    assert result.targets[0].column == "loss"
    assert result.targets[0].level < 0.9 * start


def test_seeds_start_where_they_are_told():
    kind = {"progress": False, "max_rounds": 2}
    one = compare(LinearRegression(), DATA, METHODS, seeds=2, **kind)
    other = compare(LinearRegression(), DATA, METHODS, seeds=1, seed=1, **kind)
    assert one.histories["FLANP"][1].rows == other.histories["FLANP"][0].rows


def test_the_interval_covers_the_truth():
    """Monte Carlo: 95% of the intervals hold the true ratio."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        fast = rng.lognormal(1.0, 0.5, 8)
        up = speed_up(fast * 3 * rng.lognormal(0, 0.3, 8), fast)
        hits += up.low <= 3 <= up.high
    assert 0.935 < hits / 2000 < 0.965


def test_one_seed_has_no_interval():
    up = speed_up(np.array([6.0]), np.array([2.0]))
    assert up.mean == pytest.approx(3)
    assert np.isnan(up.low)
    assert np.isnan(up.high)


def test_bad_comparisons():
    with pytest.raises(BadInput, match="nothing to compare"):
        compare(LinearRegression(), DATA, {})
    with pytest.raises(BadInput, match="seeds = 0"):
        compare(LinearRegression(), DATA, METHODS, seeds=0)
    with pytest.raises(BadInput, match="statistical accuracy of LogisticRegression is not known"):
        compare(LogisticRegression(), Digits(clients=3), METHODS, target="statistical accuracy")
    with pytest.raises(BadInput, match="another method has the same name but for signs"):
        compare(LinearRegression(), DATA, {"A": METHODS["FLANP"], "a!": METHODS["FedAvg"]})
    few = {**METHODS, "few": Method(GATE, Growing(99), RULE, WORK)}
    with pytest.raises(BadInput, match=r"methods.few: n0 = 99"):
        compare(LinearRegression(), DATA, few)
    with pytest.raises(BadInput, match="target = 'soon'"):
        flanp.compare(LinearRegression(), DATA, METHODS, target="soon")
