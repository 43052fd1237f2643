"""What Algorithm 1 asks of an engine, which moves arrays: a simulator's, or a fleet of machines."""

from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from flanp.clock import Clock, Heard
from flanp.measurement import Look, Seen
from flanp.patience import Ends
from flanp.trees import Tree

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
    ends: Ends
    """When it may end."""


class Spent(NamedTuple):
    """Where the seconds of a round's participants went; the rest they waited."""

    work: np.ndarray
    transfer: np.ndarray
    lost: np.ndarray
    """Work that came to nothing: too late, failed, of no use."""

    def waiting(self, seconds: float) -> float:
        """Return the mean share of a round of so many seconds that was spent waiting."""
        if seconds <= 0:
            return 0.0
        busy = self.work + self.transfer + self.lost
        return max(0.0, 1 - float(busy.sum()) / len(busy) / seconds)


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
    heard: Heard = ()
    """What clients have reported of their speed."""
    late: tuple["Late", ...] = ()
    """Work that came in by the end of this round and was asked for in an earlier one."""
    content: Tree = None
    """The engine's own: the clients' messages, or what makes them."""


class Late(NamedTuple):
    """Work that outlasted its round."""

    client: int
    number: int
    """The round that it was asked for in."""
    until: float
    """When it is done."""
    tau: int
    eta: float
    T: float
    """Seconds that it takes for a step."""


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
