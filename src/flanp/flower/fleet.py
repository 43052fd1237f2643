"""The engine on real machines: Flower nodes in place of simulated clients."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.common.logger import log

from flanp.checks import BadInput
from flanp.engine import Round
from flanp.flower.exchange import Exchange
from flanp.flower.timing import MeasuredClock
from flanp.flower.tracking import NOTHING, Tracking
from flanp.flower.vectors import Names
from flanp.flower.wire import (
    PROFILE,
    TRAIN,
    Answer,
    BadReply,
    Task,
    describe_solver,
    read_answer,
    read_model,
    read_profile,
    task_content,
)
from flanp.measurement import Measurement, noise
from flanp.participation import Participation
from flanp.solvers import Solver, Step
from flanp.work import Work

ABSURD = 1e3
"""A message this many times as long as the median of the latest ones is dropped."""
LEAST_DEADLINE = 30.0
PATIENCE = 3.0
"""Without a deadline of its own, a round may take this many times what it is expected to."""
FIRST_DEADLINE = 600.0
"""The deadline while nothing is known of the nodes."""
MISSES = 2
"""A participant that misses so many rounds in a row is no longer one of those tracked."""


class NobodyAnswered(RuntimeError):
    """Too few clients answered, and trying again did not help."""


class Model(NamedTuple):
    """What the server keeps of a run."""

    w: np.ndarray
    server: Any
    """The solver's state at the server."""


@dataclass
class Node:
    """A client: a Flower node."""

    id: int
    """Flower's id; a node that comes back under another name is another client."""
    name: str
    """How logs, given speeds and checkpoints call it."""
    s: float = 1.0
    """How many samples it holds."""
    misses: int = 0
    """Rounds in a row without a usable reply."""


