"""Which clients are there: always, by chance, or as recorded."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, final

import numpy as np

from flanp.checks import BadInput
from flanp.files import check_clients, read_client_table, read_number, reads_once
from flanp.parts import Part, Within
from flanp.piecewise import Piecewise, window_of
from flanp.streams import Stream, generator

Share = Annotated[float, Within(0, 0.95)]


class Presence(ABC):
    """Who of N clients is there at a time.

    All are functions of the time alone, in seconds, not of what was asked before: a resumed run
    sees the same. Growing times are cheap.
    """

    @abstractmethod
    def there(self, t: float) -> np.ndarray:
        """Return whether each client is there at time t."""

    @abstractmethod
    def until(self, t: float) -> np.ndarray:
        """Return up to when, after t, each client stays as it is, there or away; inf: for ever."""

    def gone(self, t: float) -> np.ndarray:
        """Return when each client that is there goes next; t for one that is away."""
        return np.where(self.there(t), self.until(t), t)

    def back(self, t: float) -> np.ndarray:
        """Return when each client that is away comes back; t for one that is there."""
        return np.where(self.there(t), t, self.until(t))


@dataclass(frozen=True)
class Availability(Part):
    """When clients can be asked, and how often they fail."""

    dropouts: Share = field(default=0.0, kw_only=True)
    """Probability that a task which was begun is lost midway."""

    @abstractmethod
    def presence(self, ids: Sequence[str], step: float, seed: int) -> Presence | None:
        """Return who is there when; None if everyone always is.

        Args:
            ids: the clients.
            step: seconds of a local step of the median client.
            seed: of what is random.
        """


@final
@dataclass(frozen=True)
class Always(Availability):
    """Everyone is always there: the paper's."""

    def presence(self, ids: Sequence[str], step: float, seed: int) -> None:
        """Return none."""


ALWAYS = Always()
"""The availability where nothing else is said."""


@final
@dataclass(frozen=True)
class Random(Availability):
    """In each window of a period each client is away with a probability, whatever it was before.

    >>> here = Random(away=0.5, period=10.0).presence(["a", "b", "c"], step=2.0, seed=1)
    >>> here.there(5.0).tolist(), here.gone(5.0).tolist(), here.back(5.0).tolist()
    ([True, False, False], [20.0, 5.0, 5.0], [5.0, 20.0, 60.0])
    """

    away: Share = 0.2
    period: Annotated[float, Within(1, 1e9)] = 100.0
    """In local steps of the median client."""

    def presence(self, ids: Sequence[str], step: float, seed: int) -> Presence | None:
        """Return what is drawn for each window."""
        return Windows(len(ids), self.away, self.period * step, seed) if self.away else None


@final
@dataclass(frozen=True)
class FromTrace(Availability):
    """From a CSV file with the columns client, from, until: in each line, when a client is there.

    Times are in seconds; 0 is the start of a run, and an empty `until` is for ever. In between and
    before and after its lines a client is away. The file's clients must be the data's.
    """

    path: Path

    def presence(self, ids: Sequence[str], step: float, seed: int) -> Presence:
        """Read the file."""
        intervals = read_intervals(self.path)
        check_clients(self.path, intervals, ids, "line", "client,from,until")
        return Intervals([intervals[name] for name in ids])


BITS, BLOCKS = 64, 16
"""How many windows a number holds, and how many such numbers a look ahead goes through: of clients
that are away with probability 0.95 one in 1e21 is not back within so many windows."""
ALL, NONE = np.uint64(2**BITS - 1), np.uint64(0)


