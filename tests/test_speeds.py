import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp.checks import BadInput
from flanp.clock import Clock
from flanp.data import from_clients
from flanp.engine import Round
from flanp.measurement import Look
from flanp.patience import All
from flanp.problems import LinearRegression
from flanp.simulator.engine import Simulator
from flanp.simulator.world import World
from flanp.solvers import FedAvg
from flanp.speeds import (
    Exponential,
    FromCSV,
    Homogeneous,
    LogNormal,
    Measured,
    Pareto,
    Uniform,
    read_speeds,
)

from small import linear_clients

IDS = [str(i) for i in range(500)]


def draw(speeds, seed=0, ids=IDS):
    return speeds.draw(ids, np.random.default_rng(seed))


def test_distributions():
    assert 50 <= draw(Uniform()).min() < 60
    assert 490 < draw(Uniform()).max() <= 500
    pinned = draw(Uniform(pin_ends=True))
    assert (pinned.min(), pinned.max()) == (50, 500)
    assert draw(Exponential(rate=0.5, offset=10)).mean() == pytest.approx(12, rel=0.05)
    assert draw(Exponential(offset=10)).min() >= 10
    assert np.median(draw(LogNormal(median=3, sigma=0.5))) == pytest.approx(3, rel=0.1)
    assert np.median(draw(Pareto(least=3, shape=2))) == pytest.approx(3 * 2**0.5, rel=0.1)
    assert 3 <= draw(Pareto(least=3)).min() < 3.01
    assert set(draw(Homogeneous(2.5))) == {2.5}


@given(
    st.sampled_from([Uniform(), Exponential(2.0, 1.0), LogNormal(3.0), Pareto(2.0, 0.7)]),
    st.floats(0.02, 0.98),
)
def test_a_share_of_the_draws_is_below_the_quantile(speeds, share):
    many = draw(speeds, ids=[""] * 20_000)
    assert (many <= speeds.quantile(np.array(share))).mean() == pytest.approx(share, abs=0.02)


@given(st.floats(1e-9, 1e9), st.floats(0.2, 100), st.integers(0, 2**53 - 1))
def test_heavy_tails_stay_within_what_a_run_can_use(least, shape, k):
    T = Pareto(least, shape).quantile(np.array([k * 2.0**-53, 1 - 2.0**-53]))
    assert least <= T.min() <= T.max() < 1e100


def test_same_seed_same_speeds():
    assert (draw(Uniform(), 7) == draw(Uniform(), 7)).all()
    assert (draw(Uniform(), 7) != draw(Uniform(), 8)).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Uniform(low=0),
        lambda: Uniform(low=5, high=4),
        lambda: Exponential(rate=0),
        lambda: Exponential(rate=float("nan")),
        lambda: Exponential(offset=-1),
        lambda: Homogeneous(-1.0),
        lambda: LogNormal(median=0),
        lambda: LogNormal(sigma=-1),
        lambda: Pareto(least=0),
        lambda: Pareto(shape=0.1),
        lambda: Measured((1.0, 0.0)),
        lambda: Measured((1.0, float("nan"))),
        lambda: Measured((1.0, -2.0)),
        lambda: Measured((float("inf"),)),
        lambda: Uniform(jitter=-1),
        lambda: Uniform(jitter=100),
        lambda: World(np.array([1.0, 0.0])),
        lambda: World(np.array([np.inf])),
        lambda: World(np.array([np.nan])),
    ],
)
def test_bad_speeds_are_refused(make):
    with pytest.raises(BadInput, match="it must be"):
        make()


def test_measured_needs_one_for_each_client():
    with pytest.raises(BadInput, match="2 speeds for 3 clients"):
        Measured((1.0, 2.0)).draw(["a", "b", "c"], np.random.default_rng(0))


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "speeds.csv"
        path.write_text(text)
        return path

    return write


