"""What Algorithm 1 asks of an engine, which moves arrays, and of a clock."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from flanp.measurement import Measurement


class Round(NamedTuple):
    """One round, as it is planned."""

    number: int
    """Rounds done before it."""
    active: np.ndarray
    """Who takes part."""
    tau: np.ndarray
    """How many local steps each of them does."""
    eta: float
    gamma: float


class Engine(Protocol):
    """Runs rounds on clients, in a simulator or on real machines.

    A `model` is whatever the engine keeps of a run: the global model w, the server's state, and
    its hold on the clients' states. It goes in and comes out; a model that has gone into
    `round` or `restart` must not be used again.
    """

    @property
    def s(self) -> np.ndarray:
        """How many samples each client holds."""

    def start(self) -> Any:
        """Return the start model."""

    def restart(self, model: Any) -> Any:
        """Keep w and start the solver afresh, as at the start of each stage."""

    def round(
        self, model: Any, number: int, active: np.ndarray, tau: np.ndarray, eta: float, gamma: float
    ) -> Any:
        """Run one round with the active clients, tau_i local steps each."""

    def measure(
        self, model: Any, active: np.ndarray, whole: bool, upcoming: Round | None = None
    ) -> tuple[Measurement, Measurement | None]:
        """Return loss and gradient of w over the active clients and, if asked, over all.

        `upcoming` is the round that follows unless the stage ends here: where an exchange with
        the clients is costly, they can do its work in the same one.
        """

    def evaluate(self, model: Any) -> dict[str, float]:
        """Return what else can be said of w: the metric on held-out data, the distance to w*."""


class Clock(Protocol):
    """Knows the clients' speeds and what a round takes: virtual or measured."""

    seed: int

    @property
    def T(self) -> np.ndarray:
        """Seconds per local step of each client."""

    @property
    def ranking(self) -> np.ndarray:
        """The clients that can take part, fastest first."""

    def round_time(self, round_: int, active: np.ndarray, tau: np.ndarray) -> tuple[float, float]:
        """Return how long a round took, and the mean share of it spent waiting."""
