"""The clients of a run: Flower's nodes, by number, and what is known of each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flanp.clock import Clock, Heard
from flanp.flower.wire import Profile
from flanp.work import Work


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
    known: bool = False
    """Whether its speed is known."""


@dataclass
class Members:
    """All clients that were ever seen, and what they have said of their speed."""

    speeds: Mapping[str, float] = field(default_factory=dict)
    """Seconds per step that are known, by name, and need no reports."""
    strangers_too: bool = False
    """Whether clients of which nothing is known can take part."""
    remembered: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Reports of an interrupted run, by name."""
    all: list[Member] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    """The clients' numbers, by Flower's id."""
    online: set[int] = field(default_factory=set)
    _heard: list[tuple[int, float, float]] = field(default_factory=list)

    @property
    def s(self) -> np.ndarray:
        """How many samples each client holds."""
        return np.array([member.s for member in self.all])

    @property
    def present(self) -> np.ndarray:
        """The clients that can take part."""
        there = [i for i in sorted(self.online) if self.strangers_too or self.all[i].known]
        return np.array(there, int)

    def look(self, ids: Iterable[int]) -> None:
        """Note which nodes are connected; new ones become clients."""
        there = set(ids)
        for id_ in sorted(there - self.numbers.keys()):
            i = self.numbers[id_] = len(self.all)
            self.all.append(Member(id_, str(id_)))
            self._recall(i)
        self.online = {self.numbers[id_] for id_ in there}

    def strangers(self) -> list[int]:
        """Return those who are there and of whose speed nothing is known."""
        return [i for i in sorted(self.online) if not self.all[i].known]

    def introduce(self, i: int, profile: Profile, overhead: float) -> None:
        """Note what a reply says of a client, and what it took beyond the client's steps."""
        member = self.all[i]
        member.s, member.overhead = profile.s, overhead
        if profile.name and profile.name != member.name:
            member.name = profile.name
            self._recall(i)
        if member.name not in self.speeds:
            self._report(i, profile.seconds, overhead)

    def heard(self) -> Heard:
        """Return what clients have reported of their speed since this was last asked."""
        heard, self._heard = self._heard, []
        return heard

    def without(self, clients: Iterable[int], ids: set[int]) -> list[int]:
        """Return the clients whose nodes are not among some."""
        return [i for i in clients if self.all[i].id not in ids]

    def called(self, clients: Iterable[int]) -> str:
        """Return how logs call some clients."""
        return "client " + ", ".join(self.all[i].name for i in clients)

    def described(self, clock: Clock, work: Work) -> dict[str, Any]:
        """Return the ranking and the reports by name, for a person and for the next server.

        A report is the seconds of a local step and those of an exchange.
        """
        reports = {m.name: list(clock.reports.get(i, ())) for i, m in enumerate(self.all)}
        N = len(self.all)
        seconds = work.base(self.s) * clock.T(N) + clock.exchange(N)
        ranking = clock.ranked(self.present, seconds).ranking
        return {"ranking": [self.all[i].name for i in ranking], "reports": reports}

    def _recall(self, i: int) -> None:
        """Make use of what was known of a client before."""
        name = self.all[i].name
        for seconds, exchange in self.remembered.get(name, ()):
            self._report(i, seconds, exchange)
        if name in self.speeds:
            self._report(i, self.speeds[name], 0.0)

    def _report(self, i: int, seconds: float, exchange: float) -> None:
        self.all[i].known = True
        self._heard.append((i, seconds, exchange))
