"""Measured time on real machines: how fast the clients are, and how long to wait for them."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

MEMORY = 5
"""How many of a client's latest reports count; their median is not moved by one odd round."""
LEAST_DEADLINE = 20.0
"""An exchange with idle nodes takes Flower some 6 s."""
PATIENCE = 3.0
"""Without a deadline of its own, a round may take this many times what it is expected to."""
FIRST_DEADLINE = 600.0
"""The deadline while nothing is known of the nodes."""


class MeasuredClock:
    """Seconds per local step by client, from the clients' reports."""

    def __init__(self, seed: int = 0):
        self.seed = seed
        self.reports: list[deque[float]] = []
        self.known: dict[int, float] = {}
        """Speeds that were given, and are not measured."""
        self.present: set[int] = set()
        """The clients that can take part."""
        self.last_round = (0.0, 0.0)

    def add(self) -> None:
        """Add a client of which nothing is known yet."""
        self.reports.append(deque(maxlen=MEMORY))

    def report(self, client: int, seconds: float) -> None:
        """Note the seconds per step of a round."""
        self.reports[client].append(seconds)

    def knows(self, client: int) -> bool:
        """Whether a client's speed is known."""
        return client in self.known or bool(self.reports[client])

    @property
    def T(self) -> np.ndarray:
        """Seconds per local step of each client; infinite where nothing is known yet."""
        return np.array([self._seconds(i) for i in range(len(self.reports))])

    @property
    def ranking(self) -> np.ndarray:
        """The clients that can take part, fastest first."""
        T = self.T
        return np.array(sorted(self.present, key=lambda i: (T[i], i)), int)

    def round_time(self, round_: int, active: np.ndarray, tau: np.ndarray) -> tuple[float, float]:
        """Return the seconds that the last round took, and the mean share spent waiting."""
        return self.last_round

    def _seconds(self, i: int) -> float:
        if i in self.known:
            return self.known[i]
        return float(np.median(self.reports[i])) if self.reports[i] else math.inf


@dataclass
class Deadlines:
    """How many seconds the clients get."""

    given: float | None = None
    longest: float = FIRST_DEADLINE

    def first(self) -> float:
        """Return the deadline while nothing is known."""
        return self.given or min(FIRST_DEADLINE, self.longest)

    def of_round(self, expected: float) -> float:
        """Return the deadline where the slowest participant should need so long."""
        if self.given is not None or not math.isfinite(expected):
            return self.first()
        return min(max(LEAST_DEADLINE, PATIENCE * expected), self.longest)
