"""Who answers a round in time, and where the seconds of its clients go."""

from typing import NamedTuple

import numpy as np

from flanp.checks import BadInput
from flanp.clock import Heard
from flanp.engine import Round, Spent
from flanp.patience import TRIES
from flanp.simulator.world import Fates, World
from flanp.tasks import NO_TASKS, Tasks


class Outcome(NamedTuple):
    """What comes of a round, but for the work itself."""

    answered: np.ndarray
    tau: np.ndarray
    """Local steps of those who answered."""
    seconds: float
    spent: Spent
    heard: Heard
    came: Tasks
    """Work that came in beside theirs."""
    done: Tasks
    """What of it is of use."""
    under_way: Tasks
    """Work that goes on."""
    asked: int
    """How many were sent the model."""


def outcome(
    world: World, round_: Round, under_way: Tasks, to: int, back: int, beside: int | None = None
) -> Outcome:
    """Return what comes of a round in which `to` bytes go to each client and `back` bytes back.

    Whoever is still at work on an earlier task begins when that is done; whoever is away is not
    asked. A client that drops out is noticed when it does, and asked again if it is there and may
    be back, by its known speed, before the slowest of those asked. Where nobody is there,
    the round passes until somebody is. `beside` are the bytes of a message that nobody waits for,
    of a single step, where such messages count.
    """
    at, active = round_.at, round_.active
    begins = _delays(under_way, active, at)
    fates = _fates(world, round_, begins, to, back)
    there = world.there(at)
    asked = np.ones(len(active), bool) if there is None else there[active]
    tries = np.ones(len(active), int)
    if asked.any() and not fates.ok.all():
        begins, fates, tries = _tried_again(world, round_, begins, fates, asked, to, back)
    ok, ends = fates.ok & asked, np.where(asked, begins + fates.ends, 0.0)
    seconds = round_.ends.of(ends, ok) if asked.any() else _until_somebody_is_there(world, round_)
    end, in_time = at + seconds, ok & (ends <= seconds)
    sent = asked & ((begins < seconds) | in_time)
    tasks, more = under_way, NO_TASKS
    if not in_time.all():
        # Without a participant in time there is nothing to set the others' messages against.
        of_use = ok & in_time.any()
        late = (ends > seconds) & sent
        tasks += _begun(round_, active, round_.tau, fates, begins, of_use, late)
    if len(round_.background) and in_time.any():
        more = _background(world, round_, under_way, to, beside or back)
        tasks += more
    over = tasks.until <= end
    came = tasks[over & tasks.ok]
    counts = tasks.ok & (tasks.tau == 1) & (beside is not None)
    return Outcome(
        answered=active[in_time],
        tau=round_.tau[in_time],
        seconds=seconds,
        spent=_spent(round_, fates, in_time, np.where(asked, ends, 0.0), seconds, tasks, counts),
        heard=() if world.known else _reports(active, fates, in_time, came),
        came=came,
        done=tasks[over & counts],
        under_way=tasks[~over],
        asked=int(tries[sent].sum()) + len(more),
    )


def _until_somebody_is_there(world: World, round_: Round) -> float:
    """Return the seconds until the first of the participants, who are all away, is back."""
    seconds = float(world.back(round_.at)[round_.active].min()) - round_.at
    if seconds == np.inf:
        raise BadInput(
            "nobody who is to take part is there, or comes back: see `availability`, and its trace"
        )
    return seconds


def _delays(under_way: Tasks, clients: np.ndarray, at: float) -> np.ndarray:
    """Return after how many seconds each client is done with earlier work."""
    if not len(under_way):
        return np.zeros(len(clients))
    until = np.zeros(max(int(clients.max()), int(under_way.client.max())) + 1)
    until[under_way.client] = under_way.until
    return np.maximum(until[clients] - at, 0.0)


def _fates(
    world: World, round_: Round, begins: np.ndarray, to: int, back: int, *again: int
) -> Fates:
    """Return what becomes of the participants' tasks, each of which begins after some seconds."""
    active, tau, number = round_.active, round_.tau, round_.number
    fates = world.fates(active, tau, number, round_.at, to, back, *again)
    if world.timeless:
        return fates
    for k in np.flatnonzero(begins):
        one, at = slice(k, k + 1), round_.at + float(begins[k])
        for column, value in zip(
            fates, world.fates(active[one], tau[one], number, at, to, back, *again), strict=True
        ):
            column[one] = value
    return fates


