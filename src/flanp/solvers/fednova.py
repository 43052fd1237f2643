"""FedNova: FedAvg for clients that do unequal numbers of steps."""

from dataclasses import dataclass
from typing import Literal, final

from flanp.solvers.base import Solver, Step
from flanp.trees import Number, Tree, Vector


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

    >>> FedNova(eta=0.1).message(Delta_i=30.0, tau_i=10, client=(), server=())
    3.0
    """

    tau_eff: Literal["mean", "harmonic"] = "mean"
    """Which mean of the tau_i the server's step is as long as."""

    def message(self, Delta_i: Vector, tau_i: Number, client: Tree, server: Tree) -> Vector:
        """Return the mean of the client's directions, Delta_i / tau_i."""
        return Delta_i / tau_i

    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return w - eta gamma tau_eff m."""
        tau_eff = step.tau_mean if self.tau_eff == "mean" else step.tau_harmonic
        return w - step.eta * step.gamma * tau_eff * m, server
