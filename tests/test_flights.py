"""The order of events, and where the clients' seconds go: in any world they add up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp.availability import Intervals, Windows
from flanp.checks import BadInput
from flanp.engine import NOBODY, Round
from flanp.network import Lines
from flanp.patience import TRIES, All, Deadline, Ends, First, Quorum
from flanp.simulator.flights import Flights, course, spent
from flanp.simulator.outcomes import outcome
from flanp.simulator.world import World
from flanp.speeds import SlowDowns
from flanp.tasks import NO_TASKS, Tasks

TO, BACK = 3000, 1000


def round_of(world, number, at, active, tau, ends, background=NOBODY):
    none = np.zeros(len(world.T))
    return Round(number, active, tau, 0.1, 1.0, 1.0, at, world.T, none, ends, background)


def flown(world, flights, at, arrivals, active=None, tau=1, period=0.0):
    """Return what happens until so many messages have come."""
    everyone = np.arange(len(world.T))
    active = everyone if active is None else np.array(active)
    round_ = round_of(world, 0, at, active, np.full(len(active), tau), Ends(1, np.inf, 1))
    return course(world, flights, round_, arrivals, TO, BACK, np.full(len(world.T), period))


def told(what):
    """Return events as (client, arrives, departs)."""
    columns = (what.events.client, what.events.arrives, what.events.departs)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_messages_come_before_models_go_out_and_ties_are_broken_by_number():
    world = World(np.array([2.0, 1.0, 1.0]))
    what = flown(world, Flights.none(3), 0.0, 5)
    assert told(what) == [
        *[(i, False, True) for i in range(3)],
        *[(1, True, False), (2, True, False), (1, False, True), (2, False, True)],
        *[(0, True, False), (1, True, False), (2, True, False)],
    ]
    assert (what.seconds, what.sent) == (2.0, 5)
    # Models that are due when a round ends go out in the next.
    after = flown(world, what.flights, 2.0, 1)
    assert told(after) == [*[(i, False, True) for i in range(3)], (1, True, False)]
    assert after.flights.began.tolist() == [2.0, 2.0, 2.0]
    assert after.flights.number.tolist() == [2, 3, 3]


def test_a_message_and_the_next_model_are_one_event():
    what = flown(World(np.array([1.0, 2.5])), Flights.none(2), 0.0, 4)
    assert told(what)[2:] == [(0, True, True), (0, True, True), (1, True, True), (0, True, False)]
    assert what.events.number.tolist()[2:] == [1, 2, 1, 3]


def test_clients_that_no_longer_take_part_finish_and_rest():
    world = World(np.array([1.0, 5.0]))
    what = flown(world, Flights.none(2), 0.0, 2)
    after = flown(world, what.flights, 2.0, 3, active=[0], tau=2)
    assert told(after)[-3:] == [(0, True, True), (1, True, False), (0, True, False)]
    assert after.flights.due.tolist() == [np.inf, np.inf]
    assert after.flights.ready.tolist() == [6.0, np.inf]
    again = flown(world, after.flights, 6.0, 1)
    assert again.flights.due.tolist() == [np.inf, 11.0]
    assert again.tasks.tau.tolist() == [1]


def test_whoever_is_away_is_sent_the_model_when_it_is_back_and_is_lost_when_it_goes():
    here = Intervals([[(3.0, 4.5), (9.0, np.inf)], [(0.0, np.inf)]])
    world = World(np.array([2.0, 4.0]), presence=here)
    what = flown(world, Flights.none(2), 0.0, 4)
    tasks = zip(what.tasks.client, what.tasks.began, what.tasks.until, what.tasks.ok, strict=True)
    expected = [(1, 0, 4, True), (0, 3, 4.5, False), (1, 4, 8, True), (0, 9, 11, True)]
    assert [tuple(map(float, task)) for task in tasks] == [tuple(map(float, e)) for e in expected]
    assert what.events.arrives.sum() == 3
    gone = World(np.array([1.0]), presence=Intervals([[(0.0, 2.5)]]))
    with pytest.raises(BadInput, match="nobody is at work, and nobody comes back: see `avail"):
        flown(gone, Flights.none(1), 0.0, 4)


def test_time_does_not_go_back_where_a_begin_is_rounded():
    a, b = 0.053598321519391035, 1.594534351590834
    world = World(np.array([a, b, b]))
    first = flown(world, Flights.none(3), 0.0, 1)
    second = flown(world, first.flights, a, 1, active=[1, 2])
    at = a + second.seconds
    assert at > b  # the other message was to come at b
    assert flown(world, second.flights, at, 1, active=[1, 2]).seconds == 0.0


def test_seconds_of_a_task_within_two_times():
    one = np.array([1.0])
    whole = np.array([0])
    task = Tasks(whole, whole, 2 * one, 12 * one, whole + 4, one, 2 * one, 2 * one, one > 0)
    for begin, end, seconds in [(0, 20, 10), (0, 7, 5), (10, 20, 2), (3, 4, 1), (0, 1, 0)]:
        work, transfer = task.within(begin, end)
        np.testing.assert_allclose([work[0], transfer[0]], [0.8 * seconds, 0.2 * seconds])


@st.composite
def worlds(draw):
    N, seed = draw(st.integers(1, 6)), draw(st.integers(0, 1000))
    T = np.array(draw(st.lists(st.floats(0.1, 10), min_size=N, max_size=N)))
    away = draw(st.sampled_from([0.0, 0.3, 0.8]))
    slow = SlowDowns(0.3, 4.0, 5.0)
    ids = [str(i) for i in range(N)]
    lines = Lines(8.0 * draw(st.floats(0.5, 50)), 8.0, 0.1)
    return World(
        T,
        draw(st.sampled_from([0.0, 0.7])),
        draw(st.booleans()),
        seed,
        factors=slow.course(N, 1.0, seed) if draw(st.booleans()) else None,
        links=lines.links(ids, np.random.default_rng(0), 1.0) if draw(st.booleans()) else None,
        presence=Windows(N, away, draw(st.floats(2, 30)), seed) if away else None,
        dropouts=draw(st.sampled_from([0.0, 0.3, 0.9])),
    )


PATIENCE = st.one_of(
    st.just(All()),
    st.builds(Quorum, st.floats(0.1, 1)),
    st.builds(Deadline, st.floats(0.5, 30), st.floats(0.1, 1)),
    st.builds(First, st.integers(1, 6)),
)


def check_spent(spent_, seconds, active):
    """Each client's four entries add up to the round; participants come first."""
    assert spent_.clients[: len(active)].tolist() == active.tolist()
    assert len({*spent_.clients.tolist()}) == len(spent_.clients)
    total = spent_.work + spent_.transfer + spent_.lost + spent_.waiting
    np.testing.assert_allclose(total, seconds, rtol=1e-9, atol=1e-12)


