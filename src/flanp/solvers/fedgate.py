"""FedGATE, the solver inside Algorithm 2 of the paper."""

from dataclasses import dataclass
from typing import Any, final

from flanp.solvers.base import Solver, Step


@final
@dataclass(frozen=True)
class FedGATE(Solver):
    """Local steps along gradients that are corrected by tracking variables delta_i.

    With tau_i = tau for all and equally many samples each, this is Algorithm 2 to the letter:
    m_i = Delta_i / tau, so that

        w       <- w - eta gamma Delta,                   Delta = mean of Delta_i
        delta_i <- delta_i + (Delta_i - Delta) / tau.

    With unequal tau_i each client's message is the mean of its directions, and the server's
    step is as long as the mean number of steps. sum_i p_i delta_i stays zero.

    Reference: Haddadpour et al., Federated Learning with Compression, arXiv:2007.01154.

    >>> FedGATE(eta=0.1).message(Delta_i=30.0, tau_i=10)
    3.0
    """

    def start(self, w: Any) -> tuple[Any, Any]:
        """Reset gradient tracking: delta_i = 0."""
        return (), 0 * w

    def drift(self, client: Any, server: Any) -> Any:
        """Return delta_i."""
        return client

    def direction(self, g: Any, drift: Any, w_i: Any, w: Any) -> Any:
        """Return d_i = g - delta_i."""
        return g - drift

    def message(self, Delta_i: Any, tau_i: Any) -> Any:
        """Return Delta_i / tau_i."""
        return Delta_i / tau_i

    def server_step(self, w: Any, server: Any, m: Any, step: Step) -> tuple[Any, Any]:
        """Return w - eta gamma Delta."""
        Delta = step.tau_mean * m
        return w - step.eta * step.gamma * Delta, server

    def client_step(self, client: Any, server: Any, m_i: Any, m: Any) -> Any:
        """Return delta_i + (Delta_i - Delta) / tau."""
        return client + (m_i - m)
