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
    misses: int = 0
    """Rounds in a row without a usable reply."""
    mute: bool = False
    """Whether it did not answer the probe; it is tried again at the next stage."""


@dataclass
class Members:
    """All clients that were ever seen; the clock knows their speeds and who is there."""

    clock: MeasuredClock
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Seconds per step that are known, by name."""
    remembered: Mapping[str, list[float]] = field(default_factory=dict)
    """Reports of an interrupted run, by name."""
    all: list[Member] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    """The clients' numbers, by Flower's id."""

    @property
    def s(self) -> np.ndarray:
        """How many samples each client holds."""
        return np.array([member.s for member in self.all])

    def look(self, online: Iterable[int]) -> None:
        """Note which nodes are connected; new ones become clients without a speed."""
        there = set(online)
        for id_ in sorted(there - self.numbers.keys()):
            self.numbers[id_] = len(self.all)
            self.all.append(Member(id_, str(id_)))
            self.clock.add()
        self.clock.present = {
            i for id_, i in self.numbers.items() if id_ in there and not self.all[i].mute
        }

    def unknown(self) -> list[int]:
        """Return those who are there and of whose speed nothing is known."""
        return [i for i in sorted(self.clock.present) if not self.clock.reports[i]]

    def leave_out(self, mute: Iterable[int]) -> None:
        """Do without those who did not answer the probe."""
        for i in mute:
            self.all[i].mute = True
            self.clock.present.discard(i)

    def introduce(self, i: int, profile: Profile) -> None:
        """Note what a client's first reply says of it."""
        member = self.all[i]
        member.s, member.name = profile.s, profile.name or member.name
        for report in (*self.remembered.get(member.name, ()), profile.seconds):
            self.clock.report(i, report)
        if member.name in self.speeds:
            self.clock.known[i] = self.speeds[member.name]

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