def check_presence(world, tasks):
    """Nobody works while it is away."""
    if world.presence is None:
        return
    for i, began, until in zip(tasks.client, tasks.began, tasks.until, strict=True):
        assert until <= world.presence.gone(began)[i] + 1e-9 * until


@given(worlds(), PATIENCE, st.booleans(), st.sampled_from([1, 3]), st.data())
def test_seconds_add_up_in_rounds(world, patience, remembers, tau, data):
    N, at, under_way = len(world.T), 0.0, NO_TASKS
    for number in range(8):
        active = np.array(
            data.draw(st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True))
        )
        background = np.setdiff1d(np.arange(N), active) if remembers else NOBODY
        n = len(active)
        round_ = round_of(world, number, at, active, np.full(n, tau), patience.ends(n), background)
        what = outcome(world, round_, under_way, TO, BACK, BACK if remembers else None)
        end = at + what.seconds
        check_spent(what.spent, what.seconds, active)
        assert min(column.min() for column in what.spent[1:]) >= 0
        busy = dict(zip(under_way.client.tolist(), under_way.until.tolist(), strict=True))
        there = np.ones(N, bool) if world.presence is None else world.there(at)
        participants = [i for i in active.tolist() if there[i] and busy.get(i, at) < end]
        beside = [i for i in background.tolist() if there[i] and i not in busy]
        once = len(participants) + len(beside) * (len(what.answered) > 0)
        assert once <= what.asked <= once + (world.dropouts > 0) * (TRIES - 1) * len(participants)
        assert {*what.answered.tolist()} <= {*participants}
        assert len({*what.under_way.client.tolist()}) == len(what.under_way)  # one at a time
        assert (what.under_way.until > end).all()
        assert (what.done.until <= end).all()
        assert what.seconds > 0
        check_presence(world, what.under_way + what.done)
        if patience == All() and not (world.dropouts or world.presence):
            assert what.answered.tolist() == active.tolist()
        if not remembers:
            assert not len(what.done)
            assert {*what.spent.clients.tolist()} <= {*active.tolist(), *busy}
        if world.known:
            assert what.heard == ()
        else:
            assert {*what.answered.tolist()} <= {i for i, *_ in what.heard}
        at, under_way = end, what.under_way


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=8),
    st.sampled_from([0.2, 0.5, 0.9]),
    st.sampled_from([0.0, 0.5]),
    st.integers(0, 99),
)
def test_who_drops_out_is_asked_again_while_others_are_at_work(T, dropouts, jitter, seed):
    """As a loop over clients and tries has it."""
    world, N = World(np.array(T), jitter, dropouts=dropouts, seed=seed), len(T)
    everyone, tau = np.arange(N), np.full(N, 3)
    what = outcome(
        world, round_of(world, 4, 7.0, everyone, tau, Ends(N, np.inf, N)), NO_TASKS, 0, 0
    )
    answered, ends, asked = [], [], 0
    for i in range(N):
        begins = 0.0
        for again in ((), (1,), (2,)):
            fates = world.fates(everyone, tau, 4, 7.0, 0, 0, *again)
            asked, begins = asked + 1, begins + fates.ends[i]
            if fates.ok[i]:
                answered.append(i)
            if fates.ok[i] or begins + 3 * T[i] > 3 * max(T):
                break
        ends.append(begins)
    assert what.answered.tolist() == answered
    assert what.seconds == pytest.approx(max(ends))
    assert what.asked == asked
    busy = what.spent.work + what.spent.lost
    np.testing.assert_allclose(busy, ends, rtol=1e-9)


