"""Rounds that end early, work that outlasts them, and speeds that must be learnt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp import Method, prepare
from flanp.clock import Clock
from flanp.data import from_clients
from flanp.engine import Late
from flanp.participation import Everyone, Growing
from flanp.patience import All, Deadline, Ends, Quorum
from flanp.problems import LinearRegression
from flanp.solvers import FedAvg, FedGATE, Scaffold
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
    assert [late.client for late in run.state.model.under_way] == [4]
    assert run.state.model.under_way[0].number == 0  # it has been at its first task all along
    assert run.state.model.under_way[0].until == 100.0


def test_whoever_is_done_with_old_work_takes_part_again():
    run = simulation(Quorum(0.8), speeds=Measured((1.0, 1.0, 1.0, 1.0, 3.5)))
    assert [row.n for row in run] == [0, 4, 4, 4, 4, 4, 4]
    late = run.state.model.under_way
    assert [(each.client, each.number) for each in late] == [(4, 3)]  # from second 7 to 14


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


@pytest.mark.parametrize("solver", [FedAvg(eta=0.05), FedGATE(eta=0.05), Scaffold(eta=0.05)])
def test_late_work_is_that_of_the_model_it_was_asked_for(solver):
    """Clients that start from models of their own send what they would have sent in time."""
    run = simulation(Quorum(0.6), solver, precision="float64", work=Equal(tau=3, batch=4))
    list(run)
    model, engine = run.state.model, run.engine
    assert {late.client for late in model.under_way} == {3, 4}
    messages = engine.work(model, model.under_way)
    for late, message in zip(model.under_way, messages, strict=True):
        start = model._replace(w=model.past[late.number][0], server=model.past[late.number][1])
        saved = engine.save(start._replace(under_way=(), past={}), run.state.clock)
        fresh, _ = engine.load(saved, run.state.clock)  # a round uses up what it is given
        alone = one_round(
            engine, fresh, late.number, np.array([late.client]), np.array([3]), 0.05, 1.0
        )
        step = 0.05 * (1 if isinstance(solver, FedAvg) else 3)
        np.testing.assert_allclose(np.asarray(start.w) - step * message, alone.w, atol=1e-13)


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


def test_speeds_that_are_not_known_are_learnt_from_a_probe_and_from_reports():
    run = simulation(speeds=Measured(T, known=False), participation=Growing(2), stop=FixedRounds(2))
    rows = list(run)
    assert rows[0].time == 50.0  # one step by everyone
    assert run.state.clock.order.tolist() == [0, 1, 2, 3, 4]
    assert [row.n for row in rows] == [0, 2, 2, 4, 4, 5, 5]
    known = simulation(participation=Growing(2), stop=FixedRounds(2))
    assert [row.time - 50.0 for row in rows] == [row.time for row in known]
    np.testing.assert_array_equal(run.state.model.w, known.state.model.w)


def test_what_is_estimated_follows_the_latest_reports():
    """A client that gets slow is ranked behind the others, one odd round does not matter."""
    clock = Clock().hearing([(0, 1.0), (1, 2.0)])
    odd = clock.hearing([(0, 9.0), (0, 1.0)])
    assert odd.ranked(np.arange(2), 2).order.tolist() == [0, 1]
    slow = clock.hearing([(0, 9.0)] * 3)
    assert slow.ranked(np.arange(2), 2).order.tolist() == [1, 0]
    assert clock.T(2).tolist() == [1.0, 2.0]  # a clock is never changed


def test_every_second_of_a_participant_is_accounted_for():
    run = simulation(Quorum(0.8), speeds=Exponential(jitter=0.5))
    engine, replies = run.engine, []
    ask = engine.ask
    engine.ask = lambda *args: replies.append(ask(*args)) or replies[-1]
    list(run)
    for reply in replies:
        spent = reply.spent
        busy = spent.work + spent.transfer + spent.lost
        assert (busy <= reply.seconds * (1 + 1e-12)).all()
        late = ~np.isin(reply.round.active, reply.answered)
        np.testing.assert_allclose(spent.lost[late], reply.seconds)
        assert (spent.lost[~late] <= reply.seconds - spent.work[~late] + 1e-12).all()


def test_late_work_is_told_when_it_comes_in():
    run = simulation(Quorum(0.8), speeds=Measured((1.0, 1.0, 1.0, 1.0, 3.5)))
    engine, late = run.engine, []
    ask = engine.ask
    engine.ask = lambda *args: late.append((reply := ask(*args)).late) or reply
    list(run)
    came = [each for group in late for each in group]
    assert all(isinstance(each, Late) for each in came)
    assert [(each.client, each.number, each.until) for each in came] == [(4, 0, 7.0)]
