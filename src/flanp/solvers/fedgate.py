"""FedGATE, the solver inside Algorithm 2 of the paper."""

from dataclasses import dataclass
from typing import final

from flanp.solvers.base import Solver, Step
from flanp.trees import Number, Tree, Vector


@final
@dataclass(frozen=True)
class FedGATE(Solver):
    """Local steps along gradients that are corrected by tracking variables delta_i.

    With tau_i = tau for all and equally many samples each, this is Algorithm 2 to the letter:
    m_i = Delta_i / tau, so that

        w       <- w - eta gamma Delta,                   Delta = mean of Delta_i
        delta_i <- delta_i + (Delta_i - Delta) / tau.

    With unequal tau_i each client's message is the mean of its directions, and the server's
    step is as long as the mean number of steps. sum_i p_i delta_i stays zero. With quantised
    messages, compression = QSGD(bits), it is FedCOMGATE of the same reference.

    Reference: Haddadpour et al., Federated Learning with Compression, arXiv:2007.01154.

    >>> FedGATE(eta=0.1).message(Delta_i=30.0, tau_i=10, client=0.0, server=())
    3.0
    """

    def client_start(self, w: Vector) -> Tree:
        """Reset gradient tracking: delta_i = 0."""
        return 0 * w

    def drift(self, client: Tree, server: Tree) -> Vector | Number:
        """Return delta_i."""
        return client

    def direction(self, g: Vector, drift: Vector | Number, w_i: Vector, w: Vector) -> Vector:
        """Return d_i = g - delta_i."""
        return g - drift

    def message(self, Delta_i: Vector, tau_i: Number, client: Tree, server: Tree) -> Vector:
        """Return Delta_i / tau_i."""
        return Delta_i / tau_i

    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return w - eta gamma Delta."""
        Delta = step.tau_mean * m
        return w - step.eta * step.gamma * Delta, server

    def client_step(self, client: Tree, server: Tree, m_i: Vector, m: Vector, step: Step) -> Tree:
        """Return delta_i + (Delta_i - Delta) / tau."""
        return client + (m_i - m)
