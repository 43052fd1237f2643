"""What speeds are: seconds per local step of each client."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from flanp.checks import calling, require
from flanp.parts import Part, Within
from flanp.speeds.changes import Change, Steady

Seconds = Annotated[float, Within(1e-9, 1e9)]
"""From a nanosecond to thirty years."""


@dataclass(frozen=True)
class Speeds(Part):
    """Seconds per local step, T_i, of each client."""

    per_sample: ClassVar[bool] = False
    """Whether they are seconds per sample: a step takes them for each sample that it uses."""
    jitter: Annotated[float, Within(0, 10)] = field(default=0.0, kw_only=True)
    """0: drawn once and fixed; v > 0: redrawn in each round around T_i, with deviation v T_i."""
    known: bool = field(default=True, kw_only=True)
    """Whether the server knows T_i; if not, it learns them from a probe, one step by everyone,
    and from what the participants report."""
    change: Change = field(default=Steady(), kw_only=True)
    """What T_i is multiplied with as time goes by."""
    in_order: bool = field(default=False, kw_only=True)
    """Whether the first client is the fastest and the last the slowest: for data that differ with
    the clients' numbers, such as those of the split `Apart`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.jitter == 0 or self.jitter >= 1e-6
        require(ok, "jitter", self.jitter, "0, for fixed speeds, or from 1e-6 to 10")

    @abstractmethod
    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i of the clients with these ids, at the start."""

    def course(self, ids: Sequence[str]) -> Callable[[float], np.ndarray] | None:
        """Return T_i as a function of the time in seconds; None if it is always that of `draw`."""
        del ids
        return None

    def seconds_of(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return `draw(ids, rng)`, after a look at whether a run can use it."""
        T = seconds_from(self.draw, (len(ids),), ids, rng)
        return np.sort(T) if self.in_order else T

    def quantile(self, u: np.ndarray) -> np.ndarray | None:
        """Return the T that a share u of all clients is at or below, where that is known."""
        del u
        return None


def seconds_from(function: Callable[..., Any], shape: tuple[int, ...], *args: Any) -> np.ndarray:
    """Return the seconds that a class of speeds gives, or refuse them in words."""
    name, allowed = function.__qualname__, f"an array of shape {shape}, seconds above 0"
    with calling(name, f"it must return {allowed}"), np.errstate(all="ignore"):
        T = np.asarray(function(*args))
    require(T.shape == shape and T.dtype.kind in "iuf", name, T, allowed)
    wrong = T[~((T >= 1e-100) & (T <= 1e100))]  # whose sums and ratios could overflow
    require(not wrong.size, name, wrong[:1].tolist(), "seconds from 1e-100 to 1e100")
    return T.astype(float)
