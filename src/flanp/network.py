"""What an exchange with a client costs: the bytes over its links, and a latency."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple, final

import numpy as np

from flanp.parts import Part, Within
from flanp.speeds.devices import bandwidths
from flanp.speeds.traces import read_trace

KBits = Annotated[float, Within(1e-3, 1e12)]
"""Thousands of bits a second."""
Seconds = Annotated[float, Within(0, 1e9)]
Share = Annotated[float, Within(1e-3, 1e3)]
Times = Annotated[float, Within(1e-6, 1e9)]


class Links(NamedTuple):
    """The clients' links; each of its arrays has an entry for each client."""

    down: Callable[[float], np.ndarray]
    """kbit/s to the client, at a time."""
    up: float
    """kbit/s from the client, as a multiple of that."""
    latency: float
    """Seconds that each message takes beyond its bytes."""
    times: float = 1.0
    """How many times each byte counts."""
    steady: bool = True
    """Whether they never change."""

    def seconds(self, time: float, to: int, back: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how long so many bytes to each client take, and so many bytes back."""
        each = self.times * 8e-3 / self.down(time)  # seconds a byte
        return self.latency + to * each, self.latency + back * each / self.up


class Network(Part):
    """How long exchanges take."""

    @abstractmethod
    def links(self, ids: Sequence[str], rng: np.random.Generator, step: float) -> Links | None:
        """Return the links of clients with these ids; None where exchanges take no time.

        `step` is how long the median client's local step takes.
        """


@final
@dataclass(frozen=True)
class Free(Network):
    """Exchanges take no time: the paper's clock."""

    def links(self, ids: Sequence[str], rng: np.random.Generator, step: float) -> None:
        """Return none."""


FREE = Free()
"""The network where nothing else is said."""


@final
@dataclass(frozen=True)
class Exchange(Network):
    """Each exchange takes as long as so many local steps of the median client."""

    steps: Annotated[float, Within(0, 1e6)] = 1.0

    def links(self, ids: Sequence[str], rng: np.random.Generator, step: float) -> Links:
        """Return links of endless bandwidth with a latency."""
        return _constant(np.full(len(ids), np.inf), 1.0, self.steps * step / 2)


@final
@dataclass(frozen=True)
class Lines(Network):
    """The same bandwidth for everyone."""

    down: KBits = 10_000.0
    """kbit/s to a client."""
    up: KBits = 5_000.0
    """kbit/s from a client."""
    latency: Seconds = 0.05
    """Seconds that each message takes beyond its bytes."""
    times: Times = 1.0
    """How many times each byte counts: for a small model that stands for a large one."""

    def links(self, ids: Sequence[str], rng: np.random.Generator, step: float) -> Links:
        """Return equal links."""
        down = np.full(len(ids), self.down)
        return _constant(down, self.up / self.down, self.latency, self.times)


@final
@dataclass(frozen=True)
class Phones(Network):
    """Bandwidths of phones as measured; independent of how fast they compute.

    See `flanp.speeds.Devices` for where the numbers come from.
    """

    up: Share = field(default=1.0)
    """Bandwidth from a client as a multiple of that to it."""
    latency: Seconds = 0.05
    times: Times = 1.0
    """How many times each byte counts: for a small model that stands for a large one."""

    def links(self, ids: Sequence[str], rng: np.random.Generator, step: float) -> Links:
        """Draw the bandwidths."""
        return _constant(bandwidths(rng.random(len(ids))), self.up, self.latency, self.times)


@final
@dataclass(frozen=True)
class FromTrace(Network):
    """Bandwidths from a CSV file with the columns client, time, seconds, kbits.

    It is the file of `flanp.speeds.Trace`: from each line's time on its values hold.
    """

    path: Path
    up: Share = 1.0
    """Bandwidth from a client as a multiple of that to it."""
    latency: Seconds = 0.0

    def links(self, ids: Sequence[str], rng: np.random.Generator, step: float) -> Links:
        """Read the file."""
        down = read_trace(self.path).steps("kbits", ids)
        return Links(down, self.up, self.latency, steady=False)


def _constant(down: np.ndarray, up: float, latency: float, times: float = 1.0) -> Links:
    return Links(lambda time: down, up, latency, times)
