"""FedAsync: each model that comes in is mixed into the global one."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, final

from flanp.parts import Within
from flanp.solvers.asynchronous.base import Arrival, Arrived, AsyncSolver
from flanp.trees import Number, Tree, Vector


@final
@dataclass(frozen=True)
class FedAsync(AsyncSolver):
    """w <- (1 - a_t) w + a_t w_i with a_t = alpha s(staleness), and a pull to w in local steps.

    s is 1 ("constant"), (staleness + 1)^-a ("polynomial"), or 1 up to b and
    1 / (a (staleness - b) + 1) beyond ("hinge"). Clients that are faster pull harder: where their
    data differ it does not converge to the minimiser over all.

    Reference: Xie et al., Asynchronous Federated Optimization, arXiv:1903.03934.

    >>> FedAsync(eta=0.1).mixing(staleness=3.0)
    0.3
    """

    traced: ClassVar[tuple[str, ...]] = ("eta", "gamma", "alpha")

    alpha: Annotated[float, Within(0, 1, above=True)] = 0.6
    adapt: Literal["constant", "polynomial", "hinge"] = "polynomial"
    a: Annotated[float, Within(0, 1e3)] = 0.5
    b: Annotated[float, Within(0, 1e6)] = 6.0
    rho: Annotated[float, Within(0, 1e6)] = 0.005
    """Of the proximal term rho/2 ||w_i - w||^2."""

    @property
    def pull(self) -> float:
        """Return rho."""
        return self.rho

    def direction(self, g: Vector, drift: Vector | Number, w_i: Vector, w: Vector) -> Vector:
        """Return g + rho (w_i - w)."""
        return g + self.rho * (w_i - w)

    def mixing(self, staleness: Number) -> Number:
        """Return a_t."""
        if self.adapt == "constant":
            return self.alpha
        if self.adapt == "polynomial":
            return self.alpha * (staleness + 1) ** -self.a
        late = staleness > self.b
        return self.alpha / (1 + late * self.a * (staleness - self.b))

    def arrive(self, w: Vector, server: Tree, own: Tree, m_i: Vector, arrival: Arrival) -> Arrived:
        """Mix w_i = start - eta Delta_i in."""
        w_i = arrival.start - arrival.eta * arrival.gamma * m_i
        return Arrived(w + self.mixing(arrival.staleness) * (w_i - w), server, own)