class Windows(Presence):
    """Presence drawn for each window of time by itself.

    The bits of one number are a client's presence in 64 windows, a block.
    """

    def __init__(self, N: int, away: float, length: float, seed: int):
        self.N, self.away, self.length, self.seed = N, away, length, seed
        self._block = lru_cache(BLOCKS + 1)(self._drawn)
        self._in_window = lru_cache(2)(self._state)
        self._end = lru_cache(2)(self._ends)

    def there(self, t: float) -> np.ndarray:
        """Return the bits of the window that t is in."""
        return self._in_window(window_of(t, self.length))

    def until(self, t: float) -> np.ndarray:
        """Return when the next window begins that differs.

        Where none does within the look ahead, that is how far it went: ask again then.
        """
        ends = self._end(window_of(t, self.length))
        return np.maximum(ends, math.nextafter(t, math.inf))  # where windows are below t's rounding

    def _drawn(self, block: int) -> np.ndarray:
        rng, bits = generator(self.seed, Stream.AVAILABILITY, block), np.zeros(self.N, np.uint64)
        for i in range(BITS):
            bits |= (rng.random(self.N) >= self.away).astype(np.uint64) << i
        return bits

    def _state(self, window: int) -> np.ndarray:
        block, i = divmod(window, BITS)
        there = (self._block(block) >> i & 1).astype(bool)
        there.flags.writeable = False
        return there

    def _ends(self, window: int) -> np.ndarray:
        block, i = divmod(window, BITS)
        same = np.where(self._in_window(window), ALL, NONE)
        later = np.uint64(2**BITS - (2 << i))
        steps, left = np.full(self.N, float(BLOCKS * BITS)), np.arange(self.N)
        for ahead in range(BLOCKS):
            differs = (self._block(block + ahead)[left] ^ same[left]) & (ALL if ahead else later)
            found = differs != 0
            lowest = np.bitwise_count(~differs & (differs - 1))  # zeros below the lowest one
            steps[left[found]] = float(ahead * BITS) + lowest[found]
            left = left[~found]
            if not left.size:
                break
        return (float(block * BITS) + steps) * self.length


class Intervals(Presence):
    """Presence of each client in intervals that are sorted and apart.

    >>> here = Intervals([[(0.0, 5.0), (7.0, 9.0)], [(2.0, math.inf)]])
    >>> here.there(6.0).tolist(), here.gone(6.0).tolist(), here.back(6.0).tolist()
    ([False, True], [6.0, inf], [7.0, 6.0])
    """

    def __init__(self, intervals: Sequence[Sequence[tuple[float, float]]]):
        rows: list[tuple[float, int, bool, float]] = []
        for i, spans in enumerate(intervals):
            starts = [start for start, _ in spans] + [math.inf]
            rows += [(-math.inf, i, False, starts[0])]
            for (start, end), next_ in zip(spans, starts[1:], strict=True):
                rows += [(start, i, True, end), (end, i, False, next_)]
        times, clients, there, until = (np.array(column) for column in zip(*rows, strict=True))
        self._there = Piecewise(times, clients, there)
        self._until = Piecewise(times, clients, until)

    def there(self, t: float) -> np.ndarray:
        """Return whether each client is in one of its intervals."""
        return self._there(t)

    def until(self, t: float) -> np.ndarray:
        """Return when each client's interval, or the gap between two, ends."""
        return self._until(t)


@reads_once
def read_intervals(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Read a CSV file of (client, from, until); where one line goes on from another, they are one.

    A client's lines must be in the order of time, and must not overlap.
    """
    known = {"from": {"start", "begin", "since"}, "until": {"to", "end", "stop"}}
    lines, cells = read_client_table(path, known, needed=[*known])
    intervals: dict[str, list[tuple[float, float]]] = {}
    rows = zip(lines, cells["client"], cells["from"], cells["until"], strict=True)
    for line, name, begin, end in rows:
        where = f"{path}, line {line}"
        start = read_number(begin, f"{where}: from")
        stop = read_number(end, f"{where}: until") if end else math.inf
        if not start < stop:
            raise BadInput(f"{where}: from {start} until {stop}: it must begin before it ends")
        own = intervals.setdefault(name, [])
        if own and start < own[-1][1]:
            raise BadInput(
                f"{where}: client {name!r} is there from {start}, and in an earlier line until "
                f"{own[-1][1]}; sort its lines by time, and let none overlap"
            )
        if own and start == own[-1][1]:
            start = own.pop()[0]
        own.append((start, stop))
    return intervals
