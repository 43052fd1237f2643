"""SCAFFOLD: control variates at the clients and at the server."""

from dataclasses import dataclass
from typing import final

from flanp.solvers.base import Solver, Step
from flanp.trees import Number, Tree, Vector


@final
@dataclass(frozen=True)
class Scaffold(Solver):
    """Local steps along g - c_i + c, with option II of the paper for c_i, from c_i = c = 0.

        c_i <- c_i - c + Delta_i / tau_i
        c   <- c + share * (mean of the changes of c_i)

    While the same clients take part this is FedGATE with delta_i = c_i - c. Unequal tau_i are
    treated as in FedGATE.

    Reference: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated
    Learning, ICML 2020.

    >>> Scaffold(eta=0.1).client_step(client=1.0, server=0.5, m_i=2.0, m=3.0, step=None)
    2.5
    """

    def server_start(self, w: Vector) -> Tree:
        """Return c = 0."""
        return 0 * w

    def client_start(self, w: Vector) -> Tree:
        """Return c_i = 0."""
        return 0 * w

    def drift(self, client: Tree, server: Tree) -> Vector | Number:
        """Return c_i - c."""
        return client - server

    def direction(self, g: Vector, drift: Vector | Number, w_i: Vector, w: Vector) -> Vector:
        """Return g - c_i + c."""
        return g - drift

    def message(self, Delta_i: Vector, tau_i: Number, client: Tree, server: Tree) -> Vector:
        """Return Delta_i / tau_i; client i's control variate changes by this minus c."""
        return Delta_i / tau_i

    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return w - eta gamma Delta and c + share (m - c)."""
        Delta = step.tau_mean * m
        return w - step.eta * step.gamma * Delta, server + step.share * (m - server)

    def client_step(self, client: Tree, server: Tree, m_i: Vector, m: Vector, step: Step) -> Tree:
        """Return c_i - c + m_i."""
        return client - server + m_i
