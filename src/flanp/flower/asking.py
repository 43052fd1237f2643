"""One round's exchange with Flower's nodes: asked again, filled up, until enough have answered."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from logging import WARNING
from typing import NamedTuple

import numpy as np
from flwr.app import RecordDict
from flwr.common.logger import log

from flanp.engine import Round
from flanp.flower.clients import Clients
from flanp.flower.exchange import Exchange
from flanp.flower.members import Members
from flanp.flower.remembering import Came, Memories, own_of
from flanp.flower.replies import UsualNorms
from flanp.flower.timing import Deadlines
from flanp.flower.tracking import NO_ROUND, Tracking
from flanp.flower.wire import EVALUATE, TRAIN, Answer, BadReply, Profile
from flanp.method import Method
from flanp.patience import Ends
from flanp.solvers import Solver
from flanp.trees import Tree

QUORUM = 0.5
"""Where everyone is waited for, the share that must have answered when patience is at its end."""
FAILURES = 3
"""A client that fails so many times in the background is not waited for at the end."""
MISSES = 2
"""A participant that misses so many rounds in a row is no longer one of those tracked."""
RETURN_SECONDS, LOOK_SECONDS = 60.0, 2.0
"""How long to wait for a node when none is connected, and how often to look."""


class NobodyAnswered(RuntimeError):
    """Too few clients answered, and trying again did not help."""


class ServerModel(NamedTuple):
    """What the server keeps of a run."""

    w: np.ndarray
    server: Tree
    """The solver's state at the server."""
    generation: int
    """The start of the solver that it belongs to."""
    reports: tuple[dict[str, float | int | list[float] | list[int]], ...] = ()
    """The metrics that clients sent in the round that led to it."""
    memories: Memories = Memories()
    """The clients' states, where the server keeps them."""


