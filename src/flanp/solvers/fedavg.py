"""FedAvg: the mean of the clients' models."""

from dataclasses import dataclass
from typing import final

from flanp.solvers.base import Solver, Step
from flanp.trees import Tree, Vector


@final
@dataclass(frozen=True)
class FedAvg(Solver):
    """Plain local steps; with gamma = 1 the new model is the weighted mean of the clients' models.

    With unequal tau_i this is FedAvg as published, with the bias it is known for: clients
    that do more steps pull harder. FedNova removes it. With quantised messages,
    compression = QSGD(bits), it is FedPAQ (Reisizadeh et al., arXiv:1909.13014).

    Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from
    Decentralized Data, AISTATS 2017.

    >>> FedAvg(eta=0.1).message(Delta_i=30.0, tau_i=10, client=(), server=())
    30.0
    """

    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return w - eta gamma mean(Delta_i), which is mean(w_i) at gamma = 1."""
        return w - step.eta * step.gamma * m, server
