"""What the simulators share: all clients on this machine, with a virtual clock."""

from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from flanp.clock import Heard
from flanp.data.federated import FederatedData
from flanp.engine import Roll
from flanp.problems import Objective
from flanp.simulator.backend import Backend, Machine
from flanp.simulator.world import World
from flanp.solvers import Solver
from flanp.solvers.asynchronous import AsyncSolver
from flanp.trees import Tree, Vector, leaves


class Held(Protocol):
    """What a simulator keeps of a run."""

    @property
    def w(self) -> Vector:
        """The global model, as one vector."""


H = TypeVar("H", bound=Held)


class SimulatedClients(Generic[H]):
    """All clients: who is there, what is known of them, what can be seen of a model."""

    def __init__(
        self,
        problem: Objective,
        data: FederatedData,
        solver: Solver | AsyncSolver,
        world: World,
        first: int = 1,
        *,
        backend: Backend,
        **options: Any,
    ):
        """Set the clients up; see the backend's machine for the options.

        Args:
            problem: what is minimised.
            data: the clients' samples.
            solver: the federated solver.
            world: how long the clients really take.
            first: where speeds are not known, how many clients are awaited at the start.
            backend: what computes.
            options: batch, seed, precision, chunk, metrics, row_by_row, devices.
        """
        self.machine: Machine = backend.machine(problem, data, solver, world.ranking, **options)
        self.world, self.s = world, data.s
        self._roll = Roll(self.machine.everyone, self.s)
        each, size = np.dtype(self.machine.precision).itemsize, self.machine.size
        carried = each * self.machine.carried
        self._message_bytes = solver.compression.message_bytes(size, each) + carried
        told = leaves(solver.tell(solver.server_start(np.zeros(size, self.machine.precision))))
        self._model_bytes = each * (size + sum(map(np.size, told.values()))) + carried
        self._probe = np.zeros(data.N) if world.known else world.probe()
        self._answers = self._probe + self.exchange()
        self._awaited = float(np.sort(self._answers)[min(first, data.N) - 1])

    @property
    def metrics(self) -> dict[str, bool | None]:
        """The names of what `evaluate` returns; whether higher is better, if that is known."""
        return self.machine.metrics

    def exchange(self) -> np.ndarray:
        """Return the seconds that the exchange of a round takes each client at the start."""
        down, up = self.world.exchange(0.0, self._model_bytes, self._message_bytes)
        return down + up

    def roll(self, model: H, time: float) -> Roll:
        """Return all clients; where their speeds are not known, those who have answered a probe.

        The probe is one step by everyone, a race that is over when the first have answered; the
        others are heard when they do.
        """
        del model
        if self.world.known:
            return self._roll
        now = max(time, self._awaited)
        there = self._roll.clients
        if now < self._answers.max():
            there = np.flatnonzero(self._answers <= now)
        return Roll(there, self.s, self._probed(-1.0, now) if now > time else (), now - time)

    def evaluate(self, model: H, rounds: int) -> dict[str, float]:
        """Return the metrics on held-out data and the distance to w*, where there are any."""
        del rounds
        return self.machine.evaluate(model.w)

    def params(self, model: H) -> Tree:
        """Return the global model as the problem's own pytree."""
        return self.machine.params(model.w)

    def named(self, model: H) -> dict[str, np.ndarray]:
        """Return the arrays of the global model by name."""
        return self.machine.named(model.w)

    def _probed(self, after: float, until: float) -> Heard:
        """Return who has answered the probe in some time."""
        if self.world.known:
            return ()
        new = np.flatnonzero((self._answers > after) & (self._answers <= until))
        exchange = self._answers - self._probe
        return tuple((int(i), float(self._probe[i]), float(exchange[i])) for i in new)
