"""Holding rounds: local steps by the workers, all other steps of the solver in NumPy."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from flanp.order import round_key, uniforms
from flanp.pytorch.machine import TorchMachine
from flanp.pytorch.tables import for_each, put, row
from flanp.pytorch.workers import Job
from flanp.simulator.kept import Model
from flanp.solvers import ClientState, Solver, Step
from flanp.solvers.base import step_of
from flanp.solvers.training import Posted, Training
from flanp.streams import NOISE
from flanp.tasks import Tasks
from flanp.trees import Number, Tree, as_arrays, transform


class Task(NamedTuple):
    """Local work of one client."""

    client: int
    number: int
    """Of the round."""
    tau: int
    length: Number
    """How many plain steps the tau local steps come to."""
    eta: float
    model: np.ndarray
    """What it starts from."""
    told: Tree
    """What it was told of the server's state."""


class TorchRounds:
    """Holds rounds; the mean messages are added up in the participants' order."""

    def __init__(self, machine: TorchMachine, solver: Solver):
        self.machine, self.solver = machine, solver
        self.number = np.dtype(machine.precision).type

    def start(self) -> Model:
        """Return the start model."""
        machine, remembers = self.machine, self.solver.remembers_absent
        w = machine.start_w
        heard = np.zeros(len(machine.s) * remembers, bool)
        model = Model(w, (), (), (), np.zeros_like(w[: machine.size * remembers]), heard=heard)
        return self._afresh(model)

    def restart(self, model: Model) -> Model:
        """Keep w and start the solver afresh, unless it remembers."""
        return model if self.solver.remembers_absent else self._afresh(model)

    def _afresh(self, model: Model) -> Model:
        w = model.w[: self.machine.size]
        server, client = as_arrays(self.solver.server_start(w)), self.solver.join(w)
        return model._replace(server=server, clients=for_each(client, len(self.machine.s)))

    def round(
        self,
        model: Model,
        number: int,
        answered: np.ndarray,
        tau: np.ndarray,
        eta: float,
        gamma: float,
        pool: float,
    ) -> Model:
        """Run a round with those who answered, tau_i local steps each, of a pool of samples."""
        machine, solver, model = self.machine, self.solver, self._to_write(model)
        s, length = machine.s[answered], solver.local.length(tau)
        step = Step(*np.array(step_of(eta, gamma, s, length, pool), machine.precision))
        told, P = solver.tell(model.server), machine.size
        w, buffers = model.w[:P], model.w[P:]
        m, m_1, moved = np.zeros_like(w), np.zeros_like(model.m_1), np.zeros_like(buffers)
        tasks = [
            Task(int(i), number, int(t), self.number(n), eta, model.w, told)
            for i, t, n in zip(answered, tau, length, strict=True)
        ]
        posts = []
        with machine.running():
            for p, done in zip((s / s.sum()).astype(w.dtype), self.work(model, tasks), strict=True):
                m += p * done.m_i
                moved += p * moved_by(done.buffers, buffers)
                if len(m_1):
                    m_1 += p * done.first
                posts.append(done.posted)
            for task, posted in zip(tasks, posts, strict=True):
                before = row(model.clients, task.client)
                put(model.clients, task.client, solver.settle(before, told, posted, m, step))
            w, server = solver.server_step(w, model.server, m, step)
            buffers = np.where(moved == 0, buffers, buffers + moved)
        after = np.concatenate([w, buffers], dtype=model.w.dtype, casting="same_kind")
        return model._replace(w=after, server=as_arrays(server), m_1=m_1)

    def recall(self, model: Model, tasks: Tasks, eta: float, gamma: float) -> Model:
        """Return the model after the messages of clients that took no part in its rounds.

        Each starts from the model of the round that it was asked for in. Their buffers do not
        count, for they are of a single step from an old model.
        """
        machine, solver, model = self.machine, self.solver, self._to_write(model)
        s, S = machine.s[tasks.client], machine.s.sum()
        step = Step(*np.array(step_of(eta, gamma, s, tasks.tau, S), machine.precision))
        past = [model.past[number] for number in tasks.number.tolist()]
        columns = (tasks.client, tasks.number, tasks.tau, tasks.eta, past)
        asked = [
            Task(int(i), int(q), int(t), self.number(t), float(eta_q), at.w, at.server)
            for i, q, t, eta_q, at in zip(*columns, strict=True)
        ]
        change = transform(lambda a: np.zeros_like(a[0]), model.clients.own)
        with machine.running():
            worked = self.work(model, asked)
            for p, task, at, done in zip((s / S), asked, past, worked, strict=True):
                before = row(model.clients, task.client)
                after = solver.settle(before, task.told, done.posted, at.m_1, step)
                share = self.number(p)
                change = transform(
                    lambda total, a, b, share=share: total + share * (b - a),
                    *(change, before.own, after.own),
                )
                put(model.clients, task.client, after)
            return model._replace(server=as_arrays(solver.recall(model.server, change)))

    def _to_write(self, model: Model) -> Model:
        """Return a model whose clients' states may be written.

        Where absent clients are remembered, a round is several calls, and what fails between two of
        them must leave the state before it, which is saved then, as it was.
        """
        if not self.solver.remembers_absent:
            return model
        return model._replace(clients=transform(np.copy, model.clients))

    def work(self, model: Model, tasks: list[Task]) -> Iterator["Worked"]:
        """Yield what comes of each task, in their order."""
        machine, solver = self.machine, self.solver
        jobs = (job(solver, row(model.clients, task.client), task) for task in tasks)
        for task, done in zip(tasks, machine.workers.each(jobs), strict=True):
            client = row(model.clients, task.client)
            yield posted(solver, machine, client, task, done.vectors)


class Worked(NamedTuple):
    """What comes of local work."""

    m_i: np.ndarray
    """The message, as it arrives."""
    posted: Posted
    """What the client keeps of it."""
    buffers: np.ndarray
    """Of the module, after its last step."""
    first: np.ndarray
    """The first direction, where absent clients need it; else empty."""


def moved_by(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return how buffers have changed: those that have not may be masks, and infinite."""
    return np.where(after == before, before.dtype.type(0), after - before)


def job(solver: Training, client: ClientState, task: Task) -> Job:
    """Return what a worker is asked to do."""
    drift = np.reshape(solver.drift(client.own, task.told), -1)  # a number is a vector of one
    numbers = (task.client, task.number, task.tau, task.eta)
    return Job("train", (task.model, drift), numbers)


def posted(
    solver: Training,
    machine: TorchMachine,
    client: ClientState,
    task: Task,
    vectors: list[np.ndarray],
) -> Worked:
    """Return what a client makes of its local steps: its message, and what it keeps."""
    P, (end, *first) = machine.size, vectors
    w, u = task.model[:P], np.zeros(0, end.dtype)
    if solver.compression.random:
        u = uniforms(round_key(machine.seed, task.number, NOISE), task.client, w)
    Delta_i = (w - end[:P]) / end.dtype.type(task.eta)
    m_i, kept = solver.post(Delta_i, task.length, client, task.told, u)
    m_i = np.asarray(m_i, end.dtype)
    return Worked(m_i, kept, end[P:], first[0] if first else u[:0])
