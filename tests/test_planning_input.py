"""Plans for any numbers and any speeds: an answer, or words."""

import contextlib
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flanp.checks import BadInput
from flanp.planning import MOST_STAGES, plan
from flanp.speeds import (
    Devices,
    Exponential,
    FromCSV,
    Homogeneous,
    LogNormal,
    Measured,
    Pareto,
    Speeds,
    Uniform,
)
from flanp.speeds.parsing import parse_speeds


@dataclass(frozen=True)
class Own(Speeds):
    """A user's own speeds, of which `draw` is all that is known."""

    given: Any = None

    def draw(self, ids, rng):
        return rng.exponential(1, len(ids)) if self.given is None else self.given


def test_speeds_of_unknown_quantiles_are_drawn():
    drawn, known = plan(Own(), 300, 100), plan(Exponential(), 300, 100)
    assert drawn.speed_up == pytest.approx(known.speed_up, rel=0.05)
    assert drawn.low == pytest.approx(known.low, rel=0.1)
    assert drawn.high == pytest.approx(known.high, rel=0.1)
    assert drawn.draws == known.draws == 400
    assert plan(Own(), 10**5, 100).draws == 40


def test_the_ends_are_pinned():
    many, one = (plan(Uniform(pin_ends=True), N, 100) for N in (20, 1))
    assert (many.stages[0].T, many.stages[-1].T) == (50, 500)
    assert one.stages[0].T == 500


def test_fixed_speeds_are_drawn_once(tmp_path):
    (tmp_path / "s.csv").write_text("client,seconds\n1,2\n0,1\n2,9\n")
    seconds = (2.0, 1.0, 9.0)
    plans = [
        plan(speeds, 3, 100)
        for speeds in (Measured(seconds), Own(np.array(seconds)), FromCSV(tmp_path / "s.csv"))
    ]
    assert plans[0] == plans[1] == plans[2]
    assert plans[0].draws == plan(Homogeneous(), 3, 100).draws == 1
    assert [stage.T for stage in plans[0].stages] == [1, 2, 9]


@pytest.mark.parametrize(
    "given",
    [[1.0, 2.0], [[1.0, 2.0, 3.0]], 1.0, "fast", ["1", "2", "3"], [1, 2, None], [1j, 1, 1]]
    + [[1.0, bad, 3.0] for bad in (0.0, -1.0, math.nan, math.inf, 1e-200, 1e200)]
    + [[[1.0], [2.0, 3.0], 1.0], {}],
)  # fmt: skip
def test_draws_that_are_no_seconds_are_refused(given):
    with pytest.raises(BadInput, match="Own.draw"):
        plan(Own(given), 3, 100)


def test_draws_that_fail_are_refused():
    class Failing(Own):
        def draw(self, ids, rng):
            raise KeyError("phone")

    with pytest.raises(BadInput, match="Failing.draw failed .KeyError"):
        plan(Failing(), 3, 100)


def test_plans_for_many_clients_are_quick():
    for arguments in (
        {"clients": 100, "kappa": 1e4},
        {"clients": 10**9, "kappa": 1e12},
        {"clients": 10**9, "kappa": 1e12, "samples": 1e12, "start": 1e12, "step": 1e-9},
        {"clients": 10**6, "growth": 1.01},
        {"clients": 2000, "growth": 1.0000001},
    ):
        before = time.process_time()
        plan(Exponential(), **{"samples": 100, **arguments})
        assert time.process_time() - before < 1


def test_too_many_stages_are_refused():
    for growth, clients in ((1 + 1e-15, 10**9), (1.0001, 10**6), (1.0001, MOST_STAGES + 1)):
        with pytest.raises(BadInput, match="growth = 1.0.*: it must be larger, such as 2"):
            plan(Exponential(), clients, 100, growth=growth)
    assert len(plan(Exponential(), MOST_STAGES, 1, growth=1.0001).stages) == MOST_STAGES


NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.integers(-20, 20).map(lambda e: 10.0**e),
    st.integers(0, 20).map(lambda e: 10**e),
    st.floats(1, 2),
    st.sampled_from(
        [10**5000, True, "7", "", b"1", None, 1j, [1], np.array([1, 2]), np.float32(3)]
    ),
)
KNOWN = [Exponential(), Uniform(), Uniform(1, 1), LogNormal(1e9, 10), Homogeneous()]
KNOWN += [Pareto(1e9, 0.2), Devices()]
ANY_SPEEDS = st.sampled_from([*KNOWN, Own(), Measured((1e9, 1e-9)), Exponential, None, "exp:1"])
NAMES = ["clients", "samples", "kappa", "n0", "growth", "start", "step", "tau", "seed"]


@given(
    ANY_SPEEDS,
    st.fixed_dictionaries(
        {"clients": NUMBERS, "samples": NUMBERS}, optional=dict.fromkeys(NAMES[2:], NUMBERS)
    ),
)
@settings(max_examples=200)
def test_any_numbers_give_a_plan_or_words(speeds, arguments):
    plan_or_words(speeds, arguments)


@given(
    ANY_SPEEDS,
    st.sampled_from(NAMES),
    NUMBERS,
    st.sampled_from([{}, {"clients": 10**9, "n0": 10**5}, {"kappa": 1e12, "step": 1e-9}]),
)
@settings(max_examples=200)
def test_any_number_for_an_argument_gives_a_plan_or_words(speeds, name, number, other):
    plan_or_words(speeds, {"clients": 2, "samples": 100, **other, name: number})


def powers(low, high):
    return st.floats(low, high).map(lambda e: 10**e)


@given(
    st.sampled_from(KNOWN),
    st.fixed_dictionaries(
        {
            "clients": powers(0, 9).map(int),
            "samples": powers(0, 12),
            "kappa": powers(0, 12),
            "n0": st.just(1),
            "growth": powers(0.01, 6),
            "start": powers(-12, 12),
            "step": powers(-9, 9),
            "tau": powers(-9, 9),
            "seed": st.integers(0, 2**32 - 1),
        }
    ),
)
def test_all_allowed_numbers_give_a_plan(speeds, arguments):
    assert plan_or_words(speeds, arguments) is not None


def plan_or_words(speeds, arguments):
    """Return a plan that makes sense, or None where what is wrong is said; within a second."""
    before, words, result = time.process_time(), "", None
    try:
        result = plan(speeds, **arguments)
    except BadInput as error:
        words = str(error)
    assert time.process_time() - before < 1
    if result is None:
        assert " = " in words  # the name and its value
        return None
    numbers = [result.low, result.speed_up, result.high]
    assert numbers == sorted(numbers)
    numbers += [result.best_speed_up, result.time, result.full_time]
    assert all(math.isfinite(x) and x >= 0 for x in numbers)
    assert result.verdict()
    return result


