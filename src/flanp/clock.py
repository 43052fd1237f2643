"""What the server knows of time: how much has gone by, and how fast the clients are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

MEMORY = 5
"""How many of a client's latest reports count; their median is not moved by one odd round."""

Heard = Sequence[tuple[int, float, float]]
"""Clients, the seconds that they take for a local step and for an exchange, in order."""


@dataclass(frozen=True)
class Clock:
    """The time, virtual or measured, and the clients' speeds, given or estimated.

    It is never changed: what was heard, and the seconds that went by, make a new one.

    >>> clock = Clock().hearing([(0, 3.0, 0.1), (1, 1.0, 0.1), (0, 5.0, 0.3)])
    >>> clock.T(3).tolist(), clock.exchange(3).tolist()
    ([4.0, 1.0, inf], [0.2, 0.1, 0.0])
    >>> clock.ranked(np.arange(2), clock.T(3)).ranking.tolist()
    [1, 0]
    """

    time: float = 0.0
    """Seconds since the start."""
    given: np.ndarray | None = None
    """Seconds per local step of each client, where they are known and need no reports."""
    given_exchange: np.ndarray | None = None
    """Seconds of an exchange with each client, where they are known; nothing, if left out."""
    reports: Mapping[int, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """The latest reports of each client, oldest first."""
    medians: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """The medians of the reports."""
    order: np.ndarray | None = None
    """The clients that a stage knows, fastest first, as it was when the stage began."""

    def T(self, N: int) -> np.ndarray:
        """Return the seconds per local step of N clients; infinite where nothing is known."""
        if self.given is not None:
            return self.given
        T = np.full(N, math.inf)
        T[[*self.medians]] = [T_i for T_i, _ in self.medians.values()]
        return T

    def exchange(self, N: int) -> np.ndarray:
        """Return the seconds that an exchange with each of N clients takes, beside its steps."""
        if self.given is not None:
            return np.zeros(N) if self.given_exchange is None else self.given_exchange
        seconds = np.zeros(N)
        seconds[[*self.medians]] = [exchange for _, exchange in self.medians.values()]
        return seconds

    def ranked(self, clients: np.ndarray, seconds: np.ndarray) -> "Clock":
        """Return the clock that has put some clients in order, by the seconds of a round of each.

        Ties are broken by number, that is by id.
        """
        order = clients[np.argsort(seconds[clients], kind="stable")]
        order.flags.writeable = False  # policies get it to choose from, not to change
        return replace(self, order=order)

    @property
    def ranking(self) -> np.ndarray:
        """The clients that the stage knows, fastest first."""
        assert self.order is not None, "the clients have not been ranked"
        return self.order

    def unranked(self) -> "Clock":
        """Return the clock at the start of a stage, for which the clients are ranked anew."""
        return replace(self, order=None)

    def hearing(self, heard: Heard) -> "Clock":
        """Return the clock that has heard some clients' seconds per step, and per exchange."""
        if not heard or self.given is not None:
            return self
        reports, medians = dict(self.reports), dict(self.medians)
        for i, *report in heard:
            reports[i] = (*reports.get(i, ()), (report[0], report[1]))[-MEMORY:]
        for i in {i for i, *_ in heard}:
            T_i, exchange = zip(*reports[i], strict=True)
            medians[i] = median(T_i), median(exchange)
        return replace(self, reports=reports, medians=medians)

    def after(self, seconds: float) -> "Clock":
        """Return the clock so many seconds later."""
        if seconds == 0:
            return self
        time = self.time + seconds  # written out for speed: each round does it
        return Clock(time, self.given, self.given_exchange, self.reports, self.medians, self.order)
