"""How speeds change while a run goes on.

All lengths of time are in local steps of the median client, so that they suit any scale.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, final

import numpy as np

from flanp.parts import Part, Within
from flanp.piecewise import window_of
from flanp.streams import Stream, generator

Period = Annotated[float, Within(1, 1e9)]
"""A length of time, in local steps of the median client."""
WINDOWS = 4
"""How many of the latest windows are remembered: tasks begin in this one or one of the last."""


class Change(Part):
    """What the clients' seconds per step are multiplied with at a time."""

    @abstractmethod
    def course(self, N: int, step: float, seed: int) -> Callable[[float], np.ndarray] | None:
        """Return the factors of N clients as a function of the time in seconds; None for 1.

        It depends on the time alone, not on what it was asked before: a resumed run sees the same.

        Args:
            N: how many clients.
            step: seconds of a local step of the median client.
            seed: of what is random.
        """


@final
@dataclass(frozen=True)
class Steady(Change):
    """They do not change."""

    def course(self, N: int, step: float, seed: int) -> None:
        """Return none."""


@final
@dataclass(frozen=True)
class Drift(Change):
    """Slowly to and fro: factors exp(sqrt(2) sigma sin(2 pi (t / period + phase_i))).

    The phases are random. Over a period the logarithm has mean 0 and standard deviation sigma.

    >>> factors = Drift(sigma=0.5, period=100.0).course(3, step=2.0, seed=0)
    >>> bool(np.allclose(factors(10.0), factors(210.0)))
    True
    """

    sigma: Annotated[float, Within(0, 3)] = 0.5
    period: Period = 1000.0

    def course(self, N: int, step: float, seed: int) -> Callable[[float], np.ndarray]:
        """Draw the phases."""
        phases = generator(seed, Stream.CHANGE).random(N)
        period, height = self.period * step, np.sqrt(2) * self.sigma

        @lru_cache(maxsize=1)
        def factors(t: float) -> np.ndarray:
            return _fixed(np.exp(height * np.sin(2 * np.pi * (t / period % 1 + phases))))

        return factors


@final
@dataclass(frozen=True)
class SlowDowns(Change):
    """Now and then a client is busy otherwise, and slower by a factor.

    In each window of a period each client is with probability `share`, whatever it was before.

    >>> SlowDowns(share=1.0, factor=5.0).course(3, step=2.0, seed=0)(77.0).tolist()
    [5.0, 5.0, 5.0]
    """

    share: Annotated[float, Within(0, 1)] = 0.1
    factor: Annotated[float, Within(1, 1000)] = 5.0
    period: Period = 100.0

    def course(self, N: int, step: float, seed: int) -> Callable[[float], np.ndarray]:
        """Return what is drawn for each window."""

        @lru_cache(maxsize=WINDOWS)
        def within(window: int) -> np.ndarray:
            slow = generator(seed, Stream.CHANGE, window).random(N) < self.share
            return _fixed(np.where(slow, self.factor, 1.0))

        return lambda t: within(window_of(t, self.period * step))


def _fixed(factors: np.ndarray) -> np.ndarray:
    """Return an array that nobody can write to, for it is remembered."""
    factors.flags.writeable = False
    return factors