def test_speeds_as_the_command_line_takes_them(tmp_path, monkeypatch):
    assert parse_speeds("exp:2:3") == parse_speeds("Exponential:2:3") == Exponential(2.0, 3.0)
    assert parse_speeds("lognormal:1:0.5") == parse_speeds("LogNormal:1e0:.5") == LogNormal(1, 0.5)
    assert parse_speeds("pareto:2:3") == parse_speeds("Pareto:2.0:3") == Pareto(2.0, 3.0)
    assert parse_speeds("devices") == parse_speeds("Devices") == Devices()
    assert parse_speeds("same:4") == parse_speeds("homogeneous:4") == Homogeneous(4.0)
    assert parse_speeds("Uniform:50:500") == parse_speeds("uniform") == Uniform(50, 500)
    (tmp_path / "s.csv").write_text("client,seconds\na,1\nb,2\n")
    assert parse_speeds(str(tmp_path / "s.csv")) == Measured((1.0, 2.0))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.csv").rename("phones:1")
    assert parse_speeds("phones:1") == Measured((1.0, 2.0))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unifrom:50:500", "unknown distribution 'unifrom'; did you mean 'uniform'?"),
        ("unifrom:0.5:1.5", "unknown distribution 'unifrom'; did you mean 'uniform'?"),
        ("gausian:1", "unknown distribution 'gausian'; there are: 'devices', 'exp',"),
        ("", "unknown distribution ''"),
        (":1", "unknown distribution ''"),
        ("phones.csv", "no such file"),
        ("data/phones", "no such file"),
        ("C:\\data\\phones", "no such file"),
        ("x" * 5000, "unknown distribution"),
        ("devices:1", "devices alone"),
        ("pareto:1:2:3", "pareto:least:shape with numbers, for instance pareto:1:1.5"),
        ("uniform:x", "uniform:low:high with numbers, for instance uniform:50:500"),
        ("uniform:50:500:1", "uniform:low:high with numbers, for instance uniform:50:500"),
        ("exp:1:0:3", "exp:rate:offset with numbers, for instance exp:1"),
        ("EXP:1:", "exp:rate:offset with numbers"),
        ("exp:1_0", "exp:rate:offset with numbers"),
        ("exp:nan", "exp:rate:offset with numbers"),
        ("exp:inf", "exp:rate:offset with numbers"),
        ("exp:１", "exp:rate:offset with numbers"),
        ("lognormal:1:1:1", "lognormal:median:sigma with numbers, for instance lognormal:1:1"),
        ("same:1:1", "same:T with numbers, for instance same:1"),
        ("same:1e999", "T = inf: it must be a number from"),
        ("same:0", "T = 0.0: it must be a number from"),
        ("uniform:5:1", "(low, high) = (5.0, 1.0)"),
    ],
)
def test_speeds_that_cannot_be_read_are_refused_in_words(text, words):
    with pytest.raises(BadInput) as error:
        parse_speeds(text)
    assert words in str(error.value)
    assert "__init__" not in str(error.value)


@given(
    st.sampled_from(["", "exp:", "uniform:", "SAME:"]), st.text("exp:0123456789.+-_ ", max_size=20)
)
def test_any_text_gives_speeds_or_words(name, text):
    with contextlib.suppress(BadInput):
        assert isinstance(parse_speeds(name + text), Speeds)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"clients": 0}, "clients = 0: it must be a whole number from 1 to 1,000,000,000"),
        ({"clients": 10**9 + 1}, "clients = 1000000001: it must be a whole number"),
        ({"clients": 8.5}, "clients = 8.5: it must be a whole number"),
        ({"clients": True}, "clients = True: it must be a whole number"),
        ({"clients": "8"}, "clients = '8': it must be a whole number"),
        ({"samples": 0}, "samples = 0.0: it must be a number from 1"),
        ({"samples": math.inf}, "samples = inf: it must be a number from 1"),
        ({"kappa": 0.5}, "kappa = 0.5: it must be a number from 1"),
        ({"kappa": math.nan}, "kappa = nan: it must be a number from 1"),
        ({"start": 0}, "start = 0.0: it must be a number from 1e-12"),
        ({"step": 0}, "step = 0.0: it must be a number from 1e-09"),
        ({"tau": 0}, "tau = 0.0: it must be a number from 1e-09"),
        ({"n0": 9}, "n0 = 9: it must be at most the number of clients, 8"),
        ({"n0": 0}, "n0 = 0: it must be"),
        ({"growth": 1}, "growth = 1.0: it must be a number above 1"),
        ({"seed": -1}, "seed = -1: it must be a whole number from 0"),
        ({"seed": 2**32}, "seed = 4294967296: it must be a whole number from 0"),
        ({"speeds": "exp:1"}, "speeds = 'exp:1': it must be"),
        ({"speeds": Measured((1.0, 2.0))}, "clients = 8: it must be 2, the number of speeds"),
        ({"speeds": Own(), "clients": 10**9}, "clients = 1000000000: it must be at most 1e6"),
    ],
)
def test_bad_plans_are_refused(bad, words):
    with pytest.raises(BadInput) as error:
        plan(**{"speeds": Exponential(), "clients": 8, "samples": 10, **bad})
    assert words in str(error.value)
