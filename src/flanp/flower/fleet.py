"""The engine on real machines: Flower nodes in place of simulated clients."""

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any, NamedTuple

import numpy as np
from flwr.app import MetricRecord, RecordDict
from flwr.common.logger import log

from flanp.checks import BadInput
from flanp.engine import Round
from flanp.flower.clients import Clients
from flanp.flower.exchange import Exchange, Sent
from flanp.flower.members import Members
from flanp.flower.replies import UsualNorms, mean_message, measurement, shares
from flanp.flower.timing import Deadlines, MeasuredClock
from flanp.flower.tracking import Tracking
from flanp.flower.wire import EVALUATE, TRAIN, Answer, Profile, read_metrics
from flanp.measurement import Measurement
from flanp.participation import Participation
from flanp.solvers import Solver, Step
from flanp.work import Work

MISSES = 2
"""A participant that misses so many rounds in a row is no longer one of those tracked."""
RETURN_SECONDS, LOOK_SECONDS = 60.0, 2.0
"""How long to wait for a node when none is connected, and how often to look."""


class NobodyAnswered(RuntimeError):
    """Too few clients answered, and trying again did not help."""


class Model(NamedTuple):
    """What the server keeps of a run."""

    w: np.ndarray
    server: Any
    """The solver's state at the server."""
    epoch: int
    """The start of the solver that it belongs to."""


