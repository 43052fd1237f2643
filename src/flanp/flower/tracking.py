"""The server's side of the states that solvers keep at the clients, such as FedGATE's delta_i.

A client finishes a round when it hears the round's mean message, with the next task. The
states are consistent (FedGATE's sum to zero) as long as everyone who was counted in a round has
heard its mean and nobody's state is lost. Both sides count the means, and where they differ, or
where a client that had a state is out, all states start afresh: a new generation.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from logging import WARNING
from typing import NamedTuple

import numpy as np
from flwr.common.logger import log

from flanp.solvers import Step

NO_ROUND = -1


class Mean(NamedTuple):
    """A round's mean message, which a client that was counted in it must hear."""

    generation: int
    """Counts the starts of the solver."""
    round: int = NO_ROUND
    vector: np.ndarray | None = None
    step: Step | None = None
    """The numbers of the round that it ends."""


@dataclass
class Tracking:
    """Who has seen which mean messages."""

    needed: bool
    """Whether the solver keeps states at the clients at all."""
    # Not the number of an earlier run, whose states the clients may still have.
    generation: int = field(default_factory=lambda: secrets.randbelow(2**31))
    _seen: dict[int, int] = field(default_factory=dict)
    """How many means each client's state has seen in this generation."""
    _owed: dict[int, int] = field(default_factory=dict)
    """The round that each client was last counted in and whose mean it has not heard."""
    _means: dict[int, tuple[np.ndarray, Step]] = field(default_factory=dict)

    def restart(self, why: str = "") -> None:
        """Begin a new generation: all states are void."""
        if why and self.needed:
            log(WARNING, "%s: tracking restarts for all", why)
        self.generation += 1
        self._seen.clear()
        self._owed.clear()
        self._means.clear()

    def mean_for(self, client: int) -> Mean:
        """Return the mean that a client must hear with its next task, if any."""
        round_ = self._owed.get(client, NO_ROUND)
        vector, step = self._means.get(round_, (None, None))
        return Mean(self.generation, round_, vector, step)

    def heard(self, seen: Mapping[int, int]) -> list[int]:
        """Note how many means those who answered have seen; return who has lost its state."""
        if not self.needed:
            return []
        lost = []
        for client, count in seen.items():
            expected = self._seen.get(client, 0) + (client in self._owed)
            if count == expected:
                self._seen[client] = expected
                self._owed.pop(client, None)
            else:
                lost.append(client)
        return lost

    def counted(self, clients: Iterable[int], round_: int, mean: np.ndarray, step: Step) -> None:
        """Note whose messages a round's mean is of, and the numbers of its end."""
        if self.needed:
            self._owed |= dict.fromkeys(clients, round_)
            wanted = set(self._owed.values())
            self._means = {
                q: m for q, m in (self._means | {round_: (mean, step)}).items() if q in wanted
            }

    def holds(self, client: int) -> bool:
        """Whether a client has a state of this generation that is not the start state."""
        return client in self._owed or self._seen.get(client, 0) > 0
