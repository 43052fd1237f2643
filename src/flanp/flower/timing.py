"""Time on real machines: what it is, and how long to wait for clients."""

import math
import time
from dataclasses import dataclass
from typing import Protocol

LEAST_DEADLINE = 20.0
"""An exchange with idle nodes takes Flower some 6 s."""
PATIENCE = 3.0
"""Without a deadline of its own, a round may take this many times what it is expected to."""
FIRST_DEADLINE = 600.0
"""The deadline while nothing is known of the nodes."""


class Time(Protocol):
    """Tells the time and lets it pass."""

    def now(self) -> float:
        """Return the seconds since some moment."""

    def sleep(self, seconds: float) -> None:
        """Let some seconds pass."""


class WallTime:
    """The real time."""

    def now(self) -> float:
        """Return the seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True)
class Deadlines:
    """How many seconds the clients get."""

    longest: float = FIRST_DEADLINE

    def first(self) -> float:
        """Return the deadline while nothing is known."""
        return min(FIRST_DEADLINE, self.longest)

    def of_round(self, expected: float, given: float) -> float:
        """Return the deadline of a round.

        Args:
            expected: what the slowest participant should need.
            given: the method's own deadline, if that is finite.
        """
        if math.isfinite(given):
            return min(given, self.longest)
        if not math.isfinite(expected):
            return self.first()
        return min(max(LEAST_DEADLINE, PATIENCE * expected), self.longest)
