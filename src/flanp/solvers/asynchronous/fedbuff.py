"""FedBuff and Rennala SGD: a step for each full buffer of messages."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

from flanp.parts import Many
from flanp.solvers.asynchronous.base import Arrival, Arrived, AsyncSolver
from flanp.trees import Number, Tree, Vector


class Buffer(NamedTuple):
    """Messages since the last step."""

    sum: Vector
    count: Number


def buffered(
    buffer: Buffer, w: Vector, m_i: Vector, arrival: Arrival, size: int, weight: Number
) -> tuple[Vector, Buffer, Number]:
    """Return w, the buffer with one more message, and whether it was full and a step was done.

    A weight of 0 leaves the message out.
    """
    sum_ = buffer.sum + weight * m_i
    count = buffer.count + (weight > 0)
    full = 1.0 * (count >= size)
    w = w - full * arrival.eta * arrival.gamma * sum_ / size
    return w, Buffer((1 - full) * sum_, (1 - full) * count), full


@final
@dataclass(frozen=True)
class FedBuff(AsyncSolver):
    """Every K messages, a step along their mean, each weighted by 1 / sqrt(1 + staleness).

    In the mean a client counts by its samples. K clients at equal speeds make FedAvg.

    Reference: Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation,
    AISTATS 2022, arXiv:2106.06639.
    """

    traced: ClassVar[tuple[str, ...]] = ("eta", "gamma", "K")

    K: Many = 10

    def server_start(self, w: Vector) -> Tree:
        """Return an empty buffer."""
        return Buffer(0 * w, 0 * w.sum())

    def tell(self, server: Tree) -> Tree:
        """Return nothing."""
        return ()

    def arrive(self, w: Vector, server: Tree, own: Tree, m_i: Vector, arrival: Arrival) -> Arrived:
        """Add to the buffer."""
        weight = arrival.relative * (1 + arrival.staleness) ** -0.5
        w, server, full = buffered(server, w, m_i, arrival, self.K, weight)
        return Arrived(w, server, own, stepped=full)


@final
@dataclass(frozen=True)
class Rennala(AsyncSolver):
    """Rennala SGD: every S messages made at the current model, a step along their mean.

    Those made at an older model are discarded. In the mean a client counts by its samples.

    Reference: Tyurin and Richtarik, Optimal Time Complexities of Parallel Stochastic Optimization
    Methods Under a Fixed Computation Model, NeurIPS 2023, arXiv:2305.12387.
    """

    traced: ClassVar[tuple[str, ...]] = ("eta", "gamma", "S")

    S: Many = 10

    def server_start(self, w: Vector) -> Tree:
        """Return an empty buffer."""
        return Buffer(0 * w, 0 * w.sum())

    def tell(self, server: Tree) -> Tree:
        """Return nothing."""
        return ()

    def arrive(self, w: Vector, server: Tree, own: Tree, m_i: Vector, arrival: Arrival) -> Arrived:
        """Add to the buffer what was made at the current model."""
        used = 1.0 * (arrival.staleness == 0)
        w, server, full = buffered(server, w, m_i, arrival, self.S, used * arrival.relative)
        return Arrived(w, server, own, used, full)
