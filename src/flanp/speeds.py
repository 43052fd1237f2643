"""How long each client takes for one local step."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np
from scipy.special import ndtri

from flanp.checks import BadInput, calling, nearest, require
from flanp.files import read_csv, read_number
from flanp.parts import Part, Within, check_is

Seconds = Annotated[float, Within(1e-9, 1e9)]
"""From a nanosecond to thirty years."""


@dataclass(frozen=True)
class Speeds(Part):
    """Seconds per local step, T_i, of each client."""

    jitter: Annotated[float, Within(0, 10)] = field(default=0.0, kw_only=True)
    """0: drawn once and fixed; v > 0: redrawn in each round around T_i, with deviation v T_i."""
    known: bool = field(default=True, kw_only=True)
    """Whether the server knows T_i; if not, it learns them from a probe, one step by everyone,
    and from what the participants report."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.jitter == 0 or self.jitter >= 1e-6
        require(ok, "jitter", self.jitter, "0, for fixed speeds, or from 1e-6 to 10")

    @abstractmethod
    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i of the clients with these ids."""

    def seconds_of(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return `draw(ids, rng)`, after a look at whether a run can use it."""
        return seconds_from(self.draw, (len(ids),), ids, rng)

    def quantile(self, u: np.ndarray) -> np.ndarray | None:
        """Return the T that a share u of all clients is at or below, where that is known."""
        del u
        return None


@final
@dataclass(frozen=True)
class Uniform(Speeds):
    """T_i uniform on [low, high]: the paper's [50, 500]."""

    low: Seconds = 50.0
    high: Seconds = 500.0
    pin_ends: bool = False
    """Set the fastest to low and the slowest to high, as the authors' script does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.low <= self.high, "(low, high)", (self.low, self.high), "low <= high")

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i."""
        T = rng.uniform(self.low, self.high, len(ids))
        if self.pin_ends:
            fastest, slowest = T.argmin(), T.argmax()
            T[fastest], T[slowest] = self.low, self.high
        return T

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Return low + u (high - low)."""
        return self.low + u * (self.high - self.low)


DEFAULT = Uniform()
"""The speeds where nothing else is said."""


@final
@dataclass(frozen=True)
class Exponential(Speeds):
    """T_i = offset + an exponential variable with rate `rate` (mean 1/rate)."""

    rate: Annotated[float, Within(1e-9, 1e9)] = 1.0
    offset: Annotated[float, Within(0, 1e9)] = 0.0

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i."""
        return self.offset + rng.exponential(1 / self.rate, len(ids))

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Return offset - ln(1 - u) / rate."""
        return self.offset - np.log1p(-u) / self.rate


@final
@dataclass(frozen=True)
class Homogeneous(Speeds):
    """The same T for all clients."""

    T: Seconds = 1.0

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T for each."""
        return np.full(len(ids), float(self.T))

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Return T."""
        return np.full(np.shape(u), float(self.T))


@final
@dataclass(frozen=True)
class LogNormal(Speeds):
    """T_i = median * exp(sigma * a standard normal variable)."""

    median: Seconds = 1.0
    sigma: Annotated[float, Within(0, 10)] = 1.0

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i."""
        return self.median * np.exp(self.sigma * rng.standard_normal(len(ids)))

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Return median * exp(sigma * the normal quantile of u)."""
        return self.median * np.exp(self.sigma * ndtri(u))


@final
@dataclass(frozen=True)
class Measured(Speeds):
    """Seconds per step that are known: one number a client, in the order of the client ids.

    >>> Measured((3.0, 1.0)).draw(["0", "1"], np.random.default_rng(0))
    array([3., 1.])
    """

    seconds: tuple[Seconds, ...]

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return the given numbers."""
        if len(self.seconds) != len(ids):
            raise BadInput(
                f"seconds: {len(self.seconds)} speeds for {len(ids)} clients: give one for each"
            )
        return np.array(self.seconds, float)


@final
@dataclass(frozen=True)
class FromCSV(Speeds):
    """Seconds per step from a CSV file with two columns: client, seconds per step.

    The first line may be a header, which names the two columns. Clients of the file that the data
    does not have are an error, as are clients of the data that the file does not have: silence
    would hide a misspelt name.
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
        unknown = sorted(T.keys() - set(ids))
        if unknown:
            raise BadInput(
                f"{self.path}: {_some(unknown)} not among the clients of the data"
                f"{nearest(unknown[0], list(ids)[:20])}"
            )
        return np.array([T[i] for i in ids])


CLIENT_NAMES = {"client", "client_id", "client id", "clients", "id", "name", "node", "device"}
SECONDS_NAMES = {"seconds", "seconds_per_step", "seconds per step", "seconds/step", "t", "t_i"}


def read_speeds(path: Path) -> dict[str, float]:
    """Read a CSV file of (client, seconds per step) and return seconds by client."""
    lines = read_csv(path)
    client, seconds = 0, 1
    if lines and len(lines[0][1]) == 2:
        names = [cell.lower() for cell in lines[0][1]]
        for a, b in ((0, 1), (1, 0)):
            if names[a] in CLIENT_NAMES and names[b] in SECONDS_NAMES:
                client, seconds = a, b
                lines = lines[1:]
                break
    T: dict[str, float] = {}
    for line, cells in lines:
        where = f"{path}, line {line}"
        if len(cells) != 2:
            raise BadInput(f"{where}: {len(cells)} columns; there must be two: client, seconds")
        name = cells[client]
        try:
            value = read_number(cells[seconds], where)
        except BadInput as error:
            hint = "; a header must be 'client,seconds'" if not T else ""
            raise BadInput(f"{error}{hint}") from None
        T_i = check_is(f"{where}: seconds", value, Seconds)
        if not name:
            raise BadInput(f"{where}: the client has no name")
        if name in T:
            raise BadInput(f"{where}: client {name!r} was there before; give each one line")
        T[name] = T_i
    if not T:
        raise BadInput(f"{path}: the file holds no speeds; write lines 'client,seconds'")
    return T


def seconds_from(function: Callable[..., Any], shape: tuple[int, ...], *args: Any) -> np.ndarray:
    """Return the seconds that a class of speeds gives, or refuse them in words."""
    name, allowed = function.__qualname__, f"an array of shape {shape}, seconds above 0"
    with calling(name, f"it must return {allowed}"), np.errstate(all="ignore"):
        T = np.asarray(function(*args))
    require(T.shape == shape and T.dtype.kind in "iuf", name, T, allowed)
    wrong = T[~((T >= 1e-100) & (T <= 1e100))]  # whose sums and ratios could overflow
    require(not wrong.size, name, wrong[:1].tolist(), "seconds from 1e-100 to 1e100")
    return T.astype(float)


def _some(ids: Sequence[str]) -> str:
    """Return 'client a', or 'clients a, b, c and 7 more'."""
    if len(ids) == 1:
        return f"client {ids[0]!r}"
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return "clients " + ", ".join(repr(i) for i in ids[:3]) + more
