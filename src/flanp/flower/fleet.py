"""The engine on real machines: Flower nodes in place of simulated clients."""

import math
import time
from dataclasses import dataclass, field
from logging import INFO, WARNING

import numpy as np
from flwr.app import RecordDict
from flwr.common.logger import log

from flanp.checks import BadInput
from flanp.engine import Round
from flanp.flower.clients import Clients, Model
from flanp.flower.exchange import Exchange
from flanp.flower.members import Members
from flanp.flower.replies import UsualNorms, mean_message, measurement, shares
from flanp.flower.timing import Deadlines, MeasuredClock
from flanp.flower.tracking import Tracking
from flanp.flower.wire import TRAIN, Answer, BadReply
from flanp.measurement import Measurement
from flanp.participation import Participation
from flanp.solvers import Solver, Step
from flanp.work import Work

MISSES = 2
"""A participant that misses so many rounds in a row is no longer one of those tracked."""


class NobodyAnswered(RuntimeError):
    """Too few clients answered, and trying again did not help."""


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
    measured: dict[int, Measurement] = field(default_factory=dict)
    """By number of rounds done, the participants' loss and gradient at the model they led to."""
    _prepared: tuple[np.ndarray, Round, dict[int, Answer]] | None = None
    """A model and the round from it that was done while it was measured."""
    _standing_in: set[int] = field(default_factory=set)
    """Who takes the place of participants that are not there."""
    _norms: UsualNorms = field(default_factory=UsualNorms)
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.exchange.on_late = self._note_late
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
        return Model(self.w_0, self.solver.start(self.w_0)[0])

    def restart(self, model: Model) -> Model:
        """Keep w and start the solver afresh; meet nodes that are new."""
        self.tracking.restart()
        self.meet(model.w)
        return Model(model.w, self.solver.start(model.w)[0])

    def meet(self, w: np.ndarray) -> None:
        """See who is there, and measure the speed of those of whom nothing is known."""
        self._began = self._began or time.monotonic()
        for member in self.members.all:
            member.misses, member.mute = 0, False
        self.members.look(self.exchange.grid.get_node_ids())
        overdue = self.exchange.overdue()
        new = [i for i in self.members.unknown() if self.members.all[i].id not in overdue]
        if new:
            self._introduce(new, w)
        if not self.clients.race:
            self.members.leave_out(self.members.unknown())
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
        seen = self._note_measurement(upcoming.number, answers)
        assert seen is not None
        return seen, None

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
        m = mean_message(replies)
        step = Step(
            eta=eta,
            gamma=gamma,
            tau_mean=float(p @ tau_i),
            tau_harmonic=float(1 / (p / tau_i).sum()),
            share=float(sum(a.s for a in replies) / self.s[sorted(self.clock.present)].sum()),
        )
        w, server = self.solver.server_step(model.w, model.server, m, step)
        self.tracking.counted(answers, number, m)
        self._time_round(replies)
        self._stop_tracking({i for i, m in enumerate(self.members.all) if m.misses >= MISSES})
        self.members.look(self.exchange.grid.get_node_ids())
        return Model(w.astype(model.w.dtype), server)

    def evaluate(self, model: Model) -> dict[str, float]:
        """Know no more of w."""
        return {}

    def save(self, model: Model) -> dict[str, np.ndarray]:
        """Return the arrays of a model, by name; the clients' states stay with them."""
        return {"w": model.w} | (
            {"server": model.server} if isinstance(model.server, np.ndarray) else {}
        )

    def load(self, arrays: dict[str, np.ndarray]) -> Model:
        """Return the model of `save`; the solver's states start afresh, as at a stage start."""
        w = arrays["w"]
        if w.shape != self.w_0.shape:
            raise BadInput("the checkpoint is of a model with other parameters")
        if self.tracking.needed:
            log(INFO, "the clients' states are gone with the old run: tracking restarts")
        return Model(w, self.solver.start(w)[0])

    def _introduce(self, new: list[int], w: np.ndarray) -> None:
        """Probe new clients, or let them race.

        A race ends when the first stage's clients are known; the others' times count when they
        come.
        """
        race, task = self.clients.race, self.clients.first_task(w)
        first = self.participation.stages(len(new))[0] if len(new) == len(self.members.all) else 1
        replies = self.exchange.ask(
            {self.members.all[i].id: task for i in new},
            self.clients.first_message,
            self.deadlines.first(),
            lambda content, seconds: self.clients.read_first(content, w, seconds),
            enough=first if race else None,
            hurry=not race,
        )
        for id_, (profile, _) in replies.items():
            self.members.introduce(self.members.numbers[id_], profile)

    def _ask(self, model: Model, planned: Round, measure: bool) -> tuple[Round, dict[int, Answer]]:
        """Do one exchange; return the round as it was held and the replies that count."""
        self._began = self._began or time.monotonic()
        failed: set[int] = set()
        while True:
            held = self._fill(planned, failed)
            needed = self._quorum_of(held)
            answers = self._one_exchange(model, held, measure, needed)
            lost = self._hear(answers)
            if lost:
                self.exchange.counts["lost states"] += len(lost)
                self.tracking.restart(f"{self.members.called(lost)} lost the solver's state")
                answers = self._one_exchange(model, held, measure, needed)
                self._hear(answers)
            self._drop_absurd(answers)
            for i in held.active.tolist():
                member = self.members.all[i]
                member.misses = 0 if i in answers else member.misses + 1
            if len(answers) >= needed:
                return held, answers
            failed |= set(held.active.tolist()) - answers.keys()

    def _note_measurement(self, number: int, answers: dict[int, Answer]) -> Measurement | None:
        seen = measurement([*answers.values()])
        if seen is not None:
            self.measured.setdefault(number, seen)
        return seen

    def _quorum_of(self, planned: Round) -> int:
        return max(1, math.ceil(self.quorum * len(planned.active)))

    def _fill(self, planned: Round, failed: set[int]) -> Round:
        """Return the round with the next fastest in place of participants who are not there."""
        T, wanted = self.clock.T, planned.active.tolist()
        there = [i for i in self.clock.ranking.tolist() if i not in failed]
        overdue = self.exchange.overdue()
        ready = [i for i in there if self.members.all[i].id not in overdue]
        if len(ready) >= self._quorum_of(planned):
            there = ready
        stay = [i for i in wanted if i in there]
        others = [i for i in there if i not in wanted and (self.clients.race or T[i] < math.inf)]
        standing_in = others[: len(wanted) - len(stay)]
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
        return planned._replace(active=active, tau=self.work.steps(T[active], self.s[active]))

    def _stop_tracking(self, out: set[int]) -> None:
        """Restart tracking where clients that have a state are out of it."""
        missing = [i for i in sorted(out) if self.tracking.holds(i)]
        if missing:
            self.tracking.restart(f"{self.members.called(missing)} takes no part any more")

    def _hear(self, answers: dict[int, Answer]) -> list[int]:
        return self.tracking.heard({i: answer.applied for i, answer in answers.items()})

    def _one_exchange(
        self, model: Model, planned: Round, measure: bool, needed: int
    ) -> dict[int, Answer]:
        active = planned.active.tolist()
        means = [self.tracking.mean_for(i) for i in active]
        tasks = self.clients.tasks(model, planned, means, measure)
        replies = self.exchange.ask(
            {self.members.all[i].id: task for i, task in zip(active, tasks, strict=True)},
            TRAIN,
            self.deadlines.of_round(float((self.clock.T[active] * planned.tau).max())),
            lambda content, seconds: self.clients.read(content, model.w, measure, seconds),
            needed,
        )
        if replies:
            self.deadlines.overhead = max(took - answer.busy for answer, took in replies.values())
        answers = {self.members.numbers[id_]: answer for id_, (answer, _) in replies.items()}
        for i, answer in answers.items():
            self.members.all[i].s = answer.s
            self.clock.report(i, answer.seconds)
        return dict(sorted(answers.items()))

    def _drop_absurd(self, answers: dict[int, Answer]) -> None:
        for i, norm in self._norms.absurd(answers).items():
            log(
                WARNING,
                "%s: a message of absurd norm %.3g, dropped",
                self.members.called([i]),
                norm,
            )
            self.exchange.counts["malformed"] += 1
            del answers[i]

    def _note_late(self, id_: int, content: RecordDict, seconds: float) -> None:
        """Learn how fast a client is from a reply that comes too late for more."""
        i = self.members.numbers[id_]
        if self.clients.race or self.clock.reports[i]:
            try:
                self.clock.report(i, self.clients.read_late(content, seconds))
            except BadReply as error:
                log(WARNING, "%s: a late reply, malformed: %s", self.members.called([i]), error)

    def _time_round(self, replies: list[Answer]) -> None:
        seconds, self._began = time.monotonic() - self._began, 0.0
        waiting = 1 - float(np.mean([a.busy for a in replies])) / seconds if seconds else 0.0
        self.clock.last_round = (seconds, max(0.0, waiting))
