"""Messages to nodes and their replies, with a deadline; late, failed and bad ones are counted."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from logging import WARNING
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from flwr.app import Message, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from flanp.flower.timing import Time, WallTime
from flanp.patience import TRIES

POLL_SECONDS = 0.25
LOOK_SECONDS = 5.0
"""How often to look whether the nodes that are awaited are still there."""
ATTEMPTS = 3
PAUSE_SECONDS = 5.0
"""How long to leave nodes alone that have all failed at once."""

REST = 3.0
"""Whoever let a deadline pass is left alone for so many deadlines, unless it answers before."""
HURRY, HURRY_SECONDS = 3.0, 30.0
"""In a hurry: how much longer than the first half took, and so many seconds, the others get."""

A = TypeVar("A")
NOTHING: Mapping[int, float] = MappingProxyType({})


class Sent(NamedTuple):
    """A message that is on its way."""

    node: int
    at: float
    type: str
    round: int
    """The round that it is of."""


class Late(NamedTuple):
    """A reply that nobody waits for any more."""

    sent: Sent
    content: RecordDict
    seconds: float


@dataclass
class Exchange:
    """Sends messages and collects the replies."""

    grid: Grid
    time: Time = field(default_factory=WallTime)
    counts: Counter[str] = field(default_factory=Counter)
    """How many exchanges there were, and how many replies were late, failed, malformed, lost."""
    failures: Counter[int] = field(default_factory=Counter)
    """How many times each node has failed at what nobody waited for."""
    complaint: str = ""
    """What was wrong with the last reply that was dropped."""
    _came_late: list[Late] = field(default_factory=list)
    _late: dict[str, Sent] = field(default_factory=dict)
    _resting: dict[int, float] = field(default_factory=dict)
    """Until when to leave nodes alone that let a deadline pass."""
    _outrun: set[int] = field(default_factory=set)
    """Nodes that were not waited for."""

    def overdue(self) -> set[int]:
        """Return the nodes to leave alone: a node does one task after the other."""
        self._pull({})
        now = self.time.now()
        return {node for node, until in self._resting.items() if now < until}

    def outrun(self) -> set[int]:
        """Return the nodes that are at work on what is not needed any more."""
        return self._outrun & self.owing()

    def owing(self) -> set[int]:
        """Return the nodes that have not answered all messages."""
        self._pull({})
        return {sent.node for sent in self._late.values()}

    def late(self) -> list[Late]:
        """Return the replies that have come since this was last asked and nobody waits for."""
        self._pull({})
        late, self._came_late = self._came_late, []
        return late

    def rounds(self) -> set[int]:
        """Return the rounds that somebody still works for."""
        return {sent.round for sent in self._late.values()}

    def working_for(self, round_: int) -> list[int]:
        """Return the nodes that still work for a round."""
        return [sent.node for sent in self._late.values() if sent.round == round_]

    def forget(self, message_type: str, before: float) -> None:
        """Expect no answer any more to messages of some type that were sent before some time."""
        for id_, sent in [*self._late.items()]:
            if sent.type == message_type and sent.at < before:
                del self._late[id_]

    def send(self, contents: Mapping[int, RecordDict], message_type: str, round_: int) -> None:
        """Send messages whose replies nobody waits for; `late` returns them."""
        self._late |= self._push(contents, message_type, round_)

    def ask(
        self,
        contents: Mapping[int, RecordDict],
        message_type: str,
        deadline: float,
        read: Callable[[RecordDict, float], A],
        needed: int = 1,
        enough: int | None = None,
        race: bool = False,
        hurry: bool = False,
        round_: int = -1,
        expected: Mapping[int, float] = NOTHING,
    ) -> dict[int, tuple[A, float]]:
        """Return what `read` makes of the replies, with their seconds, by node id.

        It returns when all have answered or failed, when `enough` have answered, or at the
        deadline; in a hurry, soon after half of them have answered. Whoever fails and would, by
        the seconds that are expected, be back before the slowest, and by the deadline, is asked
        again at once.
        With fewer than `needed` in the end it tries again: those who failed are asked anew, the
        others are waited for.
        Whoever let the deadline pass is left alone for a while; whoever was outrun, until it has
        answered, unless it was a race.
        Bad replies are dropped and counted, never used.
        """
        self.counts["exchanges"] += 1
        answers: dict[int, tuple[A, float]] = {}
        awaited: dict[str, Sent] = {}
        known = [seconds for seconds in expected.values() if seconds < math.inf]
        end, failures = self.time.now() + min(max(known, default=0.0), deadline), Counter[int]()

        def again(node: int) -> dict[str, Sent]:
            failures[node] += 1
            back = self.time.now() + expected.get(node, math.inf)
            if failures[node] >= TRIES or back > end:
                return {}
            pushed = self._push({node: contents[node]}, message_type, round_)
            self.counts["asked again"] += len(pushed)
            return pushed

        for attempt in range(1, ATTEMPTS + 1):
            busy = {sent.node for sent in awaited.values()} | answers.keys()
            rest = {node: c for node, c in contents.items() if node not in busy}
            awaited |= self._push(rest, message_type, round_)
            # Beyond the deadline nobody is waited for but those who are needed.
            wanted = enough if attempt == 1 else min(needed, enough or needed)
            self._collect(awaited, answers, deadline, read, wanted, hurry, again)
            if len(answers) >= min(needed, enough or needed):
                break
            log(
                WARNING,
                "%d of %d nodes answered, %d are needed (attempt %d of %d)",
                *(len(answers), len(contents), needed, attempt, ATTEMPTS),
            )
            if not awaited and attempt < ATTEMPTS:
                self.time.sleep(min(deadline, PAUSE_SECONDS))
        for id_, sent in awaited.items():
            self._late[id_] = sent
            if enough is not None and len(answers) >= enough:
                self._outrun |= set() if race else {sent.node}
            elif not race:
                self._count("late", sent.node, f"no reply within {deadline:.0f} s")
                self._resting[sent.node] = self.time.now() + REST * deadline
        return answers

    def _collect(
        self,
        awaited: dict[str, Sent],
        answers: dict[int, tuple[A, float]],
        deadline: float,
        read: Callable[[RecordDict, float], A],
        enough: int | None,
        hurry: bool,
        again: Callable[[int], dict[str, Sent]],
    ) -> None:
        """Move replies from `awaited` to `answers` until the deadline."""
        began = self.time.now()
        end, half = began + deadline, (len(awaited) + len(answers) + 1) // 2
        look = began + LOOK_SECONDS
        while awaited and self.time.now() < end:
            for reply in self._pull(awaited):
                sent = awaited.pop(reply.metadata.reply_to_message_id)
                seconds = self.time.now() - sent.at
                if reply.has_error():
                    self._count("failed", sent.node, reply.error.reason or "no reason given")
                    awaited |= again(sent.node)
                    continue
                try:
                    answers[sent.node] = read(reply.content, seconds), seconds
                except Exception as error:  # whatever a node sends must not end the run
                    self.malformed(sent.node, error)
            if enough is not None and len(answers) >= enough:
                break
            if hurry and len(answers) >= half:
                hurry = False
                end = min(end, began + HURRY * (self.time.now() - began) + HURRY_SECONDS)
            if self.time.now() > look:
                self._forget_the_gone(awaited)
                look = self.time.now() + LOOK_SECONDS
            if awaited:
                self.time.sleep(POLL_SECONDS)

    def _push(
        self, contents: Mapping[int, RecordDict], message_type: str, round_: int
    ) -> dict[str, Sent]:
        online = set(self.grid.get_node_ids())
        messages = [
            Message(content=content, message_type=message_type, dst_node_id=node)
            for node, content in contents.items()
            if node in online
        ]
        for node in contents.keys() - online:
            self._count("gone", node, "it is not connected")
        pushed = set(self.grid.push_messages(messages)) if messages else set()
        now = self.time.now()
        return {
            m.metadata.message_id: Sent(m.metadata.dst_node_id, now, message_type, round_)
            for m in messages
            if m.metadata.message_id in pushed
        }

    def _pull(self, awaited: dict[str, Sent]) -> list[Message]:
        """Return the replies that are awaited; drop those that came too late."""
        if not awaited and not self._late:
            return []
        replies = list(self.grid.pull_messages([*awaited, *self._late]))
        in_time = []
        for reply in replies:
            id_ = reply.metadata.reply_to_message_id
            if id_ in awaited:
                in_time.append(reply)
            elif id_ in self._late:
                sent = self._late.pop(id_)
                if all(sent.node != other.node for other in self._late.values()):
                    self._resting.pop(sent.node, None)
                    self._outrun.discard(sent.node)
                if reply.has_error():
                    self.failures[sent.node] += 1
                else:
                    late = Late(sent, reply.content, self.time.now() - sent.at)
                    self._came_late.append(late)
        return in_time

    def _forget_the_gone(self, awaited: dict[str, Sent]) -> None:
        online = set(self.grid.get_node_ids())
        for id_ in [id_ for id_, sent in awaited.items() if sent.node not in online]:
            sent = awaited.pop(id_)
            self._late[id_] = sent
            self._count("gone", sent.node, "it is not connected any more")

    def malformed(self, node: int, error: Exception) -> None:
        """Count a reply that cannot be used."""
        self._count("malformed", node, f"{type(error).__name__}: {error}")

    def _count(self, what: str, node: int, why: str) -> None:
        self.counts[what] += 1
        why = why.strip().split("\n")[-1]
        self.complaint = f" The last reply that was dropped, of node {node}: {why}"
        log(WARNING, "node %s: reply %s, dropped: %s", node, what, why)
