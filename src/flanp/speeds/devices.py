"""Phones as they were measured: how fast they compute, and how fast their links are.

Both tables are read off 51,496 clients of the device table of FedScale (Lai et al., FedScale:
Benchmarking Model and System Performance of Federated Learning at Scale, ICML 2022,
arXiv:2105.11367). Its compute numbers are AI Benchmark's (Ignatov et al., AI Benchmark: All About
Deep Learning on Smartphones in 2019), its bandwidths MobiPerf's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from flanp.speeds.base import Speeds

COMPUTE_SHARES = (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9, 0.95, 1)
COMPUTE_MS = (15, 19, 21, 23, 25, 28, 41, 64, 118, 138, 154, 174, 189, 199)
"""Milliseconds of inference on one sample that these shares of the clients are at or below."""
TRAINING = 3
"""Training on a sample takes as long as so many inferences, as FedScale has it."""

LINK_SHARES = (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
LINK_KBITS = (
    *(1017, 1393, 1818, 2255, 3503, 4799, 6075, 8418),
    *(11837, 19751, 32546, 51663, 100207, 204057),
)
"""Bandwidths in kbit/s that these shares of the clients are at or below."""


@final
@dataclass(frozen=True)
class Devices(Speeds):
    """Seconds of training per sample on phones: 63% of them are fast, the others far slower.

    A step takes them once for each sample that it uses. Between the shares of the table
    milliseconds are linear: a table of shares says no more than how many clients lie in between.

    >>> float(Devices().quantile(np.array(0.5)))
    0.123
    """

    per_sample: ClassVar[bool] = True

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return seconds per sample."""
        return self.quantile(rng.random(len(ids)))

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Return the seconds per sample that a share u of the phones is at or below."""
        return np.interp(u, COMPUTE_SHARES, COMPUTE_MS) * TRAINING / 1000


def bandwidths(u: np.ndarray) -> np.ndarray:
    """Return the kbit/s that a share u of the phones is at or below.

    Between the shares of the table their logarithm is linear. The upper tail is heavy: entries
    differ by a factor of two, and clients become three and eight times rarer from one to the next,
    so that evenly spread ones would be too fast.

    >>> bandwidths(np.array([0.0, 0.5, 1.0])).round().tolist()
    [1017.0, 6075.0, 204057.0]
    """
    return np.exp(np.interp(u, LINK_SHARES, np.log(LINK_KBITS)))
