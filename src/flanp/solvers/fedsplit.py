"""FedSplit: operator splitting, whose fixed point is the minimiser for any number of steps."""

from dataclasses import dataclass
from typing import Annotated, final

from flanp.parts import Within
from flanp.solvers.base import Solver, Step
from flanp.trees import Number, Tree, Vector


@final
@dataclass(frozen=True)
class FedSplit(Solver):
    """Each client takes a proximal step of its loss from the reflection of its own variable z_i.

        w_i ~ argmin_v L^i(v) + 1/(2 s) ||v - (2 w - z_i)||^2,   by tau_i gradient steps from w
        z_i <- z_i + 2 (w_i - w),     w <- mean of z_i

    Started with z_i = w. Where FedAvg with tau > 1 stops at a point that depends on tau, this
    stops at the minimiser as soon as the proximal steps are exact. gamma < 1 damps both updates.

    Reference: Pathak, Wainwright, FedSplit: an algorithmic framework for fast federated
    optimization, NeurIPS 2020.
    """

    s: Annotated[float, Within(1e-9, 1e9)] = 1.0
    """Step size of the proximal operator; 1 / sqrt(mu L) is the paper's choice."""

    @property
    def pull(self) -> float:
        """Return 1 / s."""
        return 1 / self.s

    def client_start(self, w: Vector) -> Tree:
        """Return z_i = w."""
        return 1 * w

    def drift(self, client: Tree, server: Tree) -> Vector | Number:
        """Return z_i."""
        return client

    def direction(self, g: Vector, drift: Vector | Number, w_i: Vector, w: Vector) -> Vector:
        """Return the gradient of the proximal objective, g + (w_i - (2 w - z_i)) / s."""
        return g + (w_i - (2 * w - drift)) / self.s

    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return the mean of all z_i, w - 2 eta gamma share mean(Delta_i)."""
        return w - 2 * step.eta * step.gamma * step.share * m, server

    def client_step(self, client: Tree, server: Tree, m_i: Vector, m: Vector, step: Step) -> Tree:
        """Return z_i - 2 eta gamma Delta_i."""
        return client - 2 * step.eta * step.gamma * m_i
