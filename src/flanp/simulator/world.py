"""What the simulated clients are really like: how long each takes for its steps."""

from dataclasses import dataclass

import numpy as np

from flanp.checks import require
from flanp.streams import Stream, generator


@dataclass(frozen=True)
class World:
    """The clients' seconds per local step: drawn once, and redrawn around that if asked.

    With jitter v > 0 a round's T_i are gamma variables with mean T_i and standard deviation
    v T_i (v = 1: exponential).
    """

    T: np.ndarray
    """Mean seconds per local step of each client."""
    jitter: float = 0.0
    known: bool = True
    """Whether the server knows T from the start; otherwise from a probe and from reports."""
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = self.T[~((self.T > 0) & np.isfinite(self.T))]
        require(not wrong.size, "seconds per step", wrong[:1].tolist(), "positive and finite")

    @property
    def ranking(self) -> np.ndarray:
        """All clients, fastest first; ties are broken by position, that is by id."""
        return np.argsort(self.T, kind="stable")

    def seconds(self, number: int) -> np.ndarray:
        """Return T_i of each client in a round."""
        return self._drawn(Stream.JITTER, number)

    def probe(self) -> np.ndarray:
        """Return the seconds that each client takes for a step before the first round."""
        return self._drawn(Stream.PROBE, 0)

    def _drawn(self, stream: Stream, number: int) -> np.ndarray:
        if self.jitter == 0:
            return self.T
        v2 = self.jitter**2
        drawn = generator(self.seed, stream, number).gamma(1 / v2, self.T * v2)
        return np.maximum(drawn, np.finfo(float).tiny)  # a gamma variable can underflow to 0
