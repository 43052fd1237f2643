"""FedGATE with a memory of absent clients: FLANP that does not wait for the slow to count them."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, final

from flanp.parts import Within
from flanp.solvers.base import Solver, Step
from flanp.trees import Number, Tree, Vector


@final
@dataclass(frozen=True)
class Memory(Solver):
    """FedGATE whose tracking variables cover all clients, those that take no part included.

    A client's delta_i is how its gradient differs from that of the participants at the same
    model. With p_j the share of client j in all samples, local steps follow

        d_i = g_i - delta_i + dbar,    dbar = sum_j p_j delta_j,

    which estimates the gradient over all clients. Participants track as in FedGATE,
    delta_i <- delta_i + rho (m_i - m). The others are at leisure: each does one step from the model
    that it was last sent, and when its message comes, delta_j <- delta_j + rho (m_j - m_1), with
    m_1 the mean of the participants' first directions from that same model. Nothing is reset
    between stages. With rho = 1 what is kept is the last report; below it, a mean of the last 1/rho
    or so, which mini-batches need. See docs/memory.md for the derivation, and for where it fails.

    >>> Memory(eta=0.1).drift(client=3.0, server=1.0)
    2.0
    """

    remembers_absent: ClassVar[bool] = True
    traced: ClassVar[tuple[str, ...]] = ("eta", "gamma", "rho")

    rho: Annotated[float, Within(0, 1, above=True)] = 1.0
    """How much of what a report says anew is believed."""

    def server_start(self, w: Vector) -> Tree:
        """Return dbar = 0."""
        return 0 * w

    def client_start(self, w: Vector) -> Tree:
        """Return delta_i = 0."""
        return 0 * w

    def drift(self, client: Tree, server: Tree) -> Vector | Number:
        """Return delta_i - dbar."""
        return client - server

    def direction(self, g: Vector, drift: Vector | Number, w_i: Vector, w: Vector) -> Vector:
        """Return d_i = g - delta_i + dbar."""
        return g - drift

    def message(self, Delta_i: Vector, tau_i: Number, client: Tree, server: Tree) -> Vector:
        """Return the mean direction, Delta_i / tau_i."""
        return Delta_i / tau_i

    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return w - eta gamma Delta: the participants' changes leave dbar as it is."""
        Delta = step.tau_mean * m
        return w - step.eta * step.gamma * Delta, server

    def client_step(self, client: Tree, server: Tree, m_i: Vector, m: Vector, step: Step) -> Tree:
        """Return delta_i + rho (m_i - m)."""
        return client + self.rho * (m_i - m)

    def recall(self, server: Tree, change: Tree) -> Tree:
        """Return dbar after its terms p_j delta_j have changed."""
        return server + change
