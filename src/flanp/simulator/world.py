"""What the simulated clients are really like: their speeds, their links, whether they are there."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flanp.availability import Availability, Presence
from flanp.checks import require
from flanp.network import Links, Network
from flanp.speeds import Speeds
from flanp.streams import Stream, generator

Course = Callable[[float], np.ndarray]
"""A number for each client, at a time."""


class Fates(NamedTuple):
    """What becomes of tasks that some clients begin at the same time: an entry for each."""

    T: np.ndarray
    """Seconds of a local step."""
    down: np.ndarray
    """Seconds until the model is there."""
    work: np.ndarray
    up: np.ndarray
    """Seconds of the message's way."""
    ends: np.ndarray
    """After how many seconds it is answered, or lost."""
    ok: np.ndarray
    """Whether it is answered."""


@dataclass(frozen=True)
class World:
    """The clients as they are, whatever the server knows of them.

    With jitter v > 0 a round's T_i are gamma variables with mean T_i and standard deviation
    v T_i (v = 1: exponential). All is a function of the seed, a task's number and the time: a
    resumed run meets the same world.
    """

    T: np.ndarray
    """Mean seconds per local step of each client."""
    jitter: float = 0.0
    known: bool = True
    """Whether the server knows T from the start; otherwise from a probe and from reports."""
    seed: int = 0
    course: Course | None = None
    """T at a time, where it follows a trace."""
    factors: Course | None = None
    """What T is multiplied with at a time."""
    links: Links | None = None
    """None: exchanges take no time."""
    presence: Presence | None = None
    """None: everyone is always there."""
    dropouts: float = 0.0
    """Probability that a task is lost midway."""

    def __post_init__(self) -> None:
        wrong = self.T[~((self.T > 0) & np.isfinite(self.T))]
        require(not wrong.size, "seconds per step", wrong[:1].tolist(), "positive and finite")

    @property
    def ranking(self) -> np.ndarray:
        """All clients, fastest first; ties are broken by position, that is by id."""
        return np.argsort(self.T, kind="stable")

    @cached_property
    def timeless(self) -> bool:
        """Whether it makes no difference when a task begins."""
        changes = self.course or self.factors or self.presence
        return not changes and (self.links is None or self.links.steady)

    @cached_property
    def steady(self) -> bool:
        """Whether a task always takes a client as long as the last one did."""
        return self.timeless and not (self.jitter or self.dropouts)

    def seconds(self, number: int, time: float = 0.0, *again: int) -> np.ndarray:
        """Return T_i of each client for a task of some number that begins at some time."""
        return self._drawn(Stream.JITTER, self._mean(time), number, *again)

    def probe(self) -> np.ndarray:
        """Return the seconds that each client takes for a step before the first round."""
        return self._drawn(Stream.PROBE, self._mean(0.0), 0)

    def exchange(self, time: float, to: int, back: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds of so many bytes to each client, and of so many bytes back."""
        if self.links is None:
            return np.zeros_like(self.T), np.zeros_like(self.T)
        return self.links.seconds(time, to, back)

    def there(self, time: float) -> np.ndarray | None:
        """Return whether each client is there; None for everyone."""
        return None if self.presence is None else self.presence.there(time)

    def back(self, time: float) -> np.ndarray:
        """Return when each client is there next."""
        return np.full_like(self.T, time) if self.presence is None else self.presence.back(time)

    def fates(
        self,
        clients: np.ndarray,
        tau: np.ndarray,
        number: int,
        at: float,
        to: int,
        back: int,
        *again: int,
    ) -> Fates:
        """Return what becomes of tasks of tau_i steps: `to` bytes to each, `back` bytes back.

        A task that is done `again` after it was lost has its own luck.
        """
        T = self.seconds(number, at, *again)[clients]
        down, up = (seconds[clients] for seconds in self.exchange(at, to, back))
        work = tau * T
        ends = down + work + up
        ok = np.ones(len(clients), bool)
        if self.dropouts:
            u, share = generator(self.seed, Stream.DROPOUTS, number, *again).random(
                (2, len(self.T))
            )
            ok = u[clients] >= self.dropouts
            ends = np.where(ok, ends, share[clients] * ends)
        if self.presence is not None:
            stays = self.presence.gone(at)[clients] - at
            ok &= ends <= stays
            ends = np.minimum(ends, stays)
        return Fates(T, down, work, up, ends, ok)

    def _mean(self, time: float) -> np.ndarray:
        T = self.T if self.course is None else self.course(time)
        return T if self.factors is None else T * self.factors(time)

    def _drawn(self, stream: Stream, T: np.ndarray, *numbers: int) -> np.ndarray:
        if self.jitter == 0:
            return T
        v2 = self.jitter**2
        drawn = generator(self.seed, stream, *numbers).gamma(1 / v2, T * v2)
        return np.maximum(drawn, np.finfo(float).tiny)  # a gamma variable can underflow to 0


def world_of(
    ids: tuple[str, ...],
    samples: np.ndarray,
    speeds: Speeds,
    network: Network,
    availability: Availability,
    seed: int,
) -> World:
    """Draw the world of clients with these ids, whose local steps use so many samples."""
    T = speeds.seconds_of(ids, generator(seed, Stream.SPEEDS))
    course = speeds.course(ids)
    if speeds.per_sample:
        T, each = T * samples, course
        course = None if each is None else lambda time: each(time) * samples
    step = float(np.median(T))
    return World(
        T,
        speeds.jitter,
        speeds.known,
        seed,
        course,
        speeds.change.course(len(ids), step, seed),
        network.links(ids, generator(seed, Stream.NETWORK), step),
        availability.presence(ids, step, seed),
        availability.dropouts,
    )