def test_nobody_is_asked_again_after_the_round():
    """The round ends with client 0's reply: who drops out after it is at work until then."""
    seen, everyone, one = set(), np.arange(3), np.ones(3, int)
    for seed in range(300):
        world = World(np.array([1.0, 1.5, 9.0]), dropouts=0.5, seed=seed)
        first, again = (world.fates(everyone, one, 0, 0.0, 0, 0, *a) for a in ((), (1,)))
        if not (first.ok[0] and not first.ok[1] and first.ok[2]):
            continue
        what = outcome(
            world, round_of(world, 0, 0.0, everyone, one, Ends(1, np.inf, 1)), NO_TASKS, 0, 0
        )
        asked_again = bool(first.ends[1] < 1.0)
        if asked_again and not again.ok[1] and first.ends[1] + again.ends[1] < 1.0:
            continue
        assert what.asked == 3 + asked_again
        assert what.seconds == 1.0
        ends = first.ends[1] + (again.ends[1] if asked_again else 0.0)
        assert what.under_way.client.tolist() == [1, 2]
        assert what.under_way.until.tolist() == [ends, 9.0]
        assert not what.under_way.ok[0] or asked_again
        seen.add(asked_again)
    assert seen == {False, True}


@given(worlds(), st.floats(0, 20), st.sampled_from([1, 3]), st.data())
def test_seconds_add_up_without_rounds(world, period, tau, data):
    """Over a run no client is busy longer than it lasts, and none for less than no time."""
    N, at, flights, out = len(world.T), 0.0, Flights.none(len(world.T)), 0
    sums, everyone = np.zeros((4, N)), np.arange(N)
    for _ in range(6):
        round_ = round_of(world, 0, at, everyone, np.full(N, tau), Ends(N, np.inf, N))
        arrivals = data.draw(st.integers(1, 2 * N))
        what = course(world, flights, round_, arrivals, TO, BACK, np.full(N, period))
        assert len(what.tasks) == arrivals
        check_presence(world, what.tasks)
        used = np.array(data.draw(st.lists(st.booleans(), min_size=arrivals, max_size=arrivals)))
        used &= what.tasks.ok
        where = spent(what, used, everyone, at)
        check_spent(where, what.seconds, everyone)
        assert what.events.client[what.event].tolist() == what.tasks.client.tolist()
        assert what.events.arrives.sum() == what.tasks.ok.sum()
        out += what.sent
        assert flights.number.sum() + what.sent == what.flights.number.sum() == out
        assert what.events.departs.sum() == what.sent
        again = what.tasks.began[:, None] - what.tasks.began[None, :]
        same = what.tasks.client[:, None] == what.tasks.client[None, :]
        gaps = again[same & (again > 0)]
        assert not gaps.size or gaps.min() >= period * (1 - 1e-12)
        sums += np.array(where[1:])
        at, flights = at + what.seconds, what.flights
        assert sums.min() >= -1e-9 * at
        assert sums[:3].sum(axis=0).max() <= at * (1 + 1e-9)
        np.testing.assert_allclose(sums.sum(axis=0), at, rtol=1e-9)
