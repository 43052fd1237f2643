import numpy as np
import pytest

from flanp.algorithm import Method
from flanp.checks import BadInput
from flanp.comparison import compare
from flanp.data import Synthetic
from flanp.participation import Everyone, Flanp
from flanp.planning import expected_rounds, parse_speeds, plan
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
        "FLANP": Method(gate, Flanp(1), StatisticalAccuracy(), work),
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


def test_speeds_as_the_command_line_takes_them(tmp_path):
    assert parse_speeds("exp:2:3") == Exponential(2.0, 3.0)
    assert parse_speeds("lognormal:1:0.5") == LogNormal(1.0, 0.5)
    assert parse_speeds("same:4") == Homogeneous(4.0)
    (tmp_path / "s.csv").write_text("client,seconds\na,1\nb,2\n")
    assert parse_speeds(str(tmp_path / "s.csv")) == Measured((1.0, 2.0))
    with pytest.raises(BadInput, match="for instance uniform:50:500"):
        parse_speeds("uniform:x")
    with pytest.raises(BadInput, match="no such file"):
        parse_speeds("unifrom:50:500")


@pytest.mark.parametrize(
    "bad",
    [
        {"clients": 0},
        {"samples": 0},
        {"kappa": 0.5},
        {"start": 0},
        {"tau": 0},
        {"n0": 9},
        {"growth": 1},
    ],
)
def test_bad_plans_are_refused(bad):
    with pytest.raises(BadInput):
        plan(Exponential(), **{"clients": 8, "samples": 10, **bad})
