"""The two kinds of clients, plain ones and flanp's: what to send them and how to read a reply."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from flanp.engine import Round
from flanp.flower.tracking import Mean
from flanp.flower.vectors import Names
from flanp.flower.wire import (
    PROFILE,
    TRAIN,
    Answer,
    Profile,
    Task,
    describe_solver,
    read_answer,
    read_model,
    read_profile,
    seconds_per_step,
    task_content,
)
from flanp.solvers import Solver
from flanp.work import Work


class Model(NamedTuple):
    """What the server keeps of a run."""

    w: np.ndarray
    server: Any
    """The solver's state at the server."""


class Clients(Protocol):
    """One kind of clients."""

    names: Names
    first_message: ClassVar[str]
    """The type of the first message, which measures a client's speed."""
    race: ClassVar[bool]
    """Whether the first message is a whole round, so that only the fastest are waited for."""

    def first_task(self, w: np.ndarray) -> RecordDict:
        """Return the first message to a client."""

    def read_first(self, content: RecordDict, w: np.ndarray, seconds: float) -> Profile:
        """Return what the first reply says, which came after so many seconds."""

    def tasks(
        self, model: Model, planned: Round, means: list[Mean], measure: bool
    ) -> list[RecordDict]:
        """Return the participants' messages for a round."""

    def read(self, content: RecordDict, w: np.ndarray, measure: bool, seconds: float) -> Answer:
        """Return a reply's answer; raise BadReply where it is malformed."""

    def read_late(self, content: RecordDict, seconds: float) -> float:
        """Return the seconds per step that a reply tells of which nothing else counts."""


@dataclass
class PlainClients:
    """Clients as FedAvg has them: they train on the arrays they get, and return theirs."""

    names: Names
    weight: str
    """The metric that says how much a client counts."""
    config: ConfigRecord
    first_message: ClassVar[str] = TRAIN
    race: ClassVar[bool] = True

    def first_task(self, w: np.ndarray) -> RecordDict:
        """Let it train: a plain client can do nothing less."""
        return self._content(self.names.record(w), server_round=0)

    def read_first(self, content: RecordDict, w: np.ndarray, seconds: float) -> Profile:
        """Return its samples and how long it took."""
        answer = self.read(content, w, measure=False, seconds=seconds)
        return Profile(answer.s, answer.seconds)

    def tasks(
        self, model: Model, planned: Round, means: list[Mean], measure: bool
    ) -> list[RecordDict]:
        """Return the model, the same for all."""
        w = self.names.record(model.w)
        return [self._content(w, planned.number + 1) for _ in means]

    def read(self, content: RecordDict, w: np.ndarray, measure: bool, seconds: float) -> Answer:
        """Return the local model's update."""
        return read_model(content, self.names, self.weight, w, seconds)

    def read_late(self, content: RecordDict, seconds: float) -> float:
        """Return its own report or, without one, how long it took."""
        return seconds_per_step(content, seconds)

    def _content(self, w: ArrayRecord, server_round: int) -> RecordDict:
        config = ConfigRecord({**self.config, "server-round": server_round})
        return RecordDict({"arrays": w, "config": config})


@dataclass
class FlanpClients:
    """Clients that `flanp.flower.client` built, with any solver."""

    names: Names
    config: ConfigRecord
    solver: Solver
    work: Work
    seed: int
    first_message: ClassVar[str] = PROFILE
    race: ClassVar[bool] = False

    def first_task(self, w: np.ndarray) -> RecordDict:
        """Ask for the time of a few local steps."""
        tau = self.work.base(np.ones(1))[0]
        task = self._task(0, tau, self.solver.eta, Mean(epoch=0), measure=False)
        server = self.solver.start(w)[0]
        return task_content(self.names.record(w), task, server, None, self.config)

    def read_first(self, content: RecordDict, w: np.ndarray, seconds: float) -> Profile:
        """Return its samples, its time and its name."""
        return read_profile(content)

    def tasks(
        self, model: Model, planned: Round, means: list[Mean], measure: bool
    ) -> list[RecordDict]:
        """Return each one's task."""
        w = self.names.record(model.w)
        return [
            task_content(
                w,
                self._task(planned.number, tau, planned.eta, mean, measure),
                model.server,
                mean.vector,
                self.config,
            )
            for tau, mean in zip(planned.tau, means, strict=True)
        ]

    def read(self, content: RecordDict, w: np.ndarray, measure: bool, seconds: float) -> Answer:
        """Return its message and, if it was asked for, its gradient."""
        return read_answer(content, self.names, measure)

    def read_late(self, content: RecordDict, seconds: float) -> float:
        """Return its own report."""
        return seconds_per_step(content, None)

    def _task(self, number: int, tau: int, eta: float, mean: Mean, measure: bool) -> Task:
        return Task(
            number=number,
            tau=int(tau),
            eta=eta,
            batch=self.work.batch,
            seed=self.seed,
            solver=describe_solver(self.solver),
            epoch=mean.epoch,
            mean_of=mean.round,
            measure=measure,
        )
