"""The engine on real machines: Flower nodes in place of simulated clients."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from logging import INFO

import numpy as np
from flwr.app import MetricRecord, RecordDict
from flwr.common.logger import log

from flanp.checks import BadInput, calling
from flanp.clock import Clock
from flanp.engine import Reply, Roll, Round, Spent
from flanp.flower.asking import Asking, NobodyAnswered, ServerModel
from flanp.flower.members import Members
from flanp.flower.remembering import (
    after_messages,
    after_round,
    forgotten,
    loaded,
    own_of,
    reckoned,
    saved,
)
from flanp.flower.replies import mean_message, measurement
from flanp.flower.wire import EVALUATE, SERVER, Answer, read_metrics
from flanp.measurement import Look, Seen
from flanp.solvers.base import Solver, Step, step_of
from flanp.trees import Tree, as_arrays, leaves, rebuild, transform

Evaluate = Callable[[int, np.ndarray], dict[str, float]]
"""(rounds done, w) -> numbers by name."""


@dataclass
class Fleet:
    """An engine (flanp.engine) on Flower's nodes.

    The nodes are real: who is there, what they have in mind of the solver and how far they have
    come is out in the world, and only mirrored here (`members`, `tracking`, `exchange`).
    """

    asking: Asking
    w_0: np.ndarray
    exact: bool = True
    """Whether clients send gradients; those of plain clients are updates."""
    evaluation: Evaluate = lambda rounds, w: {}
    """The server's own evaluation."""
    _unbilled: float = 0.0
    """Seconds of exchanges that no round has been charged with yet."""

    @property
    def members(self) -> Members:
        """The clients."""
        return self.asking.members

    @property
    def solver(self) -> Solver:
        """The solver."""
        solver = self.asking.method.solver
        assert isinstance(solver, Solver), "the strategy takes no others"
        return solver

    def start(self) -> ServerModel:
        """Return the start model."""
        return self._afresh(self.w_0)

    def restart(self, model: ServerModel) -> ServerModel:
        """Keep w and start the solver afresh, unless it remembers; new nodes will be met."""
        for member in self.members.all:
            member.misses, member.greeted = 0, False
        if self.solver.remembers_absent:
            return model
        self.asking.tracking.restart()
        return self._afresh(model.w)

    def roll(self, model: ServerModel, time: float) -> Roll:
        """See who is there; strangers are asked how fast they are."""
        del time
        began = self._now()
        self.asking.greet(model.w)
        if any(member.known for member in self.members.all):
            self.asking.wait_for_anyone(model.w)
        elif not len(self.members.present):
            raise NobodyAnswered(
                "no node answered the probe: look at the nodes' own logs. Clients that are not "
                "built by flanp.flower.client need a strategy without a solver."
                f"{self.asking.exchange.complaint}"
            )
        seconds, self._unbilled = self._unbilled + self._now() - began, 0.0
        return Roll(self.members.present, self.members.s, self.members.heard(), seconds)

    def ask(self, model: ServerModel, round_: Round, look: Look) -> Reply:
        """Let the participants do their steps, and say what they see of the model if asked."""
        if Look.WHOLE in look:
            raise BadInput(
                "this stage rule looks at all clients in each round, the slow ones too: "
                "use GradientNoise, Halving or StatisticalAccuracy"
            )
        began = self._now()
        beside = self.asking.let_the_absent_work(model, round_)
        held, answers = self.asking.hold(model, round_, measure=Look.ACTIVE in look)
        self.asking.hear_late()
        self._unbilled += self._now() - began
        seconds = self._unbilled
        told = self.solver.tell(self.asking.server_state(model))
        each = model.w.nbytes + sum(a.nbytes for a in leaves(as_arrays(told)).values())
        sent = [*answers.values(), *(came.answer for came in self.asking.came)]
        return Reply(
            round=held,
            answered=np.array([*answers], int),
            seconds=seconds,
            spent=self._spent(held, answers, seconds),
            seen=self._seen(model, told, answers),
            sent=sum(answer.sent for answer in sent),
            received=each * (len(held.active) + beside),
            heard=self.members.heard(),
            content=answers,
        )

    def apply(self, model: ServerModel, reply: Reply) -> ServerModel:
        """Return the model after the server's step with the mean message."""
        self._unbilled = 0.0
        answers: dict[int, Answer] = reply.content
        held, replies = reply.round, [*answers.values()]
        asking, solver = self.asking, self.solver
        steps = dict(zip(held.active.tolist(), held.tau.tolist(), strict=True))
        tau = solver.local.length(np.array([steps[i] for i in answers], float))
        m, s = mean_message(replies).astype(model.w.dtype), np.array([a.s for a in replies])
        # A client may hold more than it said when the stage began.
        step = step_of(held.eta, held.gamma, s, tau, max(held.pool, s.sum()))
        with calling(f"{type(solver).__name__}.server_step", "it must return w and its new state"):
            w, server = solver.server_step(model.w, asking.server_state(model), m, step)
        after = ServerModel(
            np.asarray(w, model.w.dtype),
            transform(lambda a: _in_precision(a, model.w.dtype), as_arrays(server)),
            asking.tracking.generation,
            tuple(dict(answer.metrics) for answer in replies),
        )
        if solver.remembers_absent:
            return self._remembering(model, after, held.number, answers, m, step)
        asking.tracking.counted(answers, held.number, m, step)
        asking.stop_tracking_the_missing()
        return after

    def look(self, model: ServerModel, active: np.ndarray, look: Look) -> Seen:
        """See nothing: it would take an exchange."""
        del model, active, look
        return Seen()

    def evaluate(self, model: ServerModel, rounds: int) -> dict[str, float]:
        """Return what the server's own evaluation says of w."""
        return self.evaluation(rounds, model.w)

    def ask_to_evaluate(
        self, content: RecordDict, share: float, least: int, weight: str, rng: np.random.Generator
    ) -> list[MetricRecord]:
        """Return what some of the clients that are there find out about a model."""
        exchange = self.asking.exchange
        there = self.members.without(self.members.present.tolist(), exchange.overdue())
        count = min(max(int(share * len(there)), least), len(there))
        chosen = [there[i] for i in rng.choice(len(there), count, replace=False)]
        replies = exchange.ask(
            {self.members.all[i].id: content for i in chosen},
            EVALUATE,
            self.asking.deadlines.first(),
            lambda content, seconds: read_metrics(content, weight),
            needed=0,
            hurry=True,
        )
        return [metrics for metrics, _ in replies.values()]

    def named(self, model: ServerModel) -> dict[str, np.ndarray]:
        """Return the arrays of the global model by name."""
        return self.params(model)

    def params(self, model: ServerModel) -> dict[str, np.ndarray]:
        """Return w by the names of its arrays."""
        return self.asking.clients.names.split(model.w)

    def save(self, model: ServerModel, clock: Clock) -> dict[str, np.ndarray]:
        """Return what outlives the run: w, the clients' speeds, and the server's state.

        The latter only if there is none at the clients, which do not outlive it.
        """
        members = json.dumps(self.members.described(clock, self.asking.method.work)).encode()
        arrays = {"w": model.w, "members": np.frombuffer(members, np.uint8)}
        if self.solver.remembers_absent:
            arrays |= saved(model.memories)
        return arrays if self.asking.tracking.needed else arrays | leaves(model.server, SERVER)

    def load(self, arrays: dict[str, np.ndarray], clock: Clock) -> tuple[ServerModel, Clock]:
        """Return the model of `save`; the solver's states start afresh, as at a stage start."""
        if arrays["w"].shape != self.w_0.shape:
            raise BadInput("the checkpoint is of a model with other parameters")
        saved = json.loads(arrays["members"].tobytes())
        self.members.remembered = saved["reports"]
        model = self._afresh(arrays["w"])
        if self.asking.tracking.needed:
            log(INFO, "the clients' states are gone with the old run: tracking restarts")
            return model, clock
        if self.solver.remembers_absent:
            model = model._replace(memories=loaded(self.solver, arrays, model.w))
        return model._replace(server=rebuild(model.server, arrays, SERVER)), clock

    def _afresh(self, w: np.ndarray) -> ServerModel:
        server = as_arrays(self.solver.server_start(w))
        return ServerModel(w, server, self.asking.tracking.generation)

    def _remembering(
        self,
        model: ServerModel,
        after: ServerModel,
        number: int,
        answers: dict[int, Answer],
        m: np.ndarray,
        step: Step,
    ) -> ServerModel:
        """Return the model after what is known of all clients now, those that are absent too."""
        solver, asking, w = self.solver, self.asking, model.w
        told = solver.tell(asking.server_state(model))
        by_name = {self.members.all[i].name: answer for i, answer in answers.items()}
        at_work = [self.members.numbers[id_] for id_ in asking.exchange.working_for(number)]
        awaited = [self.members.all[i].name for i in at_work]
        awaited += [came.client for came in asking.came if came.round == number]
        memories = after_round(solver, model.memories, number, told, by_name, awaited, m, step, w)
        memories = after_messages(solver, memories, asking.came, w)
        asking.came = []
        there = [self.members.all[i] for i in self.members.present]
        memories, change = reckoned(solver, memories, {each.name: each.s for each in there}, w)
        return after._replace(
            server=as_arrays(solver.recall(after.server, change)),
            memories=forgotten(memories, asking.exchange.rounds()),
        )

    def _seen(self, model: ServerModel, told: Tree, answers: dict[int, Answer]) -> Seen:
        """Return what the replies say of w; of the absent what is known of them counts as well."""
        if not self.solver.remembers_absent:
            of_active = measurement([*answers.values()])
            everyone = of_active is not None and of_active.clients == len(self.members.present)
            return Seen(of_active, of_active if everyone and self.exact else None)
        clients, names = model.memories.clients, [self.members.all[i].name for i in answers]
        drifts = [self.solver.drift(own_of(self.solver, clients, n, model.w), told) for n in names]
        of_active = measurement([*answers.values()], drifts)
        if of_active is None:
            return Seen()
        heard = {*clients, *names}
        there = {self.members.all[i].name: self.members.all[i].s for i in self.members.present}
        samples = max(of_active.samples, sum(s for name, s in there.items() if name in heard))
        noise = of_active.noise * of_active.samples / samples
        # All but those who must still be heard: whoever has left is not waited for.
        known = {member.name for member in self.members.all}
        counted = len(known) - len(self.asking.awaited(heard))
        return Seen(of_active._replace(clients=counted, samples=samples, noise=noise))

    def _spent(self, held: Round, answers: dict[int, Answer], seconds: float) -> Spent:
        """Say where the participants' seconds went, as far as their replies tell."""
        active = held.active.tolist()
        busy = [min(seconds, answers[i].busy) if i in answers else 0.0 for i in active]
        lost = [0.0 if i in answers else seconds for i in active]
        work, lost_ = np.array(busy), np.array(lost)
        return Spent(held.active, work, np.zeros(len(active)), lost_, seconds - work - lost_)

    def _now(self) -> float:
        return self.asking.exchange.time.now()


def _in_precision(a: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a state in the model's precision, for it travels: a step's numbers are float64."""
    return a.astype(dtype) if a.dtype.kind == "f" else a
