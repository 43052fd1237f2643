"""Who is at work when, where clients do not wait for each other: the order of events."""

from dataclasses import dataclass, fields
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from flanp.checks import BadInput
from flanp.engine import Round, Spent
from flanp.simulator.world import World
from flanp.tasks import Tasks

ARRIVAL, DEPARTURE = 0, 1
"""Kinds of events: of those at one time, messages come before models go out."""


@dataclass(frozen=True)
class Flights:
    """What each client is at: of each array an entry for each client."""

    due: np.ndarray
    """When its message comes, or is lost; infinite if it is not at work."""
    ready: np.ndarray
    """When it is to be sent the model; infinite if it is not waiting for one."""
    began: np.ndarray
    """When it was sent the last one."""
    number: np.ndarray
    """How many it was sent."""
    tau: np.ndarray
    T: np.ndarray
    exchange: np.ndarray
    ok: np.ndarray
    """Whether its message comes."""

    @classmethod
    def none(cls, N: int) -> "Flights":
        """Return N clients at rest."""
        never, zero, whole = np.full(N, np.inf), np.zeros(N), np.zeros(N, int)
        return cls(never, never, zero, whole, whole, zero, zero, np.ones(N, bool))

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """Its arrays."""
        return tuple(getattr(self, field.name) for field in fields(self))


class Events(NamedTuple):
    """What happens, in order: of each array an entry for each event."""

    client: np.ndarray
    arrives: np.ndarray
    """Whether a message comes."""
    departs: np.ndarray
    """Whether the client is sent the model, afterwards."""
    number: np.ndarray
    """Of the task that a message is of."""
    tau: np.ndarray


class Course(NamedTuple):
    """What happens until so many messages have come, or been lost."""

    events: Events
    flights: Flights
    tasks: Tasks
    """What was over in that time."""
    event: np.ndarray
    """The event that ended each of them."""
    seconds: float
    sent: int
    """How many models went out."""


def course(
    world: World,
    flights: Flights,
    round_: Round,
    arrivals: int,
    to: int,
    back: int,
    period: np.ndarray,
) -> Course:
    """Return what happens from a time on, until so many messages have come or been lost.

    Whoever takes part and is at rest is sent the model at once, and again as soon as its message
    has come; but no sooner than `period` seconds after the last time.
    """
    due, ready, began, number, tau, T, exchange, ok = (a.tolist() for a in flights.columns)
    active = set(round_.active.tolist())
    steps = dict(zip(round_.active.tolist(), round_.tau.tolist(), strict=True))
    periods = period.tolist()
    usual: dict[int, tuple[float, float, float]] | None = None
    if world.steady:
        fates = world.fates(round_.active, round_.tau, 0, round_.at, to, back)
        each = (fates.ends.tolist(), fates.T.tolist(), (fates.down + fates.up).tolist())
        usual = dict(zip(round_.active.tolist(), zip(*each, strict=True), strict=True))
    heap = [(t, ARRIVAL, i) for i, t in enumerate(due) if t < np.inf]
    for i in active:
        if due[i] == np.inf:
            ready[i] = round_.at if ready[i] == np.inf else max(ready[i], round_.at)
            heap.append((ready[i], DEPARTURE, i))
    heapify(heap)
    events: list[tuple[int, bool, bool, int, int]] = []
    over: list[tuple[int, int, float, float, int, float, float, bool, int]] = []
    now, sent, left = round_.at, 0, arrivals
    while left:
        if not heap or heap[0][0] == np.inf:
            raise BadInput(
                "nobody is at work, and nobody comes back: see `availability`, and its trace"
            )
        now, kind, i = heappop(heap)
        if kind == ARRIVAL:
            left -= 1
            events.append((i, ok[i], False, number[i], tau[i]))
            task = (i, number[i], began[i], now, tau[i], T[i], exchange[i], ok[i])
            over.append((*task, len(events) - 1))
            due[i] = np.inf
            if i in active:
                ready[i] = max(now, began[i] + periods[i])
                heappush(heap, (ready[i], DEPARTURE, i))
            continue
        if world.presence is not None:
            comes = float(world.back(now)[i])
            if comes > now:
                ready[i] = comes
                heappush(heap, (comes, DEPARTURE, i))
                continue
        number[i] += 1
        tau[i], began[i], ready[i] = steps[i], now, np.inf
        if usual is not None:
            takes, T[i], exchange[i] = usual[i]
        else:
            fate = world.fates(np.array([i]), np.array([tau[i]]), number[i], now, to, back)
            takes, T[i], ok[i] = float(fate.ends[0]), float(fate.T[0]), bool(fate.ok[0])
            exchange[i] = float(fate.down[0] + fate.up[0])
        due[i] = now + takes
        heappush(heap, (due[i], ARRIVAL, i))
        sent += 1
        if events and events[-1][0] == i:
            events[-1] = (*events[-1][:2], True, *events[-1][3:])
        else:
            events.append((i, False, True, 0, 0))
    columns = (due, ready, began, number, tau, T, exchange, ok)
    after = Flights(*(np.array(c, a.dtype) for c, a in zip(columns, flights.columns, strict=True)))
    client, arrives, departs, of, local = map(np.array, zip(*events, strict=True))
    who, of_, began_at, until, done, T_i, exchange_i, came, event = map(
        np.array, zip(*over, strict=True)
    )
    eta = np.full(len(over), round_.eta)
    tasks = Tasks(who, of_, began_at, until, done, eta, T_i, exchange_i, came)
    happened = Events(client, arrives, departs, of, local)
    # A round's begin can be rounded to just after what happens then.
    return Course(happened, after, tasks, event, max(now - round_.at, 0.0), sent)


def spent(course_: Course, used: np.ndarray, clients: np.ndarray, at: float) -> Spent:
    """Say where the seconds went, of those who take part first.

    What turns out to be of no use was counted as work while it was done: that is put right here,
    so an entry can be below zero.
    """
    end, N = at + course_.seconds, len(course_.flights.due)
    work, transfer, lost = np.zeros(N), np.zeros(N), np.zeros(N)
    tasks = course_.tasks
    worked, moved = tasks.within(at, end)
    whole = tasks.within(-np.inf, np.inf)
    np.add.at(work, tasks.client, np.where(used, worked, worked - whole[0]))
    np.add.at(transfer, tasks.client, np.where(used, moved, moved - whole[1]))
    np.add.at(lost, tasks.client, np.where(used, 0.0, whole[0] + whole[1]))
    f = course_.flights
    busy = np.isfinite(f.due)
    under_way = Tasks(
        np.flatnonzero(busy),
        *(a[busy] for a in (f.number, f.began, f.due, f.tau, f.T, f.T, f.exchange, f.ok)),
    )
    worked, moved = under_way.within(at, end)
    work[busy] += worked
    transfer[busy] += moved
    others = np.setdiff1d(np.union1d(tasks.client, under_way.client), clients)
    order = np.concatenate([clients, others])
    waiting = np.maximum(course_.seconds - work - transfer - lost, 0.0)
    return Spent(order, work[order], transfer[order], lost[order], waiting[order])
