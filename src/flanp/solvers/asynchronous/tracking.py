"""Asynchronous tracking: a step for each message, corrected so that all clients count alike."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple, final

from flanp.parts import Within
from flanp.solvers.asynchronous.base import Arrival, Arrived, AsyncSolver
from flanp.trees import Number, Tree, Vector

SHARE = 0.25
"""K / n. On the digits with 40 clients, batches of ten and exchanges of ten median steps, the times
to a loss of 0.1 with K / n = 1/8, 1/6, 1/4, 1/3, 1/2 and 1 are as 2.6, 1.3, 1, 1.04, 1.3 and 1.9,
each at its own best eta. With measured phones 1/8 is best, by 15%; with free exchanges, and so
one local step, there is little between them."""


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


@final
@dataclass(frozen=True)
class Tracking(AsyncSolver):
    """On each message of client i a step along u_i - h_i + mean(h), unbiased for any speeds.

    u_i is the mean gradient of the client's local steps, and h_i <- (1 - rho) h_i + rho (u_i - M),
    where M is the moving average of the directions of the last n steps, as it was when the client
    was sent its model. Every direction estimates the same gradient, so each may count by its age:
    after s other messages the step is eta gamma tau / (K sqrt(1 + s/K)) long, as in FedBuff with
    K = n/4, but no message waits for others. One client alone does plain SGD.
    A client hundreds of times faster than the median would do nearly all steps from a few samples:
    `cap` lets it wait.

    See docs/memory.md for the derivation, and for how K was chosen.
    """

    traced: ClassVar[tuple[str, ...]] = ("eta", "gamma", "rho")

    rho: Annotated[float, Within(0, 1, above=True)] = 0.1
    """0.05, 0.1, 0.2 and 0.4 take 1.7, 1.8, 2.1 and 2.4 steps of the slowest client to a loss of .1
    on the digits with exponential speeds, and 15.1, 14.7, 15.5 and 15.5 on skewed ones; full
    gradients, which have no noise, are quicker with 0.3."""
    cap: Annotated[float, Within(1, 1e6)] | None = field(default=10.0, kw_only=True)
    """3, 10, 30 and none take 3.3, 1.8, 1.4 and 1.7 such steps with exponential speeds, and 17.5
    and three times 14.7 on skewed digits."""

    def server_start(self, w: Vector) -> Tree:
        """Return h = 0, M = 0."""
        none = 0 * w.sum()
        return Tracked(0 * w, none + 1, 0 * w, none)

    def client_start(self, w: Vector) -> Tree:
        """Return h_i = 0."""
        return 0 * w

    def tell(self, server: Tree) -> Tree:
        """Return nothing: the server corrects."""
        return ()

    def note(self, server: Tree) -> Tree:
        """Return M."""
        return server.moving

    def message(self, Delta_i: Vector, tau_i: Number, client: Tree, server: Tree) -> Vector:
        """Return u_i = Delta_i / tau_i."""
        return Delta_i / tau_i

    def arrive(self, w: Vector, server: Tree, own: Tree, m_i: Vector, arrival: Arrival) -> Arrived:
        """Do a step, then learn how the client differs."""
        d = m_i - own + server.mean
        K = 1 + (SHARE * arrival.clients > 1) * (SHARE * arrival.clients - 1)
        aged = 1 / (K * (1 + arrival.staleness / K) ** 0.5)
        w = w - arrival.eta * arrival.gamma * arrival.tau * aged * d
        h_i = own + self.rho * (m_i - arrival.noted - own)
        often, now = 1 / arrival.clients, 1 / (server.arrivals + 1)
        beta = often + (now > often) * (now - often)
        after = Tracked(
            server.sum + arrival.weight * (h_i - own),
            0 * server.total + arrival.total,
            server.moving + beta * (d - server.moving),
            server.arrivals + 1,
        )
        return Arrived(w, after, h_i)
