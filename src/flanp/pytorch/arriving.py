"""Going through arrivals: local work as soon as its start model is known, the server's in order."""

import numpy as np

from flanp.engine import Round
from flanp.pytorch.machine import TorchMachine
from flanp.pytorch.rounds import Task, job, moved_by, posted
from flanp.pytorch.tables import for_each, put, row
from flanp.simulator.flights import Events
from flanp.simulator.kept import BY_CLIENT, Traffic
from flanp.solvers import ClientState
from flanp.solvers.asynchronous import Arrival, AsyncSolver
from flanp.trees import as_arrays, transform


class TorchArrivals:
    """A client's work depends on what it was sent alone, so workers do that of several at once."""

    def __init__(self, machine: TorchMachine, solver: AsyncSolver):
        self.machine, self.solver = machine, solver

    def start(self) -> Traffic:
        """Return the arrays at the start, when nobody has been sent a model."""
        machine, solver = self.machine, self.solver
        w, steps = machine.start_w, np.zeros((), np.int32)
        server, kept = (as_arrays(f(w[: machine.size])) for f in (solver.server_start, solver.join))
        told, noted = as_arrays((solver.tell(server), solver.note(server)))
        tables = (for_each(a, len(machine.s)) for a in (kept, w, told, noted, steps))
        return Traffic(w, server, steps, *tables)

    def arrive(self, traffic: Traffic, events: Events, round_: Round) -> tuple[Traffic, np.ndarray]:
        """Go through events; return what they lead to, and whether each message was used."""
        # The reply may be forgotten, so what it began with stays as it is.
        copies = {name: transform(np.copy, getattr(traffic, name)) for name in BY_CLIENT}
        going = Going(self, traffic._replace(**copies), events, round_)
        with self.machine.running():
            try:
                going.through()
            finally:
                self.machine.workers.forget(going.tickets.values())
        return going.traffic, going.used


class Going:
    """One pass through events."""

    def __init__(self, arrivals: TorchArrivals, traffic: Traffic, events: Events, round_: Round):
        self.machine, self.solver = arrivals.machine, arrivals.solver
        self.traffic, self.events, self.round = traffic, events, round_
        self.used = np.zeros(len(events.client), bool)
        self.tickets: dict[int, int] = {}
        """Of the jobs under way, by the event at which they are over."""
        self.tasks: dict[int, Task] = {}
        self._number = np.dtype(self.machine.precision).type
        self._lengths = self.solver.local.length(np.maximum(events.tau, 1))
        self._next = _next_of_client(events.client)

    def through(self) -> None:
        """Go through all events."""
        firsts = np.unique(self.events.client, return_index=True)[1]
        for e in np.sort(firsts).tolist():
            self._begin(e)  # sent off before this pass
        for e in range(len(self.events.client)):
            if self.events.arrives[e]:
                self._arrive(e)
            if self.events.departs[e]:
                self._depart(e)

    def _begin(self, e: int) -> None:
        """Let a worker do what is over at an event, if a message comes of it."""
        if not self.events.arrives[e]:
            return
        events, t = self.events, self.traffic
        i, tau = int(events.client[e]), int(events.tau[e])
        task = Task(
            *(i, int(events.number[e]), tau, self._number(self._lengths[e]), self.round.eta),
            *(t.start[i], row(t.told, i)),
        )
        self.tasks[e] = task
        self.tickets[e] = self.machine.workers.submit(job(self.solver, row(t.clients, i), task))

    def _arrive(self, e: int) -> None:
        t, i, task = self.traffic, int(self.events.client[e]), self.tasks.pop(e)
        vectors = self.machine.workers.collect(self.tickets.pop(e)).vectors
        client = row(t.clients, i)
        done = posted(self.solver, self.machine, client, task, vectors)
        P, weight = self.machine.size, self.machine.s / self.machine.s.mean()
        n, total = len(self.round.active), weight[self.round.active].sum()
        numbers = (t.steps - t.sent_at[i], weight[i], total, n, task.length)
        arrival = Arrival(
            *(task.model[:P], task.told, row(t.noted, i)),
            *map(self._number, (*numbers, self.round.eta, self.round.gamma)),
        )
        after = self.solver.arrive(t.w[:P], t.server, client.own, done.m_i, arrival)
        change = after.used * moved_by(done.buffers, t.w[P:]) / self._number(n)
        buffers = np.where(change == 0, t.w[P:], t.w[P:] + change)
        put(t.clients, i, ClientState(after.own, done.posted.error))
        self.used[e] = after.used > 0
        self.traffic = t._replace(
            w=np.concatenate([after.w, buffers], dtype=t.w.dtype, casting="same_kind"),
            server=as_arrays(after.server),
            steps=np.asarray(t.steps + after.stepped, np.int32),
        )

    def _depart(self, e: int) -> None:
        t, i = self.traffic, int(self.events.client[e])
        t.start[i], t.sent_at[i] = t.w, t.steps
        put(t.told, i, self.solver.tell(t.server))
        put(t.noted, i, self.solver.note(t.server))
        following = self._next[e]
        if following is not None:
            self._begin(following)


def _next_of_client(clients: np.ndarray) -> list[int | None]:
    """Return for each event the next one of the same client, if there is one."""
    following: list[int | None] = [None] * len(clients)
    last: dict[int, int] = {}
    for e, i in enumerate(clients.tolist()):
        if i in last:
            following[last[i]] = e
        last[i] = e
    return following
