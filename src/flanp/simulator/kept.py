"""What the simulators keep of a run: arrays of any library, and what is under way."""

from typing import NamedTuple

import numpy as np

from flanp.tasks import NO_TASKS, Tasks
from flanp.trees import Number, Tree, Vector


class Model(NamedTuple):
    """What the simulator of rounds keeps of a run."""

    w: Vector
    """The global model, as one vector."""
    server: Tree
    """The solver's state at the server."""
    clients: Tree
    """All that clients keep: arrays with a row for each."""
    inbox: Tree
    """Room for what clients keep of a round until its mean message is known."""
    m_1: Vector
    """The participants' mean first direction in the last round, where absent clients need it."""
    under_way: Tasks = NO_TASKS
    """Work that was asked for in earlier rounds and is not done."""
    past: dict[int, "Past"] = {}  # noqa: RUF012  never changed
    """What it is done from, by number of the round."""
    heard: np.ndarray = np.zeros(0, bool)
    """Whose state the server knows, where absent clients are remembered."""


class Past(NamedTuple):
    """A round that clients still work for."""

    w: np.ndarray
    server: Tree
    """What they were told of the server's state."""
    m_1: np.ndarray
    """The participants' mean first direction from w."""


BY_CLIENT = ("clients", "start", "told", "noted", "sent_at")
"""What of the traffic has a row for each client."""


class Traffic(NamedTuple):
    """What arrivals change."""

    w: Vector
    """The global model."""
    server: Tree
    """The solver's state at the server."""
    steps: Number
    """How many steps the server has done."""
    clients: Tree
    """What is kept of each client: arrays with a row for each."""
    start: Vector
    """The model that each client was last sent."""
    told: Tree
    """What it was told with it."""
    noted: Tree
    """What the server noted of its own state then."""
    sent_at: Vector
    """The number of the server's steps by then."""
