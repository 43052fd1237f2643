"""Draws of a fleet's speeds and links, of as many clients as one likes: for `flanp plan`."""

from typing import NamedTuple

import numpy as np

from flanp.checks import require
from flanp.network import Links, Network
from flanp.speeds import Homogeneous, Measured, Speeds, Uniform, seconds_from
from flanp.streams import Stream, generator
from flanp.work import Balanced

DRAWS = 400
"""Fewer where stages or clients are very many."""
MOST_LINKED = 10**6
"""Clients with links of their own are drawn one by one."""


class Draws(NamedTuple):
    """Clients in the order of their speeds, in many draws."""

    n: np.ndarray
    """Which of them are of interest: the n-th of all."""
    T: np.ndarray
    """(clients, draws): seconds per step of these or, where links differ, of all clients."""
    exchange: np.ndarray
    """Seconds of an exchange: of the same shape, or one number for all."""

    def seconds(self, tau: float) -> np.ndarray:
        """Return the seconds of rounds of tau steps with the n fastest, for each n."""
        each = tau * self.T + self.exchange
        if len(each) == len(self.n):
            return each
        return np.asarray(np.maximum.accumulate(each, axis=0)[self.n - 1])

    def steps(self, n: int) -> float:
        """Return how many local steps rounds with the n fastest had better have."""
        i = int(np.searchsorted(self.n, n)) if len(self.T) == len(self.n) else n - 1
        T, exchange = self.T[i], np.broadcast_to(self.exchange, self.T.shape)[i]
        return float(Balanced(tau=1).steps(T, np.ones(len(T)), exchange)[0])


def drawn(
    speeds: Speeds,
    network: Network,
    N: int,
    sizes: np.ndarray,
    samples: float,
    megabytes: float,
    seed: int,
) -> Draws:
    """Return draws of the n-th fastest of N clients, for each n of `sizes`.

    Where links differ, clients are in the order of what a step and an exchange take them.
    """
    rng, weight = generator(seed, Stream.SPEEDS), int(1e6 * megabytes)
    times = samples if speeds.per_sample else 1
    T = _slowest(speeds, N, sizes, rng) * times
    median = float(T[np.abs(sizes - (N + 1) / 2).argmin()].mean())
    two = _exchange(network.links(["0", "1"], generator(seed, Stream.NETWORK), median), weight, 2)
    if two[0] == two[1]:
        return Draws(sizes, T, np.full((1, 1), two[0]))
    require(N <= MOST_LINKED, "clients", N, f"at most {MOST_LINKED:,} where links differ")
    ids, of_all = [str(i) for i in range(N)], []
    for i in range(min(DRAWS, max(4, 400_000 // N))):
        own = seconds_from(speeds.draw, (N,), ids, generator(seed, Stream.SPEEDS, i)) * times
        links = network.links(ids, generator(seed, Stream.NETWORK, i), float(np.median(own)))
        both = np.stack([own, _exchange(links, weight, N)])
        of_all.append(both[:, np.argsort(both.sum(axis=0), kind="stable")])
    T, exchange = np.stack(of_all, axis=-1)
    return Draws(sizes, T, exchange)


def _exchange(links: Links | None, weight: int, N: int) -> np.ndarray:
    if links is None:
        return np.zeros(N)
    down, up = links.seconds(0.0, weight, weight)
    return np.asarray(down + up)


def _slowest(speeds: Speeds, N: int, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return T of the slowest of the n fastest clients, for each n of `sizes`, in many draws.

    Where the quantile function is known it is that of U_(n), the n-th smallest of N uniform
    variables: the sum of the first n of N + 1 exponential variables over the sum of all.
    """
    if isinstance(speeds, Measured):
        n = len(speeds.seconds)
        require(n == N, "clients", N, f"{n}, the number of speeds: one for each")
        return np.sort(speeds.seconds)[sizes - 1, None]
    if speeds.quantile(np.array([0.5])) is None:
        return _draw(speeds, N, sizes, rng)
    draws = 1 if isinstance(speeds, Homogeneous) else min(DRAWS, max(100, 400_000 // len(sizes)))
    gaps = np.diff(sizes, prepend=0, append=N + 1)[:, None]
    sums = rng.standard_gamma(gaps, (len(gaps), draws)).cumsum(axis=0)
    U = np.clip(sums[:-1] / sums[-1], np.finfo(float).tiny, 1 - 2.0**-53)
    T = seconds_from(speeds.quantile, U.shape, U)
    if isinstance(speeds, Uniform) and speeds.pin_ends:
        T[sizes == 1], T[sizes == N] = speeds.low, speeds.high
    return T


def _draw(speeds: Speeds, N: int, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the same from all N speeds, in fewer draws the more they are."""
    require(N <= 10**6, "clients", N, f"at most 1e6, unless {type(speeds).__name__} has quantile()")
    ids = [str(i) for i in range(N)]
    T: list[np.ndarray] = []
    for _ in range(min(DRAWS, max(4, 4_000_000 // N))):
        before = rng.bit_generator.state
        T.append(np.sort(seconds_from(speeds.draw, (N,), ids, rng))[sizes - 1])
        if rng.bit_generator.state == before:  # nothing random was asked for: they are fixed
            break
    return np.stack(T, axis=1)
