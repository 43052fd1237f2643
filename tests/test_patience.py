"""Rounds that end early, work that outlasts them, and speeds that must be learnt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp import Method, prepare
from flanp.clock import Clock
from flanp.data import from_clients
from flanp.network import Exchange, Free
from flanp.participation import Everyone, Growing, RandomK
from flanp.patience import All, Deadline, Ends, First, Quorum
from flanp.problems import LinearRegression
from flanp.solvers import FedAvg, FedGATE, Memory, Scaffold
from flanp.speeds import Exponential, Measured
from flanp.stopping import FixedRounds
from flanp.work import Equal

from small import linear_clients, one_round

T = (1.0, 2.0, 3.0, 4.0, 50.0)


def simulation(patience=All(), solver=FedAvg(eta=0.05), speeds=Measured(T), **options):  # noqa: B008
    work = options.pop("work", Equal(tau=2))
    participation = options.pop("participation", Everyone())
    stop = options.pop("stop", FixedRounds(6))
    data = from_clients(linear_clients(5))
    method = Method(solver, participation, stop, work, patience)
    return prepare(LinearRegression(), data, method, speeds, **options)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=12), st.data())
def test_a_round_ends_when_enough_have_answered_but_not_before_the_least(seconds, data):
    n = len(seconds)
    least = data.draw(st.integers(1, n))
    ends = Ends(data.draw(st.integers(least, n)), data.draw(st.floats(0.1, 100)), least)
    end = ends.of(np.array(seconds))
    answered = sum(s <= end for s in seconds)
    assert answered >= least
    assert end <= max(seconds)
    assert answered >= ends.enough or end >= min(ends.deadline, max(seconds))


def test_a_quorum_takes_the_first_and_leaves_the_others_at_work():
    run = simulation(Quorum(0.8))
    rows = list(run)
    assert [row.n for row in rows] == [0, 4, 4, 4, 4, 4, 4]
    assert [row.time for row in rows] == [8.0 * r for r in range(7)]
    late = run.state.model.under_way
    assert late.client.tolist() == [4]
    assert late.number.tolist() == [0]  # it has been at its first task all along
    assert late.until.tolist() == [100.0]


def test_whoever_is_done_with_old_work_takes_part_again():
    run = simulation(Quorum(0.8), speeds=Measured((1.0, 1.0, 1.0, 1.0, 3.5)))
    assert [row.n for row in run] == [0, 4, 4, 4, 4, 4, 4]
    late = run.state.model.under_way
    assert (late.client.tolist(), late.number.tolist()) == ([4], [3])
    assert (late.began.tolist(), late.until.tolist()) == ([7.0], [14.0])


def test_a_deadline_waits_for_its_quorum():
    times = {}
    for quorum in (0.2, 0.8):
        run = simulation(Deadline(5.0, quorum=quorum), stop=FixedRounds(1))
        times[quorum] = [(row.time, row.n) for row in run][-1]
    assert times == {0.2: (5.0, 2), 0.8: (8.0, 4)}


@pytest.mark.parametrize("solver", [FedAvg(eta=0.05), FedGATE(eta=0.05), Scaffold(eta=0.05)])
def test_a_round_without_the_late_is_the_round_of_the_others(solver):
    run = simulation(Quorum(0.8), solver, precision="float64", stop=FixedRounds(1))
    run.to_the_end()
    engine = simulation(solver=solver, precision="float64").engine
    alone = one_round(engine, engine.start(), 0, np.arange(4), np.full(4, 2), 0.05, 1.0)
    np.testing.assert_allclose(run.state.model.w, alone.w, atol=1e-14)


def test_late_steps_count_for_a_solver_that_remembers_absent_clients():
    """Each starts from the model that it was sent: the same by hand, in NumPy."""
    speeds, eta, gamma = Measured((1.0, 1.2, 1.4, 1.6, 4.0), jitter=0.5), 0.05, 0.8
    run = simulation(
        Quorum(0.6),
        Memory(eta, gamma),
        speeds,
        work=Equal(tau=1),
        stop=FixedRounds(12),
        precision="float64",
    )
    replies = told(run)

    def gradient(i, w):
        x, y = linear_clients(5)[i]
        return x.T @ (x @ w - y) / len(y)

    def recalled(i, q):
        """Learn how client i differs from a step at round q's model; return what dbar gains."""
        w_q, dbar_q, m_q = sent[q]
        change = gradient(i, w_q) - delta[i] + dbar_q - m_q
        delta[i] += change
        return change / 5

    w, delta, dbar, time = np.zeros(3), np.zeros((5, 3)), np.zeros(3), 0.0
    sent, tasks, counted = [], [], []
    for number, reply in enumerate(replies):
        free = np.array([max([t[2] for t in tasks if t[0] == i], default=time) for i in range(5)])
        until = free + run.engine.world.seconds(number)
        end = np.sort(until)[2]
        active = np.flatnonzero(until <= end)
        came = [(i, q) for i, q, done in tasks if done <= end]
        gains = [recalled(i, q) for i, q in came if i in active]  # before they joined
        d = {i: gradient(i, w) - delta[i] + dbar for i in active}
        m = np.mean([*d.values()], axis=0)
        sent.append((w, dbar, m))
        w = w - eta * gamma * m
        for i in active:
            delta[i] += d[i] - m
        gains += [recalled(i, q) for i, q in came if i not in active]
        dbar = dbar + sum(gains)
        counted += came
        tasks = [task for task in tasks if task[2] > end]
        tasks += [(i, number, until[i]) for i in range(5) if until[i] > end and free[i] < end]
        assert reply.answered.tolist() == active.tolist()
        assert reply.seconds == pytest.approx(end - time)
        time = end
    late = [(i, q) for reply in replies for i, q in zip(*reply.late.columns[:2], strict=True)]
    assert late == counted
    assert len(late) > 8
    assert len({i for i, _ in late}) > 2
    model = run.state.model
    np.testing.assert_allclose(model.w, w, atol=1e-12)
    np.testing.assert_allclose(model.server, dbar, atol=1e-12)
    saved = run.engine.save(model, run.state.clock)
    np.testing.assert_allclose(saved["clients.own"], delta, atol=1e-12)