@dataclass
class Fleet:
    """Runs rounds on Flower's nodes: an engine (flanp.engine) for Algorithm 1."""

    exchange: Exchange
    clock: MeasuredClock
    solver: Solver
    work: Work
    names: Names
    w_0: np.ndarray
    plain: bool
    """Whether the clients are plain FedAvg clients, which know nothing of FLANP."""
    participation: Participation
    watch: bool = False
    """Whether to ask for loss and gradient in rounds that no stage rule looks at, too."""
    quorum: float = 0.5
    deadline: float | None = None
    timeout: float = FIRST_DEADLINE
    seed: int = 0
    weight: str = "num-examples"
    config: ConfigRecord = field(default_factory=ConfigRecord)
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Seconds per step that are known, by name."""
    remembered: Mapping[str, list[float]] = field(default_factory=dict)
    """Reports of an interrupted run, by name."""
    nodes: list[Node] = field(default_factory=list)
    last: dict[int, Answer] = field(default_factory=dict)
    """The replies of the latest round, by client."""
    measured: dict[int, Measurement] = field(default_factory=dict)
    """By number of rounds done, the participants' loss and gradient at the model they led to."""
    _prepared: tuple[np.ndarray, Round, dict[int, Answer]] | None = None
    _standing_in: set[int] = field(default_factory=set)
    """Who takes the place of participants that are not there."""
    _norms: list[float] = field(default_factory=list)
    _overhead: float = 0.0
    """Most seconds that a reply took beyond the client's own work."""
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.exchange.on_late = self._note_late
        self.tracking = Tracking(needed=not isinstance(self.solver.start(self.w_0)[1], tuple))

    @property
    def s(self) -> np.ndarray:
        """How many samples each client holds."""
        return np.array([node.s for node in self.nodes])

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
        self._look_around()
        for node in self.nodes:
            node.misses = 0
        new = [i for i in sorted(self.clock.present) if not self.clock.reports[i]]
        if new and self.plain:
            self._race(new, w)
        elif new:
            self._probe(new, w)
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
        seen = measurement([*answers.values()])
        self.measured.setdefault(upcoming.number, seen)
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
        planned = Round(number, active, tau, eta, gamma)
        if self._prepared is not None and self._prepared[0] is model.w:
            _, held, answers = self._prepared
        else:
            held, answers = self._ask(model, planned, measure=self.watch)
            if self.watch or self.plain:
                self.measured.setdefault(number, measurement([*answers.values()]))
        self._prepared, self.last = None, answers
        steps = dict(zip(held.active.tolist(), held.tau.tolist(), strict=True))
        weights = np.array([a.s for a in answers.values()])
        p = weights / weights.sum()
        tau_i = np.array([steps[i] for i in answers], float)
        m = sum(p_i * a.m.astype(float) for p_i, a in zip(p, answers.values(), strict=True))
        m = np.asarray(m).astype(model.w.dtype)
        step = Step(
            eta=eta,
            gamma=gamma,
            tau_mean=float(p @ tau_i),
            tau_harmonic=float(1 / (p / tau_i).sum()),
            share=float(weights.sum() / self.s[sorted(self.clock.present)].sum()),
        )
        w, server = self.solver.server_step(model.w, model.server, m, step)
        self.tracking.counted(answers, number, m)
        self._time_round(answers, steps)
        self._stop_tracking({i for i, node in enumerate(self.nodes) if node.misses >= MISSES})
        self._look_around()
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

    def _ask(self, model: Model, planned: Round, measure: bool) -> tuple[Round, dict[int, Answer]]:
        """Do one exchange; return the round as it was held and the replies that count."""
        self._began = self._began or time.monotonic()
        failed: set[int] = set()
        while True:
            held = self._fill(planned, failed)
            needed = max(1, math.ceil(self.quorum * len(held.active)))
            answers = self._one_exchange(model, held, measure, needed)
            lost = self._hear(answers)
            if lost:
                self.exchange.counts["lost states"] += len(lost)
                self.tracking.restart(f"{self._names(lost)} lost the solver's state")
                answers = self._one_exchange(model, held, measure, needed)
                self._hear(answers)
            self._drop_absurd(answers)
            for i in held.active.tolist():
                self.nodes[i].misses = 0 if i in answers else self.nodes[i].misses + 1
            if len(answers) >= needed:
                return held, answers
            failed |= set(held.active.tolist()) - answers.keys()

    def _fill(self, planned: Round, failed: set[int]) -> Round:
        """Return the round with the next fastest in place of participants who are not there."""
        T, wanted = self.clock.T, planned.active.tolist()
        there = [i for i in self.clock.ranking.tolist() if i not in failed]
        stay = [i for i in wanted if i in there]
        others = [i for i in there if i not in wanted and (self.plain or math.isfinite(T[i]))]
        standing_in = others[: len(wanted) - len(stay)]
        active = np.array([*stay, *standing_in], int)
        self._stop_tracking((set(wanted) - set(stay)) | (self._standing_in - set(active.tolist())))
        self._standing_in = set(standing_in)
        if not len(active):
            raise NobodyAnswered(
                f"round {planned.number + 1}: none of {len(self.nodes)} clients answered in time. "
                "Look at the nodes' own logs, or give a longer deadline"
            )
        if stay == wanted:
            return planned
        return planned._replace(active=active, tau=self.work.steps(T[active], self.s[active]))

    def _stop_tracking(self, out: set[int]) -> None:
        """Restart tracking where clients that have a state are out of it."""
        missing = [i for i in sorted(out) if self.tracking.holds(i)]
        if missing:
            self.tracking.restart(f"{self._names(missing)} takes no part any more")

    def _hear(self, answers: dict[int, Answer]) -> list[int]:
        return self.tracking.heard({i: answer.applied for i, answer in answers.items()})

    def _names(self, clients: list[int]) -> str:
        return "client " + ", ".join(self.nodes[i].name for i in clients)

    def _one_exchange(
        self, model: Model, planned: Round, measure: bool, needed: int
    ) -> dict[int, Answer]:
        by_id = {self.nodes[i].id: int(i) for i in planned.active}
        record = self.names.record(model.w)
        contents = {
            self.nodes[i].id: self._content(model, planned, i, tau, measure, record)
            for i, tau in zip(planned.active.tolist(), planned.tau.tolist(), strict=True)
        }

        def read(node: int, content: RecordDict) -> Answer:
            if self.plain:
                return read_model(content, self.names, self.weight, model.w)
            return read_answer(content, self.names, self.weight, measure)

        deadline = self._deadline(planned)
        replies = self.exchange.ask(contents, TRAIN, deadline, read, needed)
        steps = dict(zip(planned.active.tolist(), planned.tau.tolist(), strict=True))
        answers = {}
        for id_ in sorted(replies, key=lambda id_: by_id[id_]):
            answer, seconds = replies[id_]
            i = by_id[id_]
            answers[i] = answer
            self.nodes[i].s = answer.s
            own = answer.seconds if answer.seconds is not None else seconds
            self.clock.report(i, own)
            busy = own if self.plain else own * steps[i]
            self._overhead = max(self._overhead, seconds - busy)
        return answers

    def _content(
        self, model: Model, planned: Round, i: int, tau: int, measure: bool, record: Any
    ) -> RecordDict:
        if self.plain:
            config = ConfigRecord({**self.config, "server-round": planned.number + 1})
            return RecordDict({"arrays": record, "config": config})
        mean, mean_of = self.tracking.mean_for(i)
        task = self._task(planned.number, tau, planned.eta, mean_of, measure)
        return task_content(record, task, model.server, mean, self.config)

    def _task(self, number: int, tau: int, eta: float, mean_of: int, measure: bool) -> Task:
        return Task(
            number=number,
            tau=int(tau),
            eta=eta,
            batch=self.work.batch,
            seed=self.seed,
            solver=describe_solver(self.solver),
            epoch=self.tracking.epoch,
            mean_of=mean_of,
            measure=measure,
        )

    def _drop_absurd(self, answers: dict[int, Answer]) -> None:
        norms = {i: float(np.linalg.norm(a.m.astype(float))) for i, a in answers.items()}
        usual = [*self._norms, *norms.values()]
        limit = ABSURD * float(np.median(usual)) if len(usual) >= 3 else math.inf
        for i, norm in norms.items():
            if 0 < limit < norm:
                name = self.nodes[i].name
                log(WARNING, "client %s: a message of absurd norm %.3g, dropped", name, norm)
                self.exchange.counts["malformed"] += 1
                del answers[i]
            else:
                self._norms = [*self._norms, norm][-20:]

    def _deadline(self, planned: Round) -> float:
        if self.deadline is not None:
            return self.deadline
        T = self.clock.T[planned.active]
        expected = float((T if self.plain else T * planned.tau).max()) + self._overhead
        if not math.isfinite(expected) or not self._overhead:
            return self._first_deadline()
        return min(max(LEAST_DEADLINE, PATIENCE * expected), self.timeout)

    def _look_around(self) -> None:
        """Note which nodes are connected; new ones become clients without a speed."""
        online = set(self.exchange.grid.get_node_ids())
        for id_ in sorted(online - {node.id for node in self.nodes}):
            self.nodes.append(Node(id_, str(id_)))
            self.clock.add()
        self.clock.present = {i for i, node in enumerate(self.nodes) if node.id in online}

    def _probe(self, new: list[int], w: np.ndarray) -> None:
        """Ask new clients for a few steps; whoever does not answer stays out of the next stage."""
        tau = int(self.work.base(np.ones(1))[0])
        content = task_content(
            self.names.record(w),
            self._task(0, tau, self.solver.eta, NOTHING, measure=False),
            self.solver.start(w)[0],
            None,
            self.config,
        )
        contents = {self.nodes[i].id: content for i in new}
        deadline = self._first_deadline()
        replies = self.exchange.ask(contents, PROFILE, deadline, read_profile, hurry=True)
        for i in new:
            node = self.nodes[i]
            if node.id not in replies:
                self.clock.present.discard(i)
                continue
            (node.s, T, number), seconds = replies[node.id]
            node.name = str(number)
            self._overhead = max(self._overhead, seconds)
            for report in (*self.remembered.get(node.name, ()), T):
                self.clock.report(i, report)
            if node.name in self.speeds:
                self.clock.known[i] = self.speeds[node.name]

    def _race(self, new: list[int], w: np.ndarray) -> None:
        """Let new plain clients train once: the first to answer are the fastest.

        It ends when the first stage's are known; the others' times count when they come.
        """
        config = ConfigRecord({**self.config, "server-round": 0})
        content = RecordDict({"arrays": self.names.record(w), "config": config})
        first = self.participation.stages(len(new))[0] if len(new) == len(self.nodes) else 1
        replies = self.exchange.ask(
            {self.nodes[i].id: content for i in new},
            TRAIN,
            self._first_deadline(),
            lambda node, content: read_model(content, self.names, self.weight, w),
            enough=first,
        )
        for i in new:
            if self.nodes[i].id in replies:
                answer, seconds = replies[self.nodes[i].id]
                self.nodes[i].s = answer.s
                self.clock.report(i, answer.seconds or seconds)

    def _first_deadline(self) -> float:
        return self.deadline or min(FIRST_DEADLINE, self.timeout)

    def _note_late(self, id_: int, seconds: float) -> None:
        if self.plain:
            for i, node in enumerate(self.nodes):
                if node.id == id_:
                    self.clock.report(i, seconds)

    def _time_round(self, answers: dict[int, Answer], steps: dict[int, int]) -> None:
        seconds, self._began = time.monotonic() - self._began, 0.0
        busy = [
            a.seconds * (1 if self.plain else steps[i])
            for i, a in answers.items()
            if a.seconds is not None
        ]
        waiting = max(0.0, 1 - float(np.mean(busy)) / seconds) if busy and seconds else 0.0
        self.clock.last_round = (seconds, waiting)


def measurement(answers: list[Answer]) -> Measurement:
    """Return what a set of replies says of w."""
    s = np.array([a.s for a in answers])
    p = s / s.sum()
    gradients = [a.g.astype(float) for a in answers if a.g is not None]
    if len(gradients) < len(answers):
        raise BadReply("a reply holds no gradient")
    g = sum(p_i * g_i for p_i, g_i in zip(p, gradients, strict=True))
    grad_norm_sq = float((np.asarray(g) ** 2).sum())
    mean_sq = float(sum(p_i * (g_i**2).sum() for p_i, g_i in zip(p, gradients, strict=True)))
    within = sum(a.within for a in answers) / float(s.sum())
    return Measurement(
        clients=len(answers),
        samples=float(s.sum()),
        loss=float(p @ np.array([a.loss for a in answers])),
        grad_norm_sq=grad_norm_sq,
        noise=noise(len(answers), float(s.sum()), grad_norm_sq, mean_sq, within),
    )
