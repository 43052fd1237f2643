"""How many times sooner one method gets there than another."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit


class SpeedUp(NamedTuple):
    """How many times sooner one method reaches the target than another."""

    mean: float
    """Geometric mean over the seeds."""
    low: float
    """Lower end of the 95% interval of that mean; NaN with fewer than two seeds."""
    high: float
    """Upper end."""
    seeds: int
    """On how many seeds both reached the target."""


def speed_up(slow: np.ndarray, fast: np.ndarray) -> SpeedUp:
    """Return the geometric mean of slow/fast over the seeds, with its 95% interval.

    >>> speed_up(np.array([20.0, 20.0, np.nan]), np.array([10.0, 10.0, 10.0]))
    SpeedUp(mean=2.0, low=2.0, high=2.0, seeds=2)
    """
    both = np.isfinite(slow) & np.isfinite(fast) & (fast > 0) & (slow > 0)
    logs = np.log(slow[both] / fast[both])
    if len(logs) == 0:
        return SpeedUp(math.nan, math.nan, math.nan, 0)
    mean = logs.mean()
    half = math.nan
    if len(logs) > 1:
        error = logs.std(ddof=1) / math.sqrt(len(logs))
        half = stdtrit(len(logs) - 1, 0.975) * error
    mean, low, high = (float(np.exp(x)) for x in (mean, mean - half, mean + half))
    return SpeedUp(mean, low, high, len(logs))