@dataclass
class Fleet:
    """Runs rounds on Flower's nodes: an engine (flanp.engine) for Algorithm 1."""

    exchange: Exchange
    clients: Clients
    members: Members
    solver: Solver
    work: Work
    participation: Participation
    w_0: np.ndarray
    deadlines: Deadlines
    quorum: float = 0.5
    watch: bool = False
    """Whether to ask for loss and gradient in rounds that no stage rule looks at, too."""
    last: dict[int, Answer] = field(default_factory=dict)
    """The replies of the latest round, by client."""
    latest: Measurement | None = None
    """What those replies say of the model they were sent."""
    measured: dict[int, Measurement] = field(default_factory=dict)
    """By number of rounds done, the participants' loss and gradient at the model they led to."""
    _prepared: tuple[np.ndarray, Round, dict[int, Answer]] | None = None
    """A model and the round from it that was done while it was measured."""
    _standing_in: set[int] = field(default_factory=set)
    """Who takes the place of participants that are not there."""
    _norms: UsualNorms = field(default_factory=UsualNorms)
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.exchange.on_late = self._hear_late
        self.tracking = Tracking(needed=not isinstance(self.solver.start(self.w_0)[1], tuple))

    @property
    def clock(self) -> MeasuredClock:
        """The clients' speeds."""
        return self.members.clock

    @property
    def s(self) -> np.ndarray:
        """How many samples each client holds."""
        return self.members.s

    def start(self) -> Model:
        """Return the start model."""
        return self._afresh(self.w_0)

    def restart(self, model: Model) -> Model:
        """Keep w and start the solver afresh; meet nodes that are new."""
        self._prepared = None
        self.tracking.restart()
        self.meet(model.w)
        return self._afresh(model.w)

    def meet(self, w: np.ndarray) -> None:
        """See who is there at the start of a stage."""
        self._began = self._began or time.monotonic()
        for member in self.members.all:
            member.misses, member.greeted = 0, False
        self._greet(w)
        if not self.clock.present:
            raise NobodyAnswered(
                "no node answered the probe: look at the nodes' own logs. Clients that are not "
                "built by flanp.flower.client need a strategy without a solver"
            )

    def measure(
        self, model: Model, active: np.ndarray, whole: bool, upcoming: Round | None = None
    ) -> tuple[Measurement, None]:
        """Return loss and gradient of w over the active clients, who do their steps as well."""
        assert upcoming is not None
        if whole:
            raise BadInput(
                "this stage rule looks at all clients in each round, the slow ones too: "
                "use GradientNoise, Halving or StatisticalAccuracy"
            )
        held, answers = self._ask(model, upcoming, measure=True)
        self._prepared = (model.w, held, answers)
        self._note_measurement(upcoming.number, answers)
        assert self.latest is not None
        return self.latest, None

    def round(
        self,
        model: Model,
        number: int,
        active: np.ndarray,
        tau: np.ndarray,
        eta: float,
        gamma: float,
    ) -> Model:
        """Run one round with the active clients; `measure` may have done the exchange."""
        if self._prepared is not None and self._prepared[0] is model.w:
            _, held, answers = self._prepared
        else:
            planned = Round(number, active, tau, eta, gamma)
            held, answers = self._ask(model, planned, measure=self.watch)
            self._note_measurement(number, answers)
        self._prepared, self.last = None, answers
        steps = dict(zip(held.active.tolist(), held.tau.tolist(), strict=True))
        replies = [*answers.values()]
        p, tau_i = shares(replies), np.array([steps[i] for i in answers], float)
        m = mean_message(replies).astype(model.w.dtype)
        step = Step(
            eta=eta,
            gamma=gamma,
            tau_mean=float(p @ tau_i),
            tau_harmonic=float(1 / (p / tau_i).sum()),
            share=float(sum(a.s for a in replies) / self.s[sorted(self.clock.present)].sum()),
        )
        w, server = self.solver.server_step(model.w, self._server(model), m, step)
        after = Model(w.astype(model.w.dtype), server, self.tracking.epoch)
        self.tracking.counted(answers, number, m)
        self._time_round(replies)
        self._stop_tracking(i for i, m in enumerate(self.members.all) if m.misses >= MISSES)
        self._greet(after.w)
        return after

    def evaluate(self, model: Model) -> dict[str, float]:
        """Know no more of w."""
        return {}

    def ask_to_evaluate(
        self, content: RecordDict, share: float, least: int, weight: str, rng: np.random.Generator
    ) -> list[MetricRecord]:
        """Return what some of the clients that are there find out about a model."""
        ready = self.members.without(sorted(self.clock.present), self.exchange.overdue())
        there = [self.members.all[i].id for i in ready]
        count = min(max(int(share * len(there)), least), len(there))
        replies = self.exchange.ask(
            {int(id_): content for id_ in rng.choice(there, count, replace=False)},
            EVALUATE,
            self.deadlines.first(),
            lambda content, seconds: read_metrics(content, weight),
            needed=0,
            hurry=True,
        )
        return [metrics for metrics, _ in replies.values()]

    def save(self, model: Model) -> dict[str, np.ndarray]:
        """Return what outlives the run: w and the clients' speeds, but not their states."""
        members = json.dumps(self.members.save()).encode()
        return {"w": model.w, "members": np.frombuffer(members, np.uint8)}

    def load(self, arrays: dict[str, np.ndarray]) -> Model:
        """Return the model of `save`; the solver's states start afresh, as at a stage start."""
        if arrays["w"].shape != self.w_0.shape:
            raise BadInput("the checkpoint is of a model with other parameters")
        self.members.load(json.loads(arrays["members"].tobytes()))
        if self.tracking.needed:
            log(INFO, "the clients' states are gone with the old run: tracking restarts")
        return self._afresh(arrays["w"])

    def _afresh(self, w: np.ndarray) -> Model:
        return Model(w, self.solver.start(w)[0], self.tracking.epoch)

    def _server(self, model: Model) -> Any:
        """Return the solver's state at the server, which restarts with those at the clients."""
        same = model.epoch == self.tracking.epoch
        return model.server if same else self.solver.start(model.w)[0]

    def _greet(self, w: np.ndarray) -> None:
        """See who is there and ask strangers how fast they are, once in a stage.

        Where nobody is known, as at the start, they are waited for: a race until the first
        stage's clients are known. All others are heard when they answer.
        """
        self.members.look(self.exchange.grid.get_node_ids())
        strangers = self.members.strangers()
        nobody_known = set(strangers) == self.members.online
        new = [i for i in strangers if not self.members.all[i].greeted]
        new = self.members.without(new, self.exchange.owing())
        if not new:
            return
        for i in new:
            self.members.all[i].greeted = True
        task = self.clients.first_task(w)
        tasks = {self.members.all[i].id: task for i in new}
        if not nobody_known:
            self.exchange.send(tasks, self.clients.first_message)
            return
        replies = self.exchange.ask(
            tasks,
            self.clients.first_message,
            self.deadlines.first(),
            self.clients.profile,
            enough=self.participation.sizes(len(new))[0] if self.clients.race else None,
            hurry=not self.clients.race,
        )
        for id_, (profile, took) in replies.items():
            self.members.introduce(self.members.numbers[id_], profile, took)

    def _ask(self, model: Model, planned: Round, measure: bool) -> tuple[Round, dict[int, Answer]]:
        """Do one exchange; return the round as it was held and the replies that count.

        With too few replies, others are asked in place of those who did not answer. A client
        that lost its state makes all start afresh; one that does so twice has not answered.
        """
        self._began = self._began or time.monotonic()
        failed: set[int] = set()
        had_lost: set[int] = set()
        held, answers = planned, dict[int, Answer]()
        while True:
            self._wait_for_anyone(model.w, planned.number)
            epoch, others = self.tracking.epoch, self._fill(planned, failed)
            nobody_new = set(others.active.tolist()) <= answers.keys()
            if nobody_new and epoch == self.tracking.epoch:
                return held, answers
            held, needed = others, max(1, math.ceil(self.quorum * len(others.active)))
            answers = self._one_exchange(model, held, measure, needed)
            lost = self.tracking.heard({i: answer.applied for i, answer in answers.items()})
            if lost:
                self.exchange.counts["lost states"] += len(lost)
                self.tracking.restart(f"{self.members.called(lost)} lost the solver's state")
                failed |= had_lost.intersection(lost)
                had_lost.update(lost)
                answers = {}
                continue
            self._drop_absurd(answers)
            for i in held.active.tolist():
                member = self.members.all[i]
                member.misses = 0 if i in answers else member.misses + 1
            if len(answers) >= needed:
                return held, answers
            self.members.look(self.exchange.grid.get_node_ids())
            failed |= (set(held.active.tolist()) - answers.keys()) & self.members.online

    def _wait_for_anyone(self, w: np.ndarray, number: int) -> None:
        """Give nodes that are all gone some time to come back."""
        end = time.monotonic() + RETURN_SECONDS
        while not self.clock.present:
            if time.monotonic() > end:
                raise NobodyAnswered(
                    f"round {number + 1}: none of {len(self.members.all)} clients has been "
                    f"connected for {RETURN_SECONDS:.0f} s"
                )
            time.sleep(LOOK_SECONDS)
            self._greet(w)

    def _note_measurement(self, number: int, answers: dict[int, Answer]) -> None:
        self.latest = measurement([*answers.values()])
        if self.latest is not None:
            self.measured.setdefault(number, self.latest)

    def _fill(self, planned: Round, failed: set[int]) -> Round:
        """Return the round with the next fastest in place of participants who are not there."""
        T, wanted = self.clock.T, planned.active.tolist()
        there = [i for i in self.clock.ranking.tolist() if i not in failed]
        there = self.members.without(there, self.exchange.overdue()) or there
        stay = [i for i in wanted if i in there]
        standing_in = [i for i in there if i not in wanted][: len(wanted) - len(stay)]
        active = np.array([*stay, *standing_in], int)
        self._stop_tracking((set(wanted) - set(stay)) | (self._standing_in - set(active.tolist())))
        self._standing_in = set(standing_in)
        if not len(active):
            raise NobodyAnswered(
                f"round {planned.number + 1}: none of {len(self.members.all)} clients answered in "
                "time. Look at the nodes' own logs, or give a longer deadline"
            )
        if stay == wanted:
            return planned
        return planned._replace(active=active, tau=self.work.local_steps(T[active], self.s[active]))

    def _stop_tracking(self, out: Iterable[int]) -> None:
        """Restart tracking where clients that have a state are out of it."""
        missing = [i for i in sorted(out) if self.tracking.holds(i)]
        if missing:
            self.tracking.restart(f"{self.members.called(missing)} takes no part any more")

    def _one_exchange(
        self, model: Model, planned: Round, measure: bool, needed: int
    ) -> dict[int, Answer]:
        active, members = planned.active.tolist(), self.members.all
        means = [self.tracking.mean_for(i) for i in active]
        tasks = self.clients.tasks(model.w, self._server(model), planned, means, measure)
        overheads = np.array([members[i].overhead for i in active])
        expected = float((self.clock.T[active] * planned.tau + overheads).max())
        replies = self.exchange.ask(
            {members[i].id: task for i, task in zip(active, tasks, strict=True)},
            TRAIN,
            self.deadlines.of_round(expected),
            lambda content, seconds: self.clients.read(content, model.w, measure, seconds),
            needed,
        )
        answers = {}
        for i, tau in zip(active, planned.tau.tolist(), strict=True):
            if members[i].id in replies:
                answers[i], took = replies[members[i].id]
                profile = Profile(answers[i].s, answers[i].seconds)
                self.members.introduce(i, profile, max(0.0, took - tau * profile.seconds))
        return dict(sorted(answers.items()))

    def _drop_absurd(self, answers: dict[int, Answer]) -> None:
        for i, norm in self._norms.absurd(answers).items():
            who = self.members.called([i])
            log(WARNING, "%s: a message of absurd norm %.3g, dropped", who, norm)
            self.exchange.counts["malformed"] += 1
            del answers[i]

    def _hear_late(self, sent: Sent, content: RecordDict, seconds: float) -> None:
        """Learn how fast a client is from a reply that is of no other use."""
        if sent.type != EVALUATE:
            profile = self.clients.profile(content, seconds)
            self.members.introduce(self.members.numbers[sent.node], profile, seconds)

    def _time_round(self, replies: list[Answer]) -> None:
        seconds, self._began = time.monotonic() - self._began, 0.0
        waiting = 1 - float(np.mean([a.busy for a in replies])) / seconds if seconds else 0.0
        self.clock.last_round = (seconds, max(0.0, waiting))