def test_csv_in_any_order_with_or_without_header_and_ties(write):
    for header in ("", "client,seconds\n", "\ufeffclient,seconds\n"):
        path = write(header + "b, 2.0\na,1.5\n\nc,2.0\n")
        assert FromCSV(path).draw(["a", "b", "c"], np.random.default_rng(0)).tolist() == [1.5, 2, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,1\n", "no speed for clients 'b', 'c'; add a line"),
        ("a,1\nb,1\nc,1\nd,1\n", "client 'd' not among the clients of the data"),
        ("a,1\nb,0\nc,1\n", "line 2: seconds = 0.0: it must be a number from 1e-09"),
        ("a,1\nb,-3\nc,1\n", "line 2: seconds = -3.0"),
        ("a,1\nb,nan\nc,1\n", "line 2: 'nan' is not a number"),
        ("a,1\nb,fast\nc,1\n", "line 2: 'fast' is not a number"),
        ("a,1\na,2\n", "line 2: client 'a' was there before"),
        ("a,1,2\n", "line 1: 3 columns"),
        ("", "the file holds no speeds"),
        ('a,"1,000"\nb,1\nc,1\n', "line 1: '1,000' is not a number: write it with a point"),
        ("a,1s\nb,1\nc,1\n", "line 1: '1s' is not a number; a header must be 'client,seconds'"),
        ("a,\nb,1\nc,1\n", "line 1: the cell is empty"),
        ("a,1_0\nb,1\nc,1\n", "line 1: '1_0' is not a number"),
        ("a,1e999\nb,1\nc,1\n", "line 1: 1e999 is too large"),
        ("a;1,5\nb;1\nc;1\n", "line 1: '1,5' is not a number: write it with a point"),
        ('a,"1\nb,1\nc,1\n', "look at its quotes"),
        ('"a,1\nb",1\nc,1\n', "goes over several lines: is a quote missing"),
        ("device,latency\na,1\n", "a header must be 'client,seconds'"),
        ("a,1\nclient,seconds\n", "line 2: 'seconds' is not a number"),
    ],
)
def test_bad_csv(write, text, message):
    with pytest.raises(BadInput, match=message):
        FromCSV(write(text)).draw(["a", "b", "c"], np.random.default_rng(0))


@pytest.mark.parametrize(
    "text",
    [
        "a;1.5\nb;2\nc;2\n",
        "a\t1.5\nb\t2\nc\t2\n",
        "seconds,client\n1.5,a\n2,b\n2,c\n",
        'Client ID;"Seconds per step"\n"a";1.5\nb;2\nc;2\n',
    ],
)
def test_csv_in_other_dress(write, text):
    assert read_speeds(write(text)) == {"a": 1.5, "b": 2, "c": 2}


def test_missing_csv(tmp_path):
    with pytest.raises(BadInput, match="there is no such file"):
        read_speeds(tmp_path / "nothing.csv")


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=1, max_size=30))
def test_ranking_is_by_speed_then_by_id(T):
    expected = sorted(range(len(T)), key=lambda i: (T[i], i))
    assert World(np.array(T)).ranking.tolist() == expected
    clock = Clock(given=np.array(T)).ranked(np.arange(len(T)), np.array(T))
    assert clock.ranking.tolist() == expected


@pytest.fixture(scope="module")
def engine():
    data = from_clients(linear_clients(20))
    return Simulator(LinearRegression(), data, FedAvg(eta=0.1), World(np.ones(20)))


@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.integers(1, 50)), min_size=1, max_size=20),
)
def test_round_time_is_that_of_the_slowest_participant(engine, clients):
    T, tau = (np.array(column) for column in zip(*clients, strict=True))
    active = np.arange(len(T))
    engine.world = World(T)
    ends, free = All().ends(len(T)), np.zeros(len(T))
    round_ = Round(3, active, tau, 0.1, 1.0, 1.0, at=0.0, T=T, exchange=free, ends=ends)
    reply = engine.ask(engine.start(), round_, Look.NOTHING)
    seconds, spent = reply.seconds, reply.spent
    waiting = spent.idle(len(active), seconds)
    assert reply.answered.tolist() == active.tolist()
    assert seconds == max(tau * T)
    assert 0 <= waiting < 1
    assert waiting == pytest.approx(np.mean(1 - tau * T / seconds))
    assert spent.busy == pytest.approx((tau * T).sum())
    assert spent.lost.sum() == pytest.approx(0, abs=1e-9)


def test_jitter_keeps_the_mean_and_depends_on_the_round_alone():
    world = World(np.array([2.0, 5.0]), 0.5, seed=4)
    rounds = np.array([world.seconds(r) for r in range(4000)])
    np.testing.assert_allclose(rounds.mean(axis=0), [2, 5], rtol=0.05)
    np.testing.assert_allclose(rounds.std(axis=0), [1, 2.5], rtol=0.1)
    assert (world.seconds(17) == rounds[17]).all()
