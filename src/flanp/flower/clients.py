"""The two kinds of clients, plain ones and flanp's: what to send them and how to read a reply."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from flanp.engine import Round
from flanp.flower.naming import told as told_of
from flanp.flower.tracking import Mean
from flanp.flower.vectors import Names
from flanp.flower.wire import (
    PROFILE,
    SAMPLES,
    TRAIN,
    Answer,
    Profile,
    Task,
    read_answer,
    read_model,
    read_profile,
    task_content,
)
from flanp.solvers import Solver
from flanp.trees import Tree
from flanp.work import Work


class Clients(Protocol):
    """One kind of clients."""

    names: Names
    first_message: ClassVar[str]
    """The type of the first message, which measures a client's speed."""
    race: ClassVar[bool]
    """Whether the first message is a whole round, so that only the fastest are waited for."""

    def first_task(self, w: np.ndarray) -> RecordDict:
        """Return the first message to a client."""

    def profile(self, content: RecordDict, seconds: float) -> Profile:
        """Return what a reply says of the client, which came after so many seconds."""

    def tasks(
        self,
        w: np.ndarray,
        server: Tree,
        planned: Round,
        means: list[Mean],
        own: list[Tree],
        measure: bool,
    ) -> list[RecordDict]:
        """Return the participants' messages for a round.

        `own` are their states, where the server keeps them.
        """

    def read(self, content: RecordDict, w: np.ndarray, measure: bool, seconds: float) -> Answer:
        """Return a reply's answer; raise BadReply where it is malformed."""


@dataclass
class PlainClients:
    """Clients as FedAvg has them: they train on the arrays they get, and return theirs."""

    names: Names
    config: ConfigRecord
    weight: str = SAMPLES
    """The metric that says how much a client counts."""
    keys: tuple[str, str] = ("arrays", "config")
    """What the records of a message are called."""
    first_message: ClassVar[str] = TRAIN
    race: ClassVar[bool] = True

    def first_task(self, w: np.ndarray) -> RecordDict:
        """Let it train: a plain client can do nothing less."""
        return self._content(self.names.record(w), server_round=0)

    def profile(self, content: RecordDict, seconds: float) -> Profile:
        """Return its samples and how long it took, if the model is sound."""
        answer = read_model(content, self.names, self.weight, 0.0, seconds)
        return Profile(answer.s, answer.seconds, busy=answer.seconds)

    def tasks(
        self,
        w: np.ndarray,
        server: Tree,
        planned: Round,
        means: list[Mean],
        own: list[Tree],
        measure: bool,
    ) -> list[RecordDict]:
        """Return the model, the same for all."""
        record = self.names.record(w)
        return [self._content(record, planned.number + 1) for _ in means]

    def read(self, content: RecordDict, w: np.ndarray, measure: bool, seconds: float) -> Answer:
        """Return the local model's update."""
        return read_model(content, self.names, self.weight, w, seconds)

    def _content(self, w: ArrayRecord, server_round: int) -> RecordDict:
        config = ConfigRecord({**self.config, "server-round": server_round})
        return RecordDict(dict(zip(self.keys, (w, config), strict=True)))


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
        task = self._task(0, tau, self.solver.eta, Mean(generation=0), measure=False)
        told = self.solver.tell(self.solver.server_start(w))
        return task_content(self.names.record(w), task, told, None, self.config)

    def profile(self, content: RecordDict, seconds: float) -> Profile:
        """Return its samples, its time and its name."""
        return read_profile(content)

    def tasks(
        self,
        w: np.ndarray,
        server: Tree,
        planned: Round,
        means: list[Mean],
        own: list[Tree],
        measure: bool,
    ) -> list[RecordDict]:
        """Return each one's task."""
        record, told = self.names.record(w), self.solver.tell(server)
        return [
            task_content(
                record,
                self._task(planned.number, tau, planned.eta, mean, measure),
                told,
                mean.vector,
                self.config,
                state,
            )
            for tau, mean, state in zip(planned.tau, means, own, strict=True)
        ]

    def read(self, content: RecordDict, w: np.ndarray, measure: bool, seconds: float) -> Answer:
        """Return its message and, if it was asked for, its gradient."""
        return read_answer(content, self.names, measure)

    def _task(self, number: int, tau: int, eta: float, mean: Mean, measure: bool) -> Task:
        return Task(
            number=number,
            tau=int(tau),
            eta=eta,
            batch=self.work.batch,
            seed=self.seed,
            solver=told_of(self.solver),
            generation=mean.generation,
            mean_of=mean.round,
            step=mean.step and tuple(map(float, mean.step)),
            measure=measure,
            first=bool(self.solver.remembers_absent and tau > 1),
        )
