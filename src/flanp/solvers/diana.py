"""DIANA: compressed differences of gradients."""

from dataclasses import dataclass
from typing import Annotated, final

from flanp.parts import Within
from flanp.solvers.base import Solver, Step
from flanp.trees import Number, Tree, Vector


@final
@dataclass(frozen=True)
class DIANA(Solver):
    """Each client sends the compressed difference of its gradient to a memory h_i of it.

        m_i <- C(Delta_i / tau_i - h_i)
        w   <- w - eta gamma tau (h + m),    h_i <- h_i + alpha m_i,   h <- h + alpha m

    As the memories come to know the gradients at the minimiser, the differences vanish, and
    with them the noise of the compression. With tau = 1 this is DIANA as published; without
    compression it is gradient descent on the mean. With tau > 1 the mean of a client's
    directions takes the gradient's place. With top-k, whose errors the memories make up for, it is
    EF21 (Richtarik et al., NeurIPS 2021).

    Reference: Mishchenko et al., Distributed Learning with Compressed Gradient Differences,
    arXiv:1901.09269.

    >>> DIANA(eta=0.1).message(Delta_i=30.0, tau_i=10, client=1.0, server=0.0)
    2.0
    """

    remembers = True

    alpha: Annotated[float, Within(0, 1, above=True)] | None = None
    """How fast the memories learn; 1 / (1 + omega) of the compression if left out."""

    def server_start(self, w: Vector) -> Tree:
        """Return h = 0."""
        return 0 * w

    def client_start(self, w: Vector) -> Tree:
        """Return h_i = 0."""
        return 0 * w

    def message(self, Delta_i: Vector, tau_i: Number, client: Tree, server: Tree) -> Vector:
        """Return Delta_i / tau_i - h_i."""
        return Delta_i / tau_i - client

    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return w - eta gamma tau (h + m) and h + share alpha m."""
        length = step.eta * step.gamma * step.tau_mean
        return w - length * (server + m), server + step.share * self._rate(m) * m

    def client_step(self, client: Tree, server: Tree, m_i: Vector, m: Vector, step: Step) -> Tree:
        """Return h_i + alpha m_i."""
        return client + self._rate(m_i) * m_i

    def _rate(self, m: Vector) -> float:
        return self.alpha or 1 / (1 + self.compression.variance(m.shape[0]))
