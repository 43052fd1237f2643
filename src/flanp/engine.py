"""What Algorithm 1 asks of an engine: to move arrays."""

from typing import Any, Protocol

import numpy as np

from flanp.measurement import Measurement


class Engine(Protocol):
    """Runs rounds on clients, in a simulator or on real machines.

    A `model` is whatever the engine keeps of a run: the global model w, the server's state, and
    its hold on the clients' states. It goes in and comes out; a model that has gone into
    `round` or `restart` must not be used again.
    """

    s: np.ndarray
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
        self, model: Any, active: np.ndarray, whole: bool
    ) -> tuple[Measurement, Measurement | None]:
        """Return loss and gradient of w over the active clients and, if asked, over all."""

    def evaluate(self, model: Any) -> dict[str, float]:
        """Return what else can be said of w: the metric on held-out data, the distance to w*."""