def _tried_again(
    world: World,
    round_: Round,
    begins: np.ndarray,
    fates: Fates,
    asked: np.ndarray,
    to: int,
    back: int,
) -> tuple[np.ndarray, Fates, np.ndarray]:
    """Return when the participants' last tries begin, what becomes of these, how many there were.

    As long as the round lasts, whoever has dropped out is asked again if it can be back in time.
    """
    active, tau = round_.active, round_.tau
    expected = tau * round_.T[active] + round_.exchange[active]
    known = expected[asked & np.isfinite(expected)]
    slowest = min(known.max(initial=0.0), round_.ends.deadline)
    tries = [(begins, fates)]
    for again in range(1, TRIES):
        lost_at = begins + fates.ends
        which = asked & ~fates.ok & np.isfinite(expected) & (lost_at + expected <= slowest)
        which &= _there(world, active, round_.at + lost_at, which)
        if not which.any():
            break
        some = round_._replace(active=active[which], tau=tau[which])
        begins = np.where(which, lost_at, begins)
        fates = Fates(*(column.copy() for column in fates))
        new = _fates(world, some, begins[which], to, back, again)
        for column, values in zip(fates, new, strict=True):
            column[which] = values
        tries.append((begins, fates))
    answers = np.where(asked, begins + fates.ends, 0.0), fates.ok & asked
    seconds, count = round_.ends.of(*answers), np.ones(len(active), int)
    begins, fates = tries[0]
    for begins_again, fates_again in tries[1:]:
        which = (begins_again > begins) & (begins_again < seconds)
        count += which
        begins = np.where(which, begins_again, begins)
        columns = zip(fates, fates_again, strict=True)
        fates = Fates(*(np.where(which, b, a) for a, b in columns))
    return begins, fates, count


def _there(world: World, clients: np.ndarray, times: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return whether clients are there, each at a time of its own; only some are asked about."""
    if world.presence is None:
        return which
    there = which.copy()
    for k in np.flatnonzero(which):
        time = float(times[k]) * (1 + 1e-12)  # rounding must not put it before it left
        there[k] = world.presence.there(time)[clients[k]]
    return there


def _begun(
    round_: Round,
    clients: np.ndarray,
    tau: np.ndarray,
    fates: Fates,
    begins: np.ndarray,
    ok: np.ndarray,
    which: np.ndarray,
) -> Tasks:
    """Return the tasks of this round that outlast it, or that nobody waits for."""
    count = int(which.sum())
    if not count:
        return NO_TASKS
    return Tasks(
        client=clients[which],
        number=np.full(count, round_.number),
        began=(round_.at + begins)[which],
        until=(round_.at + begins + fates.ends)[which],
        tau=tau[which],
        eta=np.full(count, round_.eta),
        T=fates.T[which],
        exchange=(fates.down + fates.up)[which],
        ok=ok[which],
    )


def _background(world: World, round_: Round, under_way: Tasks, to: int, back: int) -> Tasks:
    """Return the new tasks of clients that take no part and are at leisure."""
    free = np.zeros(len(world.T), bool)
    free[round_.background] = True
    free[under_way.client] = False
    there = world.there(round_.at)
    clients = np.flatnonzero(free if there is None else free & there)
    one, none = np.ones(len(clients), int), np.zeros(len(clients))
    fates = world.fates(clients, one, round_.number, round_.at, to, back)
    return _begun(round_, clients, one, fates, none, fates.ok, one.astype(bool))


def _spent(
    round_: Round,
    fates: Fates,
    in_time: np.ndarray,
    ends: np.ndarray,
    seconds: float,
    tasks: Tasks,
    counts: np.ndarray,
) -> Spent:
    """Say where the seconds went: of the participants, then of the others who were at work."""
    work = np.where(in_time, fates.work, 0.0)
    transfer = np.where(in_time, fates.down + fates.up, 0.0)
    waiting = np.maximum(seconds - ends, 0.0)
    lost = np.maximum(seconds - waiting - work - transfer, 0.0)
    clients = round_.active
    if not len(tasks):
        return Spent(clients, work, transfer, lost, waiting)
    others = np.setdiff1d(tasks.client, clients)
    clients = np.concatenate([clients, others])
    more = np.zeros(len(others))
    work, transfer, lost = (np.concatenate([a, more]) for a in (work, transfer, lost))
    place = np.zeros(int(clients.max()) + 1, int)
    place[clients] = np.arange(len(clients))
    index, (worked, moved) = place[tasks.client], tasks.within(round_.at, round_.at + seconds)
    beside = index >= len(round_.active)
    np.add.at(work, index, np.where(counts, worked, 0.0))
    np.add.at(transfer, index, np.where(counts, moved, 0.0))
    # What participants did besides is counted as lost so far.
    np.add.at(lost, index, np.where(counts, -(worked + moved) * ~beside, (worked + moved) * beside))
    rest = np.maximum(seconds - (work + transfer + lost)[len(waiting) :], 0.0)
    return Spent(clients, work, transfer, np.maximum(lost, 0.0), np.concatenate([waiting, rest]))


def _reports(active: np.ndarray, fates: Fates, in_time: np.ndarray, done: Tasks) -> Heard:
    """Return what the server learns of the clients' speeds: of late work first."""
    clients = np.concatenate([done.client, active[in_time]])
    T = np.concatenate([done.T, fates.T[in_time]])
    exchange = np.concatenate([done.exchange, (fates.down + fates.up)[in_time]])
    return tuple(zip(clients.tolist(), T.tolist(), exchange.tolist(), strict=True))