@pytest.mark.parametrize("solver", [FedGATE(eta=0.05), Memory(eta=0.05)])
def test_late_work_of_several_steps_never_counts(solver):
    run = simulation(Quorum(0.6), solver, Measured((1.0, 1.0, 1.0, 1.2, 1.2)), work=Equal(tau=2))
    replies = told(run)
    assert not any(len(reply.late) for reply in replies)
    own = run.engine.save(run.state.model, run.state.clock)["clients.own"]
    assert np.abs(own[:3]).max() > 0
    assert np.abs(own[3:]).max() == 0
    np.testing.assert_allclose(own.sum(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("patience", [Quorum(0.6), Deadline(7.0)])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("cut", [1, 3, 5])
def test_resume_keeps_what_is_under_way_and_what_was_learnt(tmp_path, patience, known, cut):
    speeds = Exponential(jitter=0.7, known=known)
    kind = dict(
        patience=patience,
        solver=FedGATE(eta=0.05),
        speeds=speeds,
        participation=Growing(2),
        stop=FixedRounds(3),
    )
    whole = simulation(**kind)
    whole.to_the_end()
    first = simulation(**kind, max_rounds=cut)
    first.to_the_end()
    first.save(tmp_path)
    second = simulation(**kind, resume=tmp_path)
    assert second.to_the_end().rows == whole.history.rows
    for name, run in (("a", whole), ("b", second)):
        run.save(tmp_path / name)
    files = [tmp_path / name / "checkpoint.safetensors" for name in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_speeds_that_are_not_known_are_learnt_from_a_race_and_from_reports():
    """Whoever has answered the probe when a stage begins is one of its clients."""
    growth = dict(participation=Growing(2), stop=FixedRounds(6))
    run = simulation(speeds=Measured(T, known=False), **growth)
    rows = list(run)
    assert rows[0].time == 2.0  # one step by everyone: the first two have answered
    assert [row.n for row in rows[1:]] == [2] * 6 + [4] * 6 + [5] * 6
    # The fifth answers in second 50, amid what would have been the last stage.
    seconds = [4.0] * 6 + [8.0] * 6 + [100.0] * 6
    assert np.diff([row.time for row in rows]).tolist() == seconds
    assert run.state.clock.order.tolist() == [0, 1, 2, 3, 4]
    known = simulation(**growth)
    assert [row.n for row in known] == [row.n for row in rows]
    np.testing.assert_array_equal(run.state.model.w, known.state.model.w)


@pytest.mark.parametrize("cut", [6, 9, 10, 12])
def test_who_has_come_during_a_stage_is_not_forgotten_by_a_resume(tmp_path, cut):
    """The fifth comes in the fourth of the rounds of four; they would else be the last."""
    kind = dict(speeds=Measured(T, known=False), participation=Growing(2), stop=FixedRounds(6))
    whole = simulation(**kind).to_the_end().rows
    assert whole[-1].n == 5
    first = simulation(**kind, max_rounds=cut)
    first.to_the_end()
    first.save(tmp_path)
    assert simulation(**kind, resume=tmp_path).to_the_end().rows == whole


def test_where_everyone_is_awaited_a_probe_takes_as_long_as_the_slowest():
    unknown, known = (simulation(speeds=Measured(T, known=k)) for k in (False, True))
    rows = list(unknown)
    assert rows[0].time == 50.0
    assert [row.time - 50.0 for row in rows] == [row.time for row in known]
    assert unknown.state.clock.order.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(unknown.state.model.w, known.state.model.w)


def test_what_is_estimated_follows_the_latest_reports():
    """A client that gets slow is ranked behind the others, one odd round does not matter."""
    clock = Clock().hearing([(0, 1.0, 0.5), (1, 2.0, 0.0)])
    odd = clock.hearing([(0, 9.0, 8.0), (0, 1.0, 0.5)])
    assert odd.T(2).tolist() == [1.0, 2.0]
    assert odd.exchange(2).tolist() == [0.5, 0.0]
    assert odd.ranked(np.arange(2), odd.T(2)).order.tolist() == [0, 1]
    slow = clock.hearing([(0, 9.0, 0.5)] * 3)
    assert slow.ranked(np.arange(2), slow.T(2)).order.tolist() == [1, 0]
    assert clock.T(2).tolist() == [1.0, 2.0]  # a clock is never changed


def told(run):
    """Return the replies of a run to its end."""
    replies, ask = [], run.engine.ask
    run.engine.ask = lambda *args: replies.append(ask(*args)) or replies[-1]
    list(run)
    return [reply for reply in replies if reply.round.number < run.state.rounds]


@pytest.mark.parametrize("solver", [FedAvg(eta=0.05), Memory(eta=0.05)])
@pytest.mark.parametrize("tau", [1, 2])
@pytest.mark.parametrize("network", [Free(), Exchange(0.5)])
def test_every_second_of_everyone_is_accounted_for(solver, tau, network):
    run = simulation(
        Quorum(0.8),
        solver,
        Exponential(jitter=0.5),
        network=network,
        participation=RandomK(4),
        work=Equal(tau=tau),
        stop=FixedRounds(20),
    )
    replies = told(run)
    for reply in replies:
        spent, n = reply.spent, len(reply.round.active)
        assert spent.clients[:n].tolist() == reply.round.active.tolist()
        parts = np.array([spent.work, spent.transfer, spent.lost, spent.waiting])
        assert parts.min() >= 0
        np.testing.assert_allclose(parts.sum(axis=0), reply.seconds)
        assert spent.busy == pytest.approx(parts[:3].sum())
        assert spent.idle(n, reply.seconds) == pytest.approx(parts[3, :n].mean() / reply.seconds)
        late = ~np.isin(spent.clients[:n], reply.answered)
        if not (solver.remembers_absent and tau == 1):  # else late steps are no loss
            np.testing.assert_allclose(spent.lost[:n][late], reply.seconds)
    last = run.history.rows[-1]
    assert last.spent == pytest.approx(sum(reply.spent.busy for reply in replies))
    assert last.lost == pytest.approx(sum(reply.spent.lost.sum() for reply in replies))
    assert 0 < last.lost < last.spent


@pytest.mark.parametrize("solver", [FedAvg(eta=0.05), Memory(eta=0.05)])
def test_late_steps_are_told_when_they_come_in(solver):
    """To a solver that has a use for them; whoever sends them, the bytes are counted."""
    speeds = Measured((1.0, 1.0, 1.0, 1.0, 3.5))
    run = simulation(Quorum(0.8), solver, speeds, work=Equal(tau=1))
    late = [reply.late for reply in told(run)]
    came = [np.stack([each.client, each.number, each.until], axis=1) for each in late]
    expected = [[4, 0, 3.5]] if solver.remembers_absent else []
    assert np.concatenate(came).tolist() == expected
    assert run.history.rows[-1].sent == (6 * 4 + 1) * 3 * 4
    server = 2 if solver.remembers_absent else 1  # its state goes out with w
    assert run.history.rows[-1].received == (6 * 4 + 2) * server * 3 * 4


def test_the_first_of_those_who_are_asked_are_enough():
    run = simulation(First(2), participation=RandomK(2, over=1.5), stop=FixedRounds(20))
    for reply in told(run):
        assert len(reply.round.active) == 3
        assert len(reply.answered) == 2
    assert First(9).ends(3) == All().ends(3)
