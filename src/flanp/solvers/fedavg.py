"""FedAvg: the mean of the clients' models."""

from dataclasses import dataclass
from typing import Any, final

from flanp.solvers.base import Solver, Step


@final
@dataclass(frozen=True)
class FedAvg(Solver):
    """Plain local steps; with gamma = 1 the new model is the weighted mean of the clients' models.

    With unequal tau_i this is FedAvg as published, with the bias it is known for: clients
    that do more steps pull harder. FedNova removes it.

    Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from
    Decentralized Data, AISTATS 2017.

    >>> FedAvg(eta=0.1).message(Delta_i=30.0, tau_i=10)
    30.0
    """

    def start(self, w: Any) -> tuple[Any, Any]:
        """Keep no state."""
        return (), ()

    def drift(self, client: Any, server: Any) -> Any:
        """Correct nothing."""
        return 0.0

    def direction(self, g: Any, drift: Any, w_i: Any, w: Any) -> Any:
        """Return g."""
        return g

    def message(self, Delta_i: Any, tau_i: Any) -> Any:
        """Return Delta_i."""
        return Delta_i

    def server_step(self, w: Any, server: Any, m: Any, step: Step) -> tuple[Any, Any]:
        """Return w - eta gamma mean(Delta_i), which is mean(w_i) at gamma = 1."""
        return w - step.eta * step.gamma * m, server

    def client_step(self, client: Any, server: Any, m_i: Any, m: Any) -> Any:
        """Keep no state."""
        return client
