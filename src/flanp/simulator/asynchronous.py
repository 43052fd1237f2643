"""The simulator of asynchronous methods: clients do not wait for each other."""

from typing import Any, NamedTuple

import numpy as np

from flanp.clock import Clock, Heard
from flanp.data.federated import FederatedData
from flanp.engine import Reply, Round
from flanp.measurement import Look, Seen
from flanp.problems import Objective
from flanp.simulator.backend import Backend
from flanp.simulator.clients import SimulatedClients
from flanp.simulator.compiled import COMPILED
from flanp.simulator.flights import Flights, course, spent
from flanp.simulator.kept import BY_CLIENT, Traffic
from flanp.simulator.saving import load_clock, require_names, save_clock
from flanp.simulator.world import World
from flanp.solvers.asynchronous import AsyncSolver
from flanp.trees import Vector, leaves, rebuild

FLIGHTS = "flights"


class AsyncModel(NamedTuple):
    """What the simulator keeps of a run."""

    w: Vector
    traffic: Traffic
    """All arrays; its w is the same."""
    flights: Flights


class AsyncSimulator(SimulatedClients[AsyncModel]):
    """An engine (flanp.engine) whose round is as many arrivals as there are clients at work.

    The order of events depends on times alone, so it is found first; then the backend does all the
    work between two looks at the model.
    """

    def __init__(
        self,
        problem: Objective,
        data: FederatedData,
        solver: AsyncSolver,
        world: World,
        first: int = 1,
        *,
        backend: Backend = COMPILED,
        **options: Any,
    ):
        """Set the clients up; see `SimulatedClients`."""
        super().__init__(problem, data, solver, world, first, backend=backend, **options)
        self.solver, self.arrivals = solver, backend.arrivals(self.machine, solver)

    def start(self) -> AsyncModel:
        """Return the start model."""
        traffic = self.arrivals.start()
        return AsyncModel(traffic.w, traffic, Flights.none(len(self.s)))

    def restart(self, model: AsyncModel) -> AsyncModel:
        """Return the model as it is: clients at work have no stages."""
        return model

    def ask(self, model: AsyncModel, round_: Round, look: Look) -> Reply:
        """Let messages come until there are as many as the round asks for."""
        what = course(
            self.world,
            model.flights,
            round_,
            round_.ends.enough,
            self._model_bytes,
            self._message_bytes,
            self._periods(round_),
        )
        traffic, used = self.arrivals.arrive(model.traffic, what.events, round_)
        came = what.tasks[what.tasks.ok]
        heard: Heard = ()
        if not self.world.known:
            columns = (came.client.tolist(), came.T.tolist(), came.exchange.tolist())
            heard = tuple(zip(*columns, strict=True))
        return Reply(
            round=round_,
            answered=round_.active,
            seconds=what.seconds,
            spent=spent(what, used[what.event], round_.active, round_.at),
            seen=self.look(model, round_.active, look),
            sent=len(came) * self._message_bytes,
            received=what.sent * self._model_bytes,
            heard=(*self._probed(round_.at, round_.at + what.seconds), *heard),
            content=AsyncModel(traffic.w, traffic, what.flights),
        )

    def apply(self, model: AsyncModel, reply: Reply) -> AsyncModel:
        """Return the model after the arrivals."""
        after: AsyncModel = reply.content
        return after

    def look(self, model: AsyncModel, active: np.ndarray, look: Look) -> Seen:
        """Return loss and gradient of w over the active clients and over all, as asked."""
        return self.machine.look(model.w, active, look)

    def save(self, model: AsyncModel, clock: Clock) -> dict[str, np.ndarray]:
        """Return all arrays by name, with a row for each client by id."""
        order = self.machine.place.row_of_client
        arrays = {name: np.asarray(a) for name, a in leaves(model.traffic._asdict()).items()}
        for name in arrays:
            if _by_client(name):
                arrays[name] = arrays[name][order]
        names = (f"{FLIGHTS}.{column}" for column in Flights.__dataclass_fields__)
        return arrays | dict(zip(names, model.flights.columns, strict=True)) | save_clock(clock)

    def load(self, arrays: dict[str, np.ndarray], clock: Clock) -> tuple[AsyncModel, Clock]:
        """Return the model and the clock that `save` was given, bit for bit."""
        start, order = self.start().traffic._asdict(), self.machine.place.row_of_client
        with self.machine.running():
            found = {}
            for name in require_names(arrays, leaves(start)):
                a = arrays[name]
                if _by_client(name):
                    a = a[np.argsort(order)]
                found[name] = self.machine.place.put(a)
            traffic = Traffic(**rebuild(start, found))
        flights = Flights(*(arrays[f"{FLIGHTS}.{k}"] for k in Flights.__dataclass_fields__))
        return AsyncModel(traffic.w, traffic, flights), load_clock(arrays, clock)

    def _periods(self, round_: Round) -> np.ndarray:
        """Return the least time between two models that a client is sent."""
        periods = np.zeros(len(self.s))
        if self.solver.cap is not None:
            seconds = round_.tau * round_.T[round_.active] + round_.exchange[round_.active]
            periods[round_.active] = np.median(seconds) / self.solver.cap
        return periods


def _by_client(name: str) -> bool:
    """Whether an array of the traffic has a row for each client."""
    return name.split(".")[0] in BY_CLIENT
