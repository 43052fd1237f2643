"""What holds for a while: values between recorded changes, and windows of equal length."""

import math

import numpy as np


class Piecewise:
    """Values of each client that hold from one of its rows to the next.

    A client's first row holds before its time, too. Growing times cost what changes in between,
    for the place of the last question is kept; the answers depend on the time alone.

    Args:
        times: (M,) when each row begins, in any order.
        clients: (M,) whose it is: each of 0, ..., N - 1 has one at least.
        values: (M, ...) what holds from then on.

    >>> f = Piecewise(np.array([0.0, 0.0, 5.0]), np.array([0, 1, 0]), np.array([1.0, 2.0, 9.0]))
    >>> f(4.9).tolist(), f(5.0).tolist()
    ([1.0, 2.0], [9.0, 2.0])
    """

    def __init__(self, times: np.ndarray, clients: np.ndarray, values: np.ndarray):
        order = np.lexsort((times, clients))
        times, clients, self._values = times[order], clients[order], values[order]
        later = np.diff(clients, prepend=-1) == 0
        by_time = np.flatnonzero(later)[np.argsort(times[later], kind="stable")]
        self._times, self._clients = times[by_time], clients[by_time]
        self._go(0, np.flatnonzero(~later))

    def __call__(self, t: float) -> np.ndarray:
        """Return the values at time t; not to be written to."""
        if not self._since <= t < self._until:
            here, there = self._place, int(np.searchsorted(self._times, t, side="right"))
            between = self._clients[min(here, there) : max(here, there)]
            moved = np.bincount(between, minlength=len(self._rows))
            self._go(there, self._rows + moved if there > here else self._rows - moved)
        return self._now

    def _go(self, place: int, rows: np.ndarray) -> None:
        """Be where so many changes have been, and each client is in some row."""
        self._place, self._rows = place, rows
        self._since = self._times[place - 1] if place else -math.inf
        self._until = self._times[place] if place < len(self._times) else math.inf
        self._now = self._values[rows]
        self._now.flags.writeable = False


def window_of(t: float, length: float) -> int:
    """Return the k >= 0 for which t lies in [k length, (k + 1) length), as floats have it.

    >>> window_of(329 * 0.1, 0.1), int(329 * 0.1 / 0.1)
    (329, 328)
    """
    k = max(int(t / length), 0)
    if k * length > t:  # the quotient was rounded
        return max(k - 1, 0)
    return k + 1 if (k + 1) * length <= t else k
