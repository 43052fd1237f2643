"""IAG: each message replaces the client's last one, and all of them count."""

from dataclasses import dataclass
from typing import NamedTuple, final

from flanp.solvers.asynchronous.base import Arrival, Arrived, AsyncSolver
from flanp.trees import Tree, Vector


class Table(NamedTuple):
    """The clients' last messages, added up with their weights."""

    sum: Vector


@final
@dataclass(frozen=True)
class IAG(AsyncSolver):
    """Incremental aggregated gradients: w <- w - eta gamma (mean of the clients' last messages).

    It is unbiased for any speeds, but the mean is as old as the slowest client's message.

    Reference: Blatt, Hero and Gauchman, A Convergent Incremental Gradient Method with a Constant
    Step Size, SIAM J. Optim. 2007; asynchronous: Wang et al., Dual-Delayed Asynchronous SGD for
    Arbitrarily Heterogeneous Data, arXiv:2405.16966.
    """

    def server_start(self, w: Vector) -> Tree:
        """Return an empty table."""
        return Table(0 * w)

    def client_start(self, w: Vector) -> Tree:
        """Return no message."""
        return 0 * w

    def tell(self, server: Tree) -> Tree:
        """Return nothing."""
        return ()

    def arrive(self, w: Vector, server: Tree, own: Tree, m_i: Vector, arrival: Arrival) -> Arrived:
        """Replace, and do a step."""
        sum_ = server.sum + arrival.weight * (m_i - own)
        return Arrived(
            w - arrival.eta * arrival.gamma * sum_ / arrival.total, Table(sum_), 0 * own + m_i
        )