@dataclass
class Asking:
    """Asks participants for a round's work."""

    exchange: Exchange
    clients: Clients
    members: Members
    tracking: Tracking
    method: Method
    deadlines: Deadlines
    _standing_in: set[int] = field(default_factory=set)
    """Who takes the place of participants that are not there."""
    _norms: UsualNorms = field(default_factory=UsualNorms)
    came: list[Came] = field(default_factory=list)
    """What clients that take no part have sent and no round has counted yet."""
    _asked_first: dict[str, float] = field(default_factory=dict)
    """When each client was first asked to work in the background."""

    def hold(
        self, model: ServerModel, planned: Round, measure: bool
    ) -> tuple[Round, dict[int, Answer]]:
        """Do one exchange; return the round as it was held and the replies that count.

        With too few replies, others are asked in place of those who did not answer. A client
        that lost its state makes all start afresh; one that does so twice has not answered.
        """
        failed: set[int] = set()
        had_lost: set[int] = set()
        held, answers = planned, dict[int, Answer]()
        while True:
            self.wait_for_anyone(model.w)
            generation, others = self.tracking.generation, self._fill(planned, failed)
            nobody_new = set(others.active.tolist()) <= answers.keys()
            if nobody_new and generation == self.tracking.generation:
                return held, answers
            held = others
            answers, needed = self._one_exchange(model, held, measure)
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

    def server_state(self, model: ServerModel) -> Tree:
        """Return the solver's state at the server, which restarts with those at the clients."""
        same = model.generation == self.tracking.generation
        return model.server if same else self.method.solver.server_start(model.w)

    def greet(self, w: np.ndarray) -> None:
        """See who is there and ask strangers how fast they are, once in a stage.

        Where nobody is known, as at the start, they are waited for: a race until the first
        stage's clients are known. All others are heard when they answer.
        """
        self.hear_late()
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
            self.exchange.counts["exchanges"] += 1
            self.exchange.send(tasks, self.clients.first_message, NO_ROUND)
            return
        first_stage = self.method.participation.sizes(len(new))[0]
        replies = self.exchange.ask(
            tasks,
            self.clients.first_message,
            self.deadlines.first(),
            self.clients.profile,
            enough=first_stage if self.clients.race else None,
            race=self.clients.race,
            hurry=not self.clients.race,
        )
        for id_, (profile, took) in replies.items():
            beside = profile.beside(took, self.clients.first_message)
            self.members.introduce(self.members.numbers[id_], profile, beside)

    def hear_late(self) -> None:
        """Learn how fast clients are from replies that are of no other use."""
        for sent, content, seconds in self.exchange.late():
            if sent.type == EVALUATE:
                continue
            i = self.members.numbers[sent.node]
            try:
                profile = self.clients.profile(content, seconds)
                if sent.type == TRAIN and self.method.solver.remembers_absent:
                    answer = self.clients.read(content, np.zeros(0), False, seconds)
                    if self._norms.exceeded(answer):
                        raise BadReply("a message of absurd norm")
                    if answer.first is None:  # several steps lead away from the model
                        self.came.append(Came(self.members.all[i].name, sent.round, answer))
            except Exception as error:  # whatever a node sends must not end the run
                self.exchange.malformed(sent.node, error)
            else:
                self.members.introduce(i, profile, profile.beside(seconds, sent.type))

    def let_the_absent_work(self, model: ServerModel, round_: Round) -> int:
        """Send the model to those who take no part and are at leisure, for one step each.

        Whoever takes longer than any round may is asked anew. Return how many were asked.
        """
        now = self.exchange.time.now()
        if len(round_.background):
            self.exchange.forget(TRAIN, before=now - self.deadlines.longest)
        free = self.members.without(round_.background.tolist(), self.exchange.owing())
        free = [i for i in free if i in self.members.online]
        if not free:
            return 0
        alone = round_._replace(active=np.array(free, int), tau=np.ones(len(free), int))
        tasks = self._tasks(model, alone, measure=False)
        for i in free:
            self._asked_first.setdefault(self.members.all[i].name, now)
        self.exchange.counts["background tasks"] += len(free)
        self.exchange.send(tasks, TRAIN, round_.number)
        return len(free)

    def awaited(self, heard: set[str]) -> set[str]:
        """Return the clients that are there and of whom the server has yet to hear.

        Those are not waited for who have failed again and again, or for longer than a round may
        take.
        """
        began = self.exchange.time.now() - self.deadlines.longest
        there = [self.members.all[i] for i in self.members.present]
        return {
            member.name
            for member in there
            if member.name not in heard
            and self.exchange.failures[member.id] < FAILURES
            and self._asked_first.get(member.name, began) >= began
        }

    def stop_tracking_the_missing(self) -> None:
        """Restart tracking where clients that have a state have missed too many rounds."""
        self._stop_tracking(i for i, m in enumerate(self.members.all) if m.misses >= MISSES)

    def wait_for_anyone(self, w: np.ndarray) -> None:
        """Give nodes that are all gone some time to come back."""
        time = self.exchange.time
        end = time.now() + RETURN_SECONDS
        while not len(self.members.present):
            if time.now() > end:
                raise NobodyAnswered(
                    f"none of {len(self.members.all)} clients has been connected for "
                    f"{RETURN_SECONDS:.0f} s"
                )
            time.sleep(LOOK_SECONDS)
            self.greet(w)

    def _fill(self, planned: Round, failed: set[int]) -> Round:
        """Return the round with the next fastest in place of participants who are not there."""
        wanted = planned.active.tolist()
        T = np.append(planned.T, np.full(len(self.members.all) - len(planned.T), np.inf))
        present = self.members.present
        ranking = present[np.argsort(T[present], kind="stable")].tolist()
        there = [i for i in ranking if i not in failed]
        there = self.members.without(there, self.exchange.overdue()) or there
        stay = [i for i in wanted if i in there]
        standing_in = [i for i in there if i not in wanted][: len(wanted) - len(stay)]
        # Whoever was not waited for is at work still, and is neither asked nor replaced.
        free = self.members.without([*stay, *standing_in], self.exchange.outrun())
        active = np.array(free or [*stay, *standing_in], int)
        out = (set(wanted) - set(stay)) | (self._standing_in - set(standing_in) - set(stay))
        self._stop_tracking(out)
        self._standing_in = set(standing_in)
        if not len(active):
            raise NobodyAnswered(
                f"round {planned.number + 1}: none of {len(self.members.all)} clients answered in "
                "time with what could be used. Look at the nodes' own logs, or give a longer "
                f"deadline.{self.exchange.complaint}"
            )
        if active.tolist() == wanted:
            return planned
        exchange = np.append(planned.exchange, np.zeros(len(T) - len(planned.exchange)))
        s = self.members.s[active]
        tau = self.method.work.local_steps(T[active], s, exchange[active])
        ends = self.method.patience.limits(len(active))
        return planned._replace(active=active, tau=tau, T=T, ends=ends)

    def _stop_tracking(self, out: Iterable[int]) -> None:
        """Restart tracking where clients that have a state are out of it."""
        missing = [i for i in sorted(out) if self.tracking.holds(i)]
        if missing:
            self.tracking.restart(f"{self.members.called(missing)} takes no part any more")

    def _one_exchange(
        self, model: ServerModel, planned: Round, measure: bool
    ) -> tuple[dict[int, Answer], int]:
        """Return the replies, and how many are needed."""
        active, members, ends = planned.active.tolist(), self.members.all, planned.ends
        needed = _needed(ends, len(active))
        overheads = np.array([members[i].overhead for i in active])
        expected = planned.T[active] * planned.tau + overheads
        replies = self.exchange.ask(
            self._tasks(model, planned, measure),
            TRAIN,
            self.deadlines.of_round(float(expected.max()), ends.deadline),
            lambda content, seconds: self.clients.read(content, model.w, measure, seconds),
            needed,
            enough=ends.enough if ends.enough < len(active) else None,
            round_=planned.number,
            expected={members[i].id: t for i, t in zip(active, expected.tolist(), strict=True)},
        )
        answers = {}
        for i, tau in zip(active, planned.tau.tolist(), strict=True):
            if members[i].id in replies:
                answers[i], took = replies[members[i].id]
                profile = Profile(answers[i].s, answers[i].seconds)
                self.members.introduce(i, profile, max(0.0, took - tau * profile.seconds))
        return dict(sorted(answers.items())), needed

    def _tasks(self, model: ServerModel, planned: Round, measure: bool) -> dict[int, RecordDict]:
        """Return the messages of a round's participants, by node."""
        active, solver = planned.active.tolist(), self.method.solver
        means = [self.tracking.mean_for(i) for i in active]
        own: list[Tree] = [()] * len(active)
        if isinstance(solver, Solver) and solver.remembers_absent:
            names = [self.members.all[i].name for i in active]
            own = [own_of(solver, model.memories.clients, name, model.w) for name in names]
        server = self.server_state(model)
        tasks = self.clients.tasks(model.w, server, planned, means, own, measure)
        return {self.members.all[i].id: task for i, task in zip(active, tasks, strict=True)}

    def _drop_absurd(self, answers: dict[int, Answer]) -> None:
        for i, norm in self._norms.absurd(answers).items():
            who = self.members.called([i])
            log(WARNING, "%s: a message of absurd norm %.3g, dropped", who, norm)
            self.exchange.counts["malformed"] += 1
            del answers[i]


def _needed(ends: Ends, n: int) -> int:
    """Return how many of n participants must answer; no fleet is waited for without end."""
    least = min(ends.least, n)
    return least if math.isfinite(ends.deadline) else min(least, max(1, math.ceil(QUORUM * n)))
