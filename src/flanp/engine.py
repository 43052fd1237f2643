"""What Algorithm 1 asks of an engine, which moves arrays: a simulator's, or a fleet of machines."""

from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from flanp.clock import Clock, Heard
from flanp.measurement import Look, Seen
from flanp.patience import Ends
from flanp.tasks import NO_TASKS, Tasks
from flanp.trees import Tree

NOBODY = np.zeros(0, int)
M = TypeVar("M")
"""Whatever an engine keeps of a run: the global model w, the solver's states at the server and at
the clients, what is under way. It goes in and comes out; one that has gone into `restart` or
`apply` must not be used again."""


class Roll(NamedTuple):
    """Who is there."""

    clients: np.ndarray
    """The clients that can take part."""
    s: np.ndarray
    """How many samples each client holds, those that are away included."""
    heard: Heard = ()
    """What clients have reported of their speed since the last roll or reply."""
    seconds: float = 0.0
    """How long it took to see them."""


class Round(NamedTuple):
    """One round, as it is planned."""

    number: int
    """Rounds done before it."""
    active: np.ndarray
    """Who takes part."""
    tau: np.ndarray
    """How many local steps each of them does."""
    eta: float
    gamma: float
    pool: float
    """The samples of all clients that the participants of this stage are drawn from."""
    at: float
    """When it begins."""
    T: np.ndarray
    """Seconds per local step of each client, as far as they are known."""
    exchange: np.ndarray
    """Seconds of an exchange with each client, as far as they are known."""
    ends: Ends
    """When it may end."""
    background: np.ndarray = NOBODY
    """Who takes no part and works on the round's model all the same, at leisure."""


class Spent(NamedTuple):
    """Where a round's seconds went, for each client that had something to do in it.

    The participants come first. Each one's four entries add up to the length of the round.
    """

    clients: np.ndarray
    work: np.ndarray
    transfer: np.ndarray
    lost: np.ndarray
    """Work, and transfer, that came to nothing: too late, failed, of no use."""
    waiting: np.ndarray

    @property
    def busy(self) -> float:
        """The clients' seconds of work and transfer, of use or not."""
        return float(self.work.sum() + self.transfer.sum() + self.lost.sum())

    def idle(self, participants: int, seconds: float) -> float:
        """Return the mean share of a round that its participants spent waiting."""
        if seconds <= 0 or not participants:
            return 0.0
        return float(self.waiting[:participants].sum()) / participants / seconds


class Reply(NamedTuple):
    """What came of a round's exchange with the clients."""

    round: Round
    """As it was held: others may have stood in for clients that were away."""
    answered: np.ndarray
    """The clients whose work counts."""
    seconds: float
    """How long it took."""
    spent: Spent
    seen: Seen
    """What was asked to be seen of the model that the round starts from."""
    sent: int = 0
    """Bytes that came in."""
    received: int = 0
    """Bytes that went out to the clients."""
    heard: Heard = ()
    """What clients have reported of their speed."""
    late: Tasks = NO_TASKS
    """Work that came in by the end of this round beside that of its participants."""
    content: Tree = None
    """The engine's own: the clients' messages, or what makes them."""


class Engine(Protocol[M]):
    """Does rounds on clients, in a simulator or on real machines."""

    def start(self) -> M:
        """Return the start model."""

    def restart(self, model: M) -> M:
        """Keep w and start the solver afresh, as at the start of each stage."""

    def roll(self, model: M, time: float) -> Roll:
        """Return who is there. Whoever is still at work is, and begins later."""

    def ask(self, model: M, round_: Round, look: Look) -> Reply:
        """Do a round's exchange; its work counts when, and if, the reply is applied.

        What is to be seen of the model comes with it: on real machines in the same exchange.
        """

    def apply(self, model: M, reply: Reply) -> M:
        """Return the model after a round."""

    def look(self, model: M, active: np.ndarray, look: Look) -> Seen:
        """Return what can be seen without a round; where that takes an exchange, nothing."""

    def evaluate(self, model: M, rounds: int) -> dict[str, float]:
        """Return what else is known of w after so many rounds: numbers by name."""

    def params(self, model: M) -> Tree:
        """Return w as the user knows it."""

    def named(self, model: M) -> dict[str, np.ndarray]:
        """Return the arrays of w by name."""

    def save(self, model: M, clock: Clock) -> dict[str, np.ndarray]:
        """Return all that must outlive the process, the clock's memory included, by name."""

    def load(self, arrays: dict[str, np.ndarray], clock: Clock) -> tuple[M, Clock]:
        """Return the model and the clock of `save`; `clock` is one without a memory."""
