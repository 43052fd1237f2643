"""When a round ends: with the last reply, with enough of them, or at a deadline."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, NamedTuple, final

import numpy as np

from flanp.checks import calling, is_whole, require
from flanp.parts import Many, Part, Within

Share = Annotated[float, Within(0, 1, above=True)]
TRIES = 3
"""How often a participant is asked in a round that drops out of it while the others are at work."""


class Ends(NamedTuple):
    """A round ends when `enough` have answered or at the deadline, not before `least` have."""

    enough: int
    deadline: float
    """Seconds after its begin."""
    least: int

    def of(self, seconds: np.ndarray, ok: np.ndarray | None = None) -> float:
        """Return when a round ends whose participants answer, or drop out, after so many seconds.

        Whoever drops out does not answer; nobody waits for more answers than there can be.

        >>> Ends(enough=3, deadline=2.5, least=1).of(np.array([1.0, 9.0, 2.0]))
        2.5
        """
        if ok is None or ok.all():
            answers, last = seconds, np.inf
        else:
            answers, last = np.where(ok, seconds, np.inf), float(seconds.max())
        least = _arrival(answers, self.least)
        if self.enough == self.least:
            return min(least, last)
        return min(max(least, min(self.deadline, _arrival(answers, self.enough))), last)


def _arrival(seconds: np.ndarray, k: int) -> float:
    """Return when the k-th of some replies comes."""
    if k >= len(seconds):
        return float(seconds.max())
    return float(np.partition(seconds, k - 1)[k - 1])


class Patience(Part):
    """How long the server waits for a round's participants."""

    @abstractmethod
    def ends(self, n: int) -> Ends:
        """Return when a round of n participants ends."""

    def limits(self, n: int) -> Ends:
        """Return `ends(n)`, after a look at whether a run can use it."""
        name = f"{type(self).__name__}.ends"
        with calling(name, "it must return Ends(enough, deadline, least)"):
            ends = Ends(*self.ends(n))
            whole = is_whole(ends.enough) and is_whole(ends.least)
            ok = whole and 1 <= ends.least <= ends.enough <= n and ends.deadline > 0
        allowed = f"whole numbers 1 <= least <= enough <= {n}, deadline > 0"
        require(bool(ok), f"{name}({n})", tuple(ends), allowed)
        return ends


@final
@dataclass(frozen=True)
class All(Patience):
    """Everyone is waited for: the paper's."""

    def ends(self, n: int) -> Ends:
        """Return the end with the last reply."""
        return Ends(n, math.inf, n)


@final
@dataclass(frozen=True)
class Quorum(Patience):
    """The first replies are enough; the others' work comes too late.

    >>> Quorum(0.8).ends(10)
    Ends(enough=8, deadline=inf, least=8)
    """

    share: Share = 0.8

    def ends(self, n: int) -> Ends:
        """Return the end with the reply that makes a share of them."""
        enough = math.ceil(self.share * n - 1e-9)
        return Ends(max(1, enough), math.inf, max(1, enough))


@final
@dataclass(frozen=True)
class First(Patience):
    """The first k replies are enough: with more clients asked than k, over-selection.

    >>> First(10).ends(13)
    Ends(enough=10, deadline=inf, least=10)
    """

    k: Many

    def ends(self, n: int) -> Ends:
        """Return the end with the k-th reply."""
        return Ends(min(self.k, n), math.inf, min(self.k, n))


@final
@dataclass(frozen=True)
class Deadline(Patience):
    """So many seconds, and longer only if fewer than a quorum have answered by then."""

    seconds: Annotated[float, Within(1e-9, 1e12)]
    quorum: Share = 0.5

    def ends(self, n: int) -> Ends:
        """Return the end at the deadline."""
        return Ends(n, self.seconds, max(1, math.ceil(self.quorum * n - 1e-9)))
