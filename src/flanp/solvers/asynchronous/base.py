"""What an asynchronous solver is: a step of the server for each message."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from flanp.parts import Within
from flanp.solvers.training import Training
from flanp.trees import Number, Tree, Vector


class Arrival(NamedTuple):
    """What is known of a message when it comes."""

    start: Vector
    """The model that the client was sent."""
    told: Tree
    """What it was told with it of the server's state."""
    noted: Tree
    """What the server noted of its own state then."""
    staleness: Number
    """How many steps the server has done since."""
    weight: Number
    """The client's samples, in units of the mean over all clients."""
    total: Number
    """The weights of all clients at work, added up."""
    clients: Number
    """n, how many clients are at work."""
    tau: Number
    """Its local steps or, with momentum, as many plain steps as they come to."""
    eta: Number
    gamma: Number

    @property
    def relative(self) -> Number:
        """The client's samples, in units of the mean over the clients at work."""
        return self.weight * self.clients / self.total


class Arrived(NamedTuple):
    """What comes of a message."""

    w: Vector
    server: Tree
    """The server's state."""
    own: Tree
    """What is kept of the client."""
    used: Number = 1.0
    """0 if it was discarded."""
    stepped: Number = 1.0
    """1 if the server did a step."""


@dataclass(frozen=True)
class AsyncSolver(Training):
    """An algorithm without rounds.

    Each client works all the time: it is sent the model, does its local steps, sends its message,
    and is sent the model that the server has by then. What is recorded as a round is as many
    messages, come or lost, as there are clients at work, or as the patience calls enough.
    """

    cap: Annotated[float, Within(1, 1e6)] | None = field(default=None, kw_only=True)
    """How many messages of a client may come while the median client sends one: those who would be
    faster wait. None: as many as come."""

    def note(self, server: Tree) -> Tree:
        """Return what the server keeps of its state with each model that it sends: nothing."""
        del server
        return ()

    @abstractmethod
    def arrive(self, w: Vector, server: Tree, own: Tree, m_i: Vector, arrival: Arrival) -> Arrived:
        """Return what comes of client i's message m_i; `own` is what is kept of that client."""
