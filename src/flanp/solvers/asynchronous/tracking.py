"""Asynchronous tracking: a step for each message, corrected so that all clients count alike."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple, final

from flanp.parts import Within
from flanp.solvers.asynchronous.base import Arrival, Arrived, AsyncSolver
from flanp.trees import Number, Tree, Vector


class Tracked(NamedTuple):
    """What the server keeps."""

    sum: Vector
    """The clients' differences h_i, added up with their weights."""
    total: Number
    """The weights, added up."""
    moving: Vector
    """M, the moving average of the directions of its steps."""
    arrivals: Number

    @property
    def mean(self) -> Vector:
        """mean(h)."""
        return self.sum / self.total


class Difference(NamedTuple):
    """What is kept of a client."""

    h: Vector
    """How its gradient differs from the others', on average."""
    reports: Number


@final
@dataclass(frozen=True)
class Tracking(AsyncSolver):
    """On each message of client i a step along u_i - h_i + mean(h), unbiased for any speeds.

    u_i is the client's mean gradient, and h_i <- (1 - r) h_i + r (u_i - M), where M is the moving
    average of the directions of the last n steps, as it was when the client was sent its model.
    r = rho, but 1 for the first report, 1/2 for the second, and so on. Local steps follow
    g_i - h_i + mean(h) as known then.
    A client hundreds of times faster than the median would do nearly all steps from a few samples:
    `cap` lets it wait.

    See docs/memory.md for the derivation.

    >>> Tracking(eta=0.1).drift(Difference(3.0, 1.0), Tracked(1.0, 1.0, 0.0, 1.0))
    2.0
    """

    traced: ClassVar[tuple[str, ...]] = ("eta", "gamma", "rho")

    rho: Annotated[float, Within(0, 1, above=True)] = 0.2
    cap: Annotated[float, Within(1, 1e6)] | None = field(default=3.0, kw_only=True)

    def server_start(self, w: Vector) -> Tree:
        """Return h = 0, M = 0."""
        none = 0 * w.sum()
        return Tracked(0 * w, none + 1, 0 * w, none)

    def client_start(self, w: Vector) -> Tree:
        """Return h_i = 0."""
        return Difference(0 * w, 0 * w.sum())

    def drift(self, client: Tree, server: Tree) -> Vector | Number:
        """Return h_i - mean(h)."""
        return client.h - server.mean

    def direction(self, g: Vector, drift: Vector | Number, w_i: Vector, w: Vector) -> Vector:
        """Return g - h_i + mean(h)."""
        return g - drift

    def message(self, Delta_i: Vector, tau_i: Number, client: Tree, server: Tree) -> Vector:
        """Return the mean direction, Delta_i / tau_i."""
        return Delta_i / tau_i

    def arrive(self, w: Vector, server: Tree, own: Tree, m_i: Vector, arrival: Arrival) -> Arrived:
        """Do a step, then learn how the client differs."""
        told = Tracked(*arrival.told)
        length = arrival.eta * arrival.gamma * arrival.tau
        d = m_i - told.mean + server.mean
        w = w - length * d
        u = m_i + own.h - told.mean
        first = 1 / (own.reports + 1)
        r = self.rho + (first > self.rho) * (first - self.rho)
        h = own.h + r * (u - told.moving - own.h)
        often, early = 1 / arrival.clients, 1 / (server.arrivals + 1)
        beta = often + (early > often) * (early - often)
        after = Tracked(
            server.sum + arrival.weight * (h - own.h),
            0 * server.total + arrival.total,
            server.moving + beta * (d - server.moving),
            server.arrivals + 1,
        )
        return Arrived(w, after, Difference(h, own.reports + 1))
