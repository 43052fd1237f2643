"""What the world does to a run: transfers, clients that come and go, tasks that are lost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp import BadInput, Method, prepare
from flanp.availability import Always, FromTrace, Intervals, Random
from flanp.compression import QSGD, TopK
from flanp.data import from_clients
from flanp.network import FREE, Lines, Phones
from flanp.network import FromTrace as Recorded
from flanp.participation import Everyone
from flanp.patience import All, Quorum
from flanp.problems import LinearRegression
from flanp.simulator.outcomes import outcome
from flanp.simulator.world import World, world_of
from flanp.solvers import IAG, FedAvg, FedGATE, Memory, Scaffold, Tracking
from flanp.speeds import Drift, Exponential, Homogeneous, Measured, SlowDowns, Trace
from flanp.stopping import Never
from flanp.tasks import NO_TASKS
from flanp.work import Equal
from test_flights import round_of

from small import linear_clients

T = (1.0, 2.0, 3.0, 4.0)
NUMBERS = 3 * 8
"""Bytes of a model of three numbers in double precision."""
LINES = Lines(down=0.032, up=0.016, latency=0.25)
"""A model takes 6 seconds to a client, and 12 back."""


def run_of(solver, speeds=Measured(T), **options):  # noqa: B008
    patience, tau = options.pop("patience", All()), options.pop("tau", 2)
    method = Method(solver, Everyone(), Never(), Equal(tau=tau), patience)
    options = {"max_rounds": 3, "precision": "float64", **options}
    return prepare(LinearRegression(), from_clients(linear_clients(4)), method, speeds, **options)


def test_a_round_takes_its_bytes_over_the_bandwidth_and_two_latencies():
    rows = list(run_of(FedAvg(0.05), network=LINES))
    each = 6.25 + 2 * 4.0 + 12.25
    assert [row.time for row in rows] == [0.0, each, 2 * each, 3 * each]
    assert [row.sent for row in rows] == [4 * NUMBERS * r for r in range(4)]
    assert [row.received for row in rows] == [4 * NUMBERS * r for r in range(4)]
    busy = 4 * 18.5 + 2 * sum(T)
    assert [row.spent for row in rows] == pytest.approx([busy * r for r in range(4)])
    assert rows[1].waiting == pytest.approx(1 - busy / 4 / each)


def test_messages_that_are_shorter_take_less_time():
    exact, quantised, sparse = (
        list(run_of(FedAvg(0.05, compression=compression), network=LINES))[-1]
        for compression in (FedAvg(0.05).compression, QSGD(bits=2), TopK(0.3))
    )
    assert (exact.sent, quantised.sent, sparse.sent) == (12 * 24, 12 * 9, 12 * 12)
    assert exact.received == quantised.received == sparse.received
    assert exact.time - quantised.time == pytest.approx(3 * (24 - 9) * 0.5)  # half a second a byte
    assert exact.time - sparse.time == pytest.approx(3 * (24 - 12) * 0.5)


@pytest.mark.parametrize(
    ("solver", "told"),
    [(FedGATE(0.05), 0), (Scaffold(0.05), 3), (Memory(0.05), 3), (IAG(0.05), 0)],
    ids=lambda value: type(value).__name__,
)
def test_what_clients_are_told_of_the_servers_state_has_to_get_there(solver, told):
    run = run_of(solver, Homogeneous(2.0), network=LINES, tau=1)
    rows = list(run)
    takes = 6.25 + told * 8 * 0.25 + 2.0 + 12.25
    assert rows[-1].time == pytest.approx(3 * takes)
    assert [row.received for row in rows] == [4 * (3 + told) * 8 * row.round for row in rows]
    assert {row.sent for row in rows} == {4 * NUMBERS * r for r in range(4)}


def test_messages_that_come_too_late_have_been_sent():
    speeds = Measured((1.0, 1.0, 1.0, 3.5))
    rows = list(run_of(FedAvg(0.05), speeds, patience=Quorum(0.7), max_rounds=4))
    # Three answer after 2 seconds each; the fourth is done after 7, and begins anew.
    assert [row.received // NUMBERS for row in rows] == [0, 4, 7, 10, 14]
    assert [row.sent // NUMBERS for row in rows] == [0, 3, 6, 9, 13]
    assert [row.lost for row in rows] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_bytes_of_an_asynchronous_run_are_those_of_its_messages():
    run = run_of(Tracking(0.01, cap=None), network=LINES)
    for row in run:
        assert row.sent == 4 * row.round * NUMBERS
        assert row.received == run.state.model.flights.number.sum() * 3 * 8


def there(tmp_path, *spans):
    """Return when each client is there, from lists of (from, until)."""
    path = tmp_path / "there.csv"
    lines = [f"{i},{a},{b}" for i, own in enumerate(spans) for a, b in own]
    path.write_text("client,from,until\n" + "\n".join(lines) + "\n")
    return FromTrace(path)


def test_clients_that_are_away_are_not_asked_and_those_that_go_are_lost(tmp_path):
    always = [(0, "")]
    here = there(tmp_path, always, [(0, 4), (6, "")], [(7, "")], [(0, 5), (6, 100)])
    rows = list(run_of(FedAvg(0.05), availability=here, max_rounds=4))
    # Client 3 goes after 5 of its 8 seconds, 1 just as it is done; all are back at second 7.
    assert [row.n for row in rows] == [0, 2, 1, 4, 4]
    assert [row.time for row in rows] == [0, 5, 7, 15, 23]
    assert [row.received // NUMBERS for row in rows] == [0, 3, 4, 8, 12]
    assert [row.sent // NUMBERS for row in rows] == [0, 2, 3, 7, 11]
    assert [row.lost for row in rows] == [0, 5, 5, 5, 5]
    assert rows[1].waiting == pytest.approx((3 + 1 + 5 + 0) / 20)


def test_where_everyone_is_away_the_clock_moves_on_to_the_first_return(tmp_path):
    spans = [[(0, 10), (40, "")], [(0, 10), (33, "")], [(50, "")], [(60, "")]]
    run = run_of(FedAvg(0.05), availability=there(tmp_path, *spans), max_rounds=5)
    rows, models = zip(*((row, np.asarray(run.state.model.w)) for row in run), strict=True)
    assert [(row.n, row.time) for row in rows[2:]] == [(2, 8), (1, 10), (0, 33), (1, 37)]
    assert models[3].tolist() == models[4].tolist()
    seen = {"stage_grad_norm_sq": rows[4].stage_grad_norm_sq}  # of those who take part next
    assert rows[3]._replace(n=0, round=4, time=33.0, waiting=1.0, **seen) == rows[4]
    assert models[4].tolist() != models[5].tolist()


def test_nobody_waits_for_clients_that_never_come_back(tmp_path):
    spans = [[(0, 20)]] * 4
    for solver in (FedAvg(0.05), IAG(0.05)):
        run = run_of(solver, availability=there(tmp_path, *spans), max_rounds=50)
        with pytest.raises(BadInput, match="comes back: see `availability`, and its trace"):
            list(run)
        assert run.history.rows[-1].time <= 20


def outcomes(world, patience, rounds, tau=2):
    """Return what comes of rounds of everyone."""
    at, under_way, found, N = 0.0, NO_TASKS, [], len(world.T)
    for number in range(rounds):
        round_ = round_of(world, number, at, np.arange(N), np.full(N, tau), patience.ends(N))
        found.append(outcome(world, round_, under_way, 0, 0))
        at, under_way = at + found[-1].seconds, found[-1].under_way
    return found


def test_work_that_begins_later_is_lost_if_its_client_is_away_by_then():
    """Client 2 is at work until second 5, and begins anew: it stays to second 7, or to second 4."""
    inf = np.inf
    for goes, until in ((7.0, 7.0), (12.0, 10.0)):
        here = Intervals([[(0.0, inf)], [(0.0, inf)], [(0.0, goes), (50.0, inf)]])
        world = World(np.array([1.0, 1.5, 2.5]), presence=here)
        what = outcomes(world, Quorum(0.6), 2)
        assert [w.seconds for w in what] == [3.0, 3.0]
        assert what[1].under_way.until.tolist() == [until]
        assert what[1].under_way.ok.tolist() == [goes > 10]
    here = Intervals([[(0.0, inf)], [(0.0, inf)], [(0.0, 4.0)]])
    what = outcomes(World(np.array([1.0, 1.5, 2.5]), presence=here), All(), 2)
    assert [w.seconds for w in what] == [4.0, 3.0]
    what = outcomes(World(np.array([1.0, 1.5, 2.5]), presence=here), Quorum(0.6), 2)
    assert what[1].spent.lost.tolist() == [0.0, 0.0, 1.0]
    assert what[1].asked == 2 + 1  # it was there when it was asked, and had gone when it began


def test_a_slow_client_is_at_one_task_at_a_time():
    what = outcomes(World(np.array([1.0, 1.0, 50.0])), Quorum(0.6), 60)
    assert {tuple(w.under_way.number.tolist()) for w in what[:49]} == {(0,)}
    assert [w.asked for w in what[:3]] == [3, 2, 2]
    assert what[49].under_way.client.size == 0
    assert what[50].under_way.number.tolist() == [50]


def test_a_share_of_the_tasks_drops_out_midway():
    world = World(np.full(50, 2.0), dropouts=0.3, seed=3)
    everyone, tau = np.arange(50), np.full(50, 5)
    fates = [world.fates(everyone, tau, number, 0.0, 0, 0) for number in range(100)]
    ok, ends = np.array([f.ok for f in fates]), np.array([f.ends for f in fates])
    assert ok.mean() == pytest.approx(0.7, abs=0.02)
    assert ok.mean(axis=0).std() == pytest.approx((0.21 / 100) ** 0.5, rel=0.4)  # anybody's
    assert (ends[ok] == 10).all()
    assert ends[~ok].mean() == pytest.approx(5, abs=0.3)
    assert ends[~ok].min() < 0.5 < 9.5 < ends[~ok].max() < 10


@pytest.mark.parametrize("solver", [FedAvg(0.05), Memory(0.05), IAG(0.05)])
def test_where_all_tasks_fail_nothing_changes_but_the_time(solver):
    run = run_of(solver, availability=Always(dropouts=0.9), max_rounds=12, seed=5)
    failed, before, w = 0, None, None
    for row in run:
        if before is not None and row.sent == before.sent:
            failed += 1
            assert (np.asarray(run.state.model.w) == w).all()
            assert row.time > before.time
            assert row.lost > before.lost
            assert row.received > before.received
        before, w = row, np.asarray(run.state.model.w)
    assert 3 < failed < 12
    assert row.lost / row.spent > 0.5


WORLDS = {
    "jitter": {"speeds": Exponential(jitter=0.5)},
    "drift": {"speeds": Exponential(change=Drift(1.0, 10.0))},
    "slow downs": {"speeds": Exponential(change=SlowDowns(0.5, 5.0, 3.0), jitter=0.1)},
    "all": {
        "speeds": Exponential(jitter=0.5, change=Drift()),
        "network": Phones(),
        "availability": Random(0.3, 3.0, dropouts=0.2),
    },
}


def made(seed, speeds, network=FREE, availability=Always()):  # noqa: B008
    return world_of(("a", "b", "c", "d"), np.ones(4), speeds, network, availability, seed)


@pytest.mark.parametrize("kind", WORLDS)
@given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 500)), min_size=1, max_size=6))
def test_what_becomes_of_a_task_depends_on_the_seed_its_number_and_the_time(kind, tasks):
    def fates(world, number, time, clients):
        tau = np.full(len(clients), 3)
        found = world.fates(np.array(clients), tau, number, time, 1000, 500)
        return np.array(found, float).T.tolist()

    one, other = made(1, **WORLDS[kind]), made(1, **WORLDS[kind])
    forth = [fates(one, number, time, [0, 1, 2, 3]) for number, time in tasks]
    back = [fates(other, number, time, [0, 1, 2, 3]) for number, time in reversed(tasks)]
    assert back[::-1] == forth
    assert fates(one, *tasks[0], [2, 0]) == [forth[0][2], forth[0][0]]  # and on nobody else
    assert fates(made(2, **WORLDS[kind]), *tasks[0], [0, 1, 2, 3]) != forth[0]


def test_jitter_has_its_mean_and_its_deviation():
    world = World(np.array([1.0, 20.0]), jitter=0.5)
    drawn = np.array([world.seconds(number) for number in range(4000)])
    np.testing.assert_allclose(drawn.mean(axis=0), world.T, rtol=0.05)
    np.testing.assert_allclose(drawn.std(axis=0), 0.5 * world.T, rtol=0.05)
    assert not world.steady
    assert world.timeless


def test_recorded_speeds_and_bandwidths_count_from_their_times_on(tmp_path):
    path = tmp_path / "trace.csv"
    lines = [f"{i},{t},{s},{k}" for i in range(4) for t, s, k in ((0, 1, 0.192), (9, 2, 0.096))]
    path.write_text("client,time,seconds,kbits\n" + "\n".join(lines) + "\n")
    rows = list(run_of(FedAvg(0.05), Trace(path), network=Recorded(path), max_rounds=4))
    # 2 steps and two ways of a second each, then of two seconds each
    assert [row.time for row in rows] == [0, 4, 8, 12, 20]
