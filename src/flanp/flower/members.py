"""The clients of a run: Flower's nodes, by number, and what is known of each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flanp.flower.timing import MeasuredClock
from flanp.flower.wire import Profile


@dataclass
class Member:
    """A client: a Flower node."""

    id: int
    """Flower's id; a node that comes back under another id is another client."""
    name: str
    """How logs, given speeds and checkpoints call it."""
    s: float = 1.0
    """How many samples it holds."""
    overhead: float = 0.0
    """Seconds that its latest reply took beyond its local steps."""
    misses: int = 0
    """Rounds in a row without a usable reply."""
    greeted: bool = False
    """Whether it was asked in this stage how fast it is."""


@dataclass
class Members:
    """All clients that were ever seen; the clock knows their speeds and who can take part."""

    clock: MeasuredClock
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Seconds per step that are known, by name."""
    strangers_too: bool = False
    """Whether clients of which nothing is known can take part."""
    remembered: Mapping[str, list[float]] = field(default_factory=dict)
    """Reports of an interrupted run, by name."""
    all: list[Member] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    """The clients' numbers, by Flower's id."""
    online: set[int] = field(default_factory=set)

    @property
    def s(self) -> np.ndarray:
        """How many samples each client holds."""
        return np.array([member.s for member in self.all])

    def look(self, ids: Iterable[int]) -> None:
        """Note which nodes are connected; new ones become clients."""
        there = set(ids)
        for id_ in sorted(there - self.numbers.keys()):
            i = self.numbers[id_] = len(self.all)
            self.all.append(Member(id_, str(id_)))
            self.clock.add()
            self._recall(i)
        self.online = {self.numbers[id_] for id_ in there}
        self.clock.present = {i for i in self.online if self.strangers_too or self.clock.knows(i)}

    def strangers(self) -> list[int]:
        """Return those who are there and of whose speed nothing is known."""
        return [i for i in sorted(self.online) if not self.clock.knows(i)]

    def introduce(self, i: int, profile: Profile, overhead: float) -> None:
        """Note what a reply says of a client, and what it took beyond the client's steps."""
        member = self.all[i]
        member.s, member.overhead = profile.s, overhead
        if profile.name and profile.name != member.name:
            member.name = profile.name
            self._recall(i)
        self.clock.report(i, profile.seconds)
        if i in self.online:
            self.clock.present.add(i)

    def _recall(self, i: int) -> None:
        """Make use of what was known of a client before."""
        name = self.all[i].name
        for report in self.remembered.get(name, ()):
            self.clock.report(i, report)
        if name in self.speeds:
            self.clock.known[i] = self.speeds[name]

    def without(self, clients: Iterable[int], ids: set[int]) -> list[int]:
        """Return the clients whose nodes are not among some."""
        return [i for i in clients if self.all[i].id not in ids]

    def called(self, clients: Iterable[int]) -> str:
        """Return how logs call some clients."""
        return "client " + ", ".join(self.all[i].name for i in clients)

    def save(self) -> dict[str, Any]:
        """Return the ranking and the reports, for the next server."""
        reports = {m.name: list(self.clock.reports[i]) for i, m in enumerate(self.all)}
        ranking = [self.all[i].name for i in self.clock.ranking]
        return {"ranking": ranking, "seconds per step": reports}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Remember the reports of `save`; they count when their clients are back."""
        self.remembered = saved["seconds per step"]
