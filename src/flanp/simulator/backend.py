"""What the simulators ask of the library that computes: JAX's compiled programs, or PyTorch."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from flanp.engine import Round
from flanp.measurement import Look, Seen
from flanp.simulator.flights import Events
from flanp.simulator.kept import Model, Traffic
from flanp.tasks import Tasks
from flanp.trees import Tree, Vector

Remembered = tuple[Tree, Tree, np.ndarray]
"""The states of the server and of the clients, and whom the server has heard."""


class Storage(Protocol):
    """Where arrays lie."""

    row_of_client: np.ndarray
    """The row of each client in arrays that have one for each."""

    def put(self, a: np.ndarray) -> Vector:
        """Return an array as the backend keeps what all clients share."""

    def put_rows(self, a: np.ndarray) -> Vector:
        """Return an array as the backend keeps what has a row for each client."""


class Machine(Protocol):
    """Holds the clients' data, and looks at models."""

    everyone: np.ndarray
    precision: Any

    @property
    def start_w(self) -> Vector:
        """The start model, as one vector."""

    @property
    def place(self) -> Storage:
        """Where its arrays lie."""

    @property
    def size(self) -> int:
        """How many numbers are trained: the length of gradients and messages."""

    @property
    def carried(self) -> int:
        """How many numbers of a model travel with it both ways and are not trained."""

    @property
    def metrics(self) -> dict[str, bool | None]:
        """The names of what `evaluate` returns; whether higher is better, if that is known."""

    def running(self) -> AbstractContextManager[None]:
        """Compute in the precision that was asked for, and tell a user's faults in words."""

    def look(
        self, w: Vector, active: np.ndarray, look: Look, remembered: Remembered | None = None
    ) -> Seen:
        """Return loss and gradient of w over the active clients and over all, as asked.

        Where absent clients are remembered, what is known of their gradients counts as well.
        """

    def evaluate(self, w: Vector) -> dict[str, float]:
        """Return the metrics on held-out data and the distance to w*, where there are any."""

    def params(self, w: Vector) -> Tree:
        """Return the global model as the user knows it."""

    def named(self, w: Vector) -> dict[str, np.ndarray]:
        """Return the arrays of the global model by name."""


class Rounds(Protocol):
    """Holds rounds; whose, and when, is for its user to say."""

    def start(self) -> Model:
        """Return the start model."""

    def restart(self, model: Model) -> Model:
        """Keep w and start the solver afresh, unless it remembers."""

    def round(
        self,
        model: Model,
        number: int,
        answered: np.ndarray,
        tau: np.ndarray,
        eta: float,
        gamma: float,
        pool: float,
    ) -> Model:
        """Run a round with those who answered, tau_i local steps each, of a pool of samples."""

    def recall(self, model: Model, tasks: Tasks, eta: float, gamma: float) -> Model:
        """Return the model after the messages of clients that took no part in its rounds.

        Each starts from the model of the round that it was asked for in.
        """


class Arrivals(Protocol):
    """Does the work between events, and the server's steps at them."""

    def start(self) -> Traffic:
        """Return the arrays at the start, when nobody has been sent a model."""

    def arrive(self, traffic: Traffic, events: Events, round_: Round) -> tuple[Traffic, np.ndarray]:
        """Go through events; return what they lead to, and whether each message was used."""


class Backend(NamedTuple):
    """A library that computes."""

    machine: Callable[..., Any]
    """(problem, data, solver, ranking, options) -> a Machine."""
    rounds: Callable[..., Rounds]
    """(machine, solver) -> what holds rounds."""
    arrivals: Callable[..., Arrivals]
    """(machine, solver) -> what goes through events."""
