"""How long each client takes for one local step, and the virtual clock."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np

from flanp.checks import BadInput, nearest, require
from flanp.files import read_csv
from flanp.streams import Stream, generator


@dataclass(frozen=True)
class Speeds(ABC):
    """Seconds per local step, T_i, of each client."""

    jitter: float = field(default=0.0, kw_only=True)
    """0: drawn once and fixed; v > 0: redrawn in each round around T_i, with deviation v T_i."""

    def __post_init__(self) -> None:
        ok = 0 <= self.jitter <= 10
        require(ok, "jitter", self.jitter, "between 0 (fixed speeds) and 10")

    @abstractmethod
    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i of the clients with these ids."""


@final
@dataclass(frozen=True)
class Uniform(Speeds):
    """T_i uniform on [low, high]: the paper's [50, 500]."""

    low: float = 50.0
    high: float = 500.0
    pin_ends: bool = False
    """Set the fastest to low and the slowest to high, as the authors' script does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.low <= self.high, "(low, high)", (self.low, self.high), "0 < low <= high")

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i."""
        T = rng.uniform(self.low, self.high, len(ids))
        if self.pin_ends:
            fastest, slowest = T.argmin(), T.argmax()
            T[fastest], T[slowest] = self.low, self.high
        return T


@final
@dataclass(frozen=True)
class Exponential(Speeds):
    """T_i = offset + an exponential variable with rate `rate` (mean 1/rate)."""

    rate: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rate > 0, "rate", self.rate, "a positive number")
        require(self.offset >= 0, "offset", self.offset, "zero or a positive number")

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i."""
        return self.offset + rng.exponential(1 / self.rate, len(ids))


@final
@dataclass(frozen=True)
class Homogeneous(Speeds):
    """The same T for all clients."""

    T: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.T > 0, "T", self.T, "a positive number")

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T for each."""
        return np.full(len(ids), float(self.T))


@final
@dataclass(frozen=True)
class LogNormal(Speeds):
    """T_i = median * exp(sigma * a standard normal variable)."""

    median: float = 1.0
    sigma: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.median > 0, "median", self.median, "a positive number")
        require(self.sigma >= 0, "sigma", self.sigma, "zero or a positive number")

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i."""
        return self.median * np.exp(self.sigma * rng.standard_normal(len(ids)))


@final
@dataclass(frozen=True)
class Measured(Speeds):
    """Seconds per step that are known: one number a client, in the order of the client ids.

    >>> Measured((3.0, 1.0)).draw(["0", "1"], np.random.default_rng(0))
    array([3., 1.])
    """

    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for i, T in enumerate(self.seconds):
            require(T > 0 and np.isfinite(T), f"seconds[{i}]", T, "a positive finite number")

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return the given numbers."""
        if len(self.seconds) != len(ids):
            raise BadInput(f"{len(self.seconds)} speeds for {len(ids)} clients: give one for each")
        return np.array(self.seconds, float)


@final
@dataclass(frozen=True)
class FromCSV(Speeds):
    """Seconds per step from a CSV file with two columns: client, seconds per step.

    A first line that is not numeric in its second column is taken as a header. Clients of the
    file that the data does not have are an error, as are clients of the data that the file does
    not have: silence would hide a misspelt name.
    """

    path: Path

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return the file's T_i."""
        T = read_speeds(self.path)
        missing = [i for i in ids if i not in T]
        if missing:
            raise BadInput(
                f"{self.path}: no speed for {_some(missing)}; add a line 'client,seconds' for each"
            )
        unknown = [i for i in T if i not in set(ids)]
        if unknown:
            raise BadInput(
                f"{self.path}: {_some(unknown)} not among the clients of the data"
                f"{nearest(unknown[0], list(ids)[:20])}"
            )
        return np.array([T[i] for i in ids])


def read_speeds(path: Path) -> dict[str, float]:
    """Read a CSV file of (client, seconds per step) and return seconds by client."""
    path = Path(path)
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file of speeds")
    T: dict[str, float] = {}
    for line, row in read_csv(path):
        where = f"{path}, line {line}"
        if len(row) != 2:
            raise BadInput(f"{where}: {len(row)} columns; there must be two: client, seconds")
        client, text = row
        try:
            seconds = float(text)
        except ValueError:
            if line == 1:
                continue
            raise BadInput(f"{where}: {text!r} is not a number of seconds") from None
        require(
            seconds > 0 and np.isfinite(seconds),
            f"{where}: seconds",
            seconds,
            "a positive finite number",
        )
        if client in T:
            raise BadInput(f"{where}: client {client!r} was there before; give each one line")
        T[client] = seconds
    if not T:
        raise BadInput(f"{path}: the file holds no speeds; write lines 'client,seconds'")
    return T


class Clock:
    """The virtual clock: T_i of each client, drawn once, and redrawn around it if asked.

    With jitter v > 0 a round's T_i are gamma variables with mean T_i and standard deviation
    v T_i (v = 1: exponential).
    """

    def __init__(self, T: np.ndarray, jitter: float, seed: int):
        for i, T_i in enumerate(T):
            ok = T_i > 0 and np.isfinite(T_i)
            require(ok, f"speeds: seconds of client number {i}", T_i, "positive and finite")
        self.T = T
        self.jitter = jitter
        self.seed = seed
        self.ranking = np.argsort(T, kind="stable")
        """All clients, fastest first; ties are broken by position, that is by id."""

    def seconds(self, round_: int) -> np.ndarray:
        """Return T_i of each client in a round."""
        if self.jitter == 0:
            return self.T
        v2 = self.jitter**2
        drawn = generator(self.seed, Stream.JITTER, round_).gamma(1 / v2, self.T * v2)
        return np.maximum(drawn, np.finfo(float).tiny)  # a gamma variable can underflow to 0

    def round_time(self, round_: int, active: np.ndarray, tau: np.ndarray) -> tuple[float, float]:
        """Return how long a round takes, max_i tau_i T_i, and the mean share spent waiting."""
        busy = tau * self.seconds(round_)[active]
        longest = float(busy.max())
        return longest, max(0.0, 1 - float(busy.mean()) / longest)


def _some(ids: Sequence[str]) -> str:
    """Return 'client a', or 'clients a, b, c and 7 more'."""
    if len(ids) == 1:
        return f"client {ids[0]!r}"
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return "clients " + ", ".join(repr(i) for i in ids[:3]) + more
