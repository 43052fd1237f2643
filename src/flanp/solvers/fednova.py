"""FedNova: FedAvg for clients that do unequal numbers of steps."""

from dataclasses import dataclass
from typing import Any, Literal, final

from flanp.solvers.base import Solver, Step


@final
@dataclass(frozen=True)
class FedNova(Solver):
    """Average the clients' mean directions, then step as far as tau_eff local steps.

        w <- w - eta gamma tau_eff sum_i p_i Delta_i / tau_i

    tau_eff = "mean" is FedNova as published: tau_eff = sum_i p_i tau_i. tau_eff = "harmonic" is
    what the FLANP authors' script ran under this name: the models averaged with weights
    p_i / tau_i, which is the same formula with tau_eff = 1 / sum_i (p_i / tau_i), that is
    shorter steps. Equal tau_i make both the same as FedAvg.

    Reference: Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous
    Federated Optimization, NeurIPS 2020.

    >>> FedNova(eta=0.1).message(Delta_i=30.0, tau_i=10)
    3.0
    """

    tau_eff: Literal["mean", "harmonic"] = "mean"
    """Which mean of the tau_i the server's step is as long as."""

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
        """Return the mean of the client's directions, Delta_i / tau_i."""
        return Delta_i / tau_i

    def server_step(self, w: Any, server: Any, m: Any, step: Step) -> tuple[Any, Any]:
        """Return w - eta gamma tau_eff m."""
        tau_eff = step.tau_mean if self.tau_eff == "mean" else step.tau_harmonic
        return w - step.eta * step.gamma * tau_eff * m, server

    def client_step(self, client: Any, server: Any, m_i: Any, m: Any) -> Any:
        """Keep no state."""
        return client
