"""What the server learns about a model from sums over clients."""

from enum import Flag, auto
from typing import NamedTuple

import numpy as np


class Look(Flag):
    """What is to be seen of a model."""

    NOTHING = 0
    ACTIVE = auto()
    """Loss and gradient over the participants."""
    WHOLE = auto()
    """Loss and gradient over all clients."""
    EACH = auto()
    """The participants' losses, one by one."""


class Measurement(NamedTuple):
    """Loss, gradient and gradient noise of one model over a set of clients."""

    clients: int
    """n, how many clients it covers."""
    samples: float
    """n s, how many samples they hold together."""
    loss: float
    """L_n(w), the mean loss over the samples."""
    grad_norm_sq: float
    """||grad L_n(w)||^2."""
    noise: float
    """The squared standard error of grad L_n(w) as an estimate of the true gradient."""


class Seen(NamedTuple):
    """What was seen of a model; None where nobody looked."""

    active: Measurement | None = None
    whole: Measurement | None = None
    each: np.ndarray | None = None
    """For each participant that answered, the mean of its samples' losses and the root of the mean
    of their squares."""

    def at(self, look: Look) -> Measurement | None:
        """Return what a look was for: all clients if it was at them, else the participants."""
        return self.whole if Look.WHOLE in look else self.active


def noise(
    clients: int, samples: float, grad_norm_sq: float, mean_sq: float, within: float
) -> float:
    """Return the squared standard error of a mean gradient from sums over clients.

    Client i's gradient g_i is the mean over s_i samples, so s_i ||g_i - g||^2, summed over the
    clients and divided by n - 1, estimates the variance of one sample's gradient, and that
    divided by the number of samples is the squared standard error of g. With equally many samples
    each this is sum_i ||g_i - g||^2 / (n (n - 1)). A single client is split in two halves.

    Args:
        clients: n.
        samples: S = sum_i s_i.
        grad_norm_sq: ||g||^2 with g = sum_i s_i g_i / S.
        mean_sq: sum_i s_i ||g_i||^2 / S.
        within: sum over the halves of all clients of s_h ||g_h - g_i||^2 / S.

    >>> noise(clients=2, samples=20, grad_norm_sq=1.0, mean_sq=3.0, within=0.0)
    2.0
    """
    if clients > 1:
        return max(0.0, mean_sq - grad_norm_sq) / (clients - 1)
    # One sample has no halves: its gradient says nothing of the true one.
    return within if samples > 1 else float("inf")
