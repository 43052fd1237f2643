"""Speeds that are drawn from a distribution."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, final

import numpy as np
from scipy.special import ndtri

from flanp.checks import require
from flanp.parts import Within
from flanp.speeds.base import Seconds, Speeds


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
class Pareto(Speeds):
    """T_i = least * (1 - u)^(-1/shape), u uniform: a share (least / T)^shape is slower than T.

    The mean is infinite for shape <= 1, the variance for shape <= 2.

    >>> float(Pareto(least=2.0, shape=0.5).quantile(np.array(0.5)))
    8.0
    """

    least: Seconds = 1.0
    # From 0.2 on the largest draw, at 1 - u = 2^-53, is below 1e80 times the least.
    shape: Annotated[float, Within(0.2, 100)] = 1.5

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i."""
        return self.quantile(rng.random(len(ids)))

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Return least * (1 - u)^(-1/shape)."""
        return self.least * (1 - u) ** (-1 / self.shape)
