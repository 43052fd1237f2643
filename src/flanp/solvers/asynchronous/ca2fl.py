"""CA2FL: FedBuff, calibrated by each client's last update."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

from flanp.parts import Many
from flanp.solvers.asynchronous.base import Arrival, Arrived, AsyncSolver
from flanp.trees import Number, Tree, Vector


class Cache(NamedTuple):
    """What the server keeps, beside each client's last update h_i."""

    mean: Vector
    """mean(h) at the last step."""
    sum: Vector
    """The h_i by now, added up with their weights."""
    buffer: Vector
    """Sum of Delta_i - h_i since the last step, with their weights."""
    count: Number


@final
@dataclass(frozen=True)
class CA2FL(AsyncSolver):
    """Every K messages: w <- w - eta gamma (mean(h) + mean over the buffer of Delta_i - h_i).

    h_i is client i's last update, 0 before its first, and mean(h) is over all clients at work.
    In both means a client counts by its samples.

    Reference: Wang et al., Tackling the Data Heterogeneity in Asynchronous Federated Learning with
    Cached Update Calibration, ICLR 2024.
    """

    traced: ClassVar[tuple[str, ...]] = ("eta", "gamma", "K")

    K: Many = 10

    def server_start(self, w: Vector) -> Tree:
        """Return an empty cache."""
        return Cache(0 * w, 0 * w, 0 * w, 0 * w.sum())

    def client_start(self, w: Vector) -> Tree:
        """Return h_i = 0."""
        return 0 * w

    def tell(self, server: Tree) -> Tree:
        """Return nothing."""
        return ()

    def arrive(self, w: Vector, server: Tree, own: Tree, m_i: Vector, arrival: Arrival) -> Arrived:
        """Add to the buffer, and to the cache; do a step if the buffer is full."""
        buffer = server.buffer + arrival.relative * (m_i - own)
        sum_ = server.sum + arrival.weight * (m_i - own)
        full = 1.0 * (server.count + 1 >= self.K)
        v = server.mean + buffer / self.K
        mean = server.mean + full * (sum_ / arrival.total - server.mean)
        count = (1 - full) * (server.count + 1)
        after = Cache(mean, sum_, (1 - full) * buffer, count)
        w = w - full * arrival.eta * arrival.gamma * v
        return Arrived(w, after, 0 * own + m_i, stepped=full)
