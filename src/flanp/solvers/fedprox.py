"""FedProx: FedAvg with a proximal term."""

from dataclasses import dataclass
from typing import Annotated, final

from flanp.parts import Within
from flanp.solvers.base import Solver, Step
from flanp.trees import Number, Tree, Vector


@final
@dataclass(frozen=True)
class FedProx(Solver):
    """Each client minimises L^i(w_i) + rho/2 ||w_i - w||^2; the server averages the models.

    rho = 0 is FedAvg.

    Reference: Li et al., Federated Optimization in Heterogeneous Networks, arXiv:1812.06127
    (which calls rho mu; here mu is the strong convexity).

    >>> FedProx(eta=0.1, rho=2.0).direction(g=1.0, drift=0.0, w_i=5.0, w=4.0)
    3.0
    """

    rho: Annotated[float, Within(0, 1e9)] = 0.01
    """Weight of the proximal term."""

    @property
    def pull(self) -> float:
        """Return rho."""
        return self.rho

    def direction(self, g: Vector, drift: Vector | Number, w_i: Vector, w: Vector) -> Vector:
        """Return the gradient of the proximal objective, g + rho (w_i - w)."""
        return g + self.rho * (w_i - w)

    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return w - eta gamma mean(Delta_i), which is mean(w_i) at gamma = 1."""
        return w - step.eta * step.gamma * m, server
