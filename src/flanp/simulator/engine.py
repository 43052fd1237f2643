"""The engine that simulates all clients on this machine, with a virtual clock."""

from typing import Any, NamedTuple

import numpy as np

from flanp.clock import Clock, Heard
from flanp.data.federated import FederatedData
from flanp.engine import Late, Reply, Roll, Round, Spent
from flanp.measurement import Look, Seen
from flanp.problems import Problem
from flanp.simulator.machine import Machine, Model
from flanp.simulator.saving import load_arrays, save_arrays
from flanp.simulator.world import World
from flanp.solvers import Solver
from flanp.trees import Tree


class Content(NamedTuple):
    """What makes a round's messages, when its reply is applied."""

    tau: np.ndarray
    """Local steps of those who answered."""
    under_way: tuple[Late, ...]
    """Work that goes on."""


class Simulator:
    """An engine (flanp.engine) that simulates all clients: their work, and how long it takes."""

    def __init__(
        self, problem: Problem, data: FederatedData, solver: Solver, world: World, **options: Any
    ):
        """Set the clients up; see `Machine` for the options.

        Args:
            problem: what is minimised.
            data: the clients' samples.
            solver: the federated solver.
            world: how long the clients really take.
            options: batch, seed, precision, chunk, metrics.
        """
        self.machine = Machine(problem, data, solver, world.ranking, **options)
        self.world, self.s = world, data.s
        self._roll = Roll(self.machine.everyone, self.s)
        self._message_bytes = solver.compression.message_bytes(
            self.machine.layout.size, np.dtype(self.machine.precision).itemsize
        )

    @property
    def metrics(self) -> dict[str, bool | None]:
        """The names of what `evaluate` returns; whether higher is better, if that is known."""
        return self.machine.metrics

    def start(self) -> Model:
        """Return the start model."""
        return self.machine.start()

    def restart(self, model: Model) -> Model:
        """Keep w and start the solver afresh."""
        return self.machine.restart(model)

    def roll(self, model: Model, time: float) -> Roll:
        """Return all clients; where their speeds are not known, they do one step as a probe."""
        if self.world.known or time > 0:
            return self._roll
        probe = self.world.probe()
        heard = tuple(enumerate(probe.tolist()))
        return self._roll._replace(heard=heard, seconds=float(probe.max()))

    def ask(self, model: Model, round_: Round, look: Look) -> Reply:
        """See who answers in time; the work itself is done when the reply is applied."""
        active, tau = round_.active, round_.tau
        T = self.world.seconds(round_.number)[active]
        work, begins = tau * T, _delays(model.under_way, round_)
        arrivals = begins + work
        seconds = round_.ends.of(arrivals)
        late, under_way = _divided(model.under_way, round_.at + seconds)
        lost = np.minimum(begins, seconds) if model.under_way else begins
        in_time = arrivals <= seconds
        if not in_time.all():
            for i in np.flatnonzero(~in_time & (begins < seconds)):
                until, task = round_.at + float(arrivals[i]), (int(tau[i]), round_.eta, float(T[i]))
                under_way += (Late(int(active[i]), round_.number, until, *task),)
            work, lost = np.where(in_time, work, 0.0), np.where(in_time, lost, seconds)
            active, tau, T = active[in_time], tau[in_time], T[in_time]
        return Reply(
            round=round_,
            answered=active,
            seconds=seconds,
            spent=Spent(work, np.zeros(len(work)), lost),
            seen=self.look(model, active, look),
            sent=(len(active) + len(late)) * self._message_bytes,
            heard=self._reports(active, T, late),
            late=late,
            content=Content(tau, under_way),
        )

    def apply(self, model: Model, reply: Reply) -> Model:
        """Do the work of those who answered, and the steps that end the round."""
        round_, content = reply.round, reply.content
        after = self.machine.round(
            model,
            round_.number,
            reply.answered,
            content.tau,
            round_.eta,
            round_.gamma,
            round_.pool,
        )
        if not content.under_way:
            return after
        past = model.past | {round_.number: (model.w, model.server)}
        needed = {late.number for late in content.under_way}
        return after._replace(
            under_way=content.under_way, past={q: past[q] for q in sorted(needed)}
        )

    def work(self, model: Model, tasks: tuple[Late, ...]) -> np.ndarray:
        """Return the messages of clients that each start from a model of their own.

        They are those of the rounds that the tasks were asked for in, as far as `model` still
        has them. A client's own state is the one it has now.
        """
        return self.machine.work(model, tasks)

    def look(self, model: Model, active: np.ndarray, look: Look) -> Seen:
        """Return loss and gradient of w over the active clients and over all, as asked."""
        return self.machine.look(model, active, look)

    def evaluate(self, model: Model, rounds: int) -> dict[str, float]:
        """Return the metrics on held-out data and the distance to w*, where there are any."""
        del rounds
        return self.machine.evaluate(model)

    def params(self, model: Model) -> Tree:
        """Return the global model as the problem's own pytree."""
        return self.machine.params(model)

    def named(self, model: Model) -> dict[str, np.ndarray]:
        """Return the arrays of the global model by name."""
        return self.machine.named(model)

    def save(self, model: Model, clock: Clock) -> dict[str, np.ndarray]:
        """Return w, the states by name, with a row for each client by id, and what is under way."""
        return save_arrays(model, clock, self.machine.place)

    def load(self, arrays: dict[str, np.ndarray], clock: Clock) -> tuple[Model, Clock]:
        """Return the model and the clock that `save` was given, bit for bit."""
        with self.machine.running():
            return load_arrays(arrays, self.start(), clock, self.machine.place)

    def _reports(self, clients: np.ndarray, T: np.ndarray, late: tuple[Late, ...]) -> Heard:
        if self.world.known:
            return ()
        in_time = zip(clients.tolist(), T.tolist(), strict=True)
        return (*((each.client, each.T) for each in late), *in_time)


def _delays(under_way: tuple[Late, ...], round_: Round) -> np.ndarray:
    """Return after how many seconds each participant is done with earlier work."""
    delays = np.zeros(len(round_.active))
    if under_way:
        until = {late.client: late.until for late in under_way}
        delays += [max(0.0, until.get(i, 0.0) - round_.at) for i in round_.active.tolist()]
    return delays


def _divided(under_way: tuple[Late, ...], end: float) -> tuple[tuple[Late, ...], tuple[Late, ...]]:
    """Return which work is done by some time, and which is not."""
    if not under_way:
        return (), ()
    done = tuple(late for late in under_way if late.until <= end)
    return done, tuple(late for late in under_way if late.until > end)
