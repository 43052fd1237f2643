"""Ringleader ASGD: each client's mean message counts alike, and each client once in a cycle."""

from dataclasses import dataclass
from typing import NamedTuple, final

from flanp.solvers.asynchronous.base import Arrival, Arrived, AsyncSolver
from flanp.trees import Number, Tree, Vector


class Half(NamedTuple):
    """Messages of one client in one cycle."""

    sum: Vector
    count: Number

    @property
    def mean(self) -> Vector:
        """Their mean; 0 if there are none."""
        return self.sum / (self.count + (self.count == 0))


class Page(NamedTuple):
    """What the server keeps of a client."""

    now: Half
    next: Half
    """Messages that are kept for the next cycle."""
    cycle: Number
    """The cycle that `now` is of."""
    served: Number
    """1 if the client had its step in this cycle."""


class Ring(NamedTuple):
    """Where the cycle is."""

    sum: Vector
    """The clients' means, added up with their weights."""
    reported: Number
    """How many clients have a mean."""
    next_sum: Vector
    """The same of the next cycle."""
    next_reported: Number
    cycle: Number
    steps: Number
    """Steps done in this cycle; above 0 in its second phase."""


@final
@dataclass(frozen=True)
class Ringleader(AsyncSolver):
    """Cycles of two phases, for clients whose data differ.

    Phase 1 collects messages until each of the n clients has sent one. Phase 2 does n steps,
    w <- w - eta gamma (mean over the clients of the mean of a client's messages): one when phase 1
    is over and one for each other client's next message. Further messages of clients that had
    their step are kept for the next cycle. No message is lost, none is more than 2n steps old.

    Reference: Maranjyan and Richtarik, Ringleader ASGD: The First Asynchronous SGD with Optimal
    Time Complexity under Data Heterogeneity, arXiv:2509.22860.
    """

    def server_start(self, w: Vector) -> Tree:
        """Return an empty ring."""
        none = 0 * w.sum()
        return Ring(0 * w, none, 0 * w, none, none, none)

    def client_start(self, w: Vector) -> Tree:
        """Return an empty page."""
        none = 0 * w.sum()
        return Page(Half(0 * w, none), Half(0 * w, none), none, none)

    def tell(self, server: Tree) -> Tree:
        """Return nothing."""
        return ()

    def arrive(self, w: Vector, server: Tree, own: Tree, m_i: Vector, arrival: Arrival) -> Arrived:
        """Collect; in the second phase, do a step."""
        page = _turned(own, server.cycle)
        kept = page.served  # 1: its message is for the next cycle
        now, next_ = _added(page.now, m_i, 1 - kept), _added(page.next, m_i, kept)
        sum_ = server.sum + arrival.weight * (now.mean - page.now.mean)
        next_sum = server.next_sum + arrival.weight * (next_.mean - page.next.mean)
        reported = server.reported + (1 - kept) * (page.now.count == 0)
        next_reported = server.next_reported + kept * (page.next.count == 0)
        in_phase_2 = 1.0 * ((server.steps > 0) + (reported >= arrival.clients) > 0)
        step = (1 - kept) * in_phase_2
        w = w - step * arrival.eta * arrival.gamma * sum_ / arrival.total
        steps = server.steps + step
        over = 1.0 * (steps >= arrival.clients)
        ring = Ring(
            sum=_either(over, next_sum, sum_),
            reported=_either(over, next_reported, reported),
            next_sum=(1 - over) * next_sum,
            next_reported=(1 - over) * next_reported,
            cycle=server.cycle + over,
            steps=(1 - over) * steps,
        )
        page = Page(now, next_, page.cycle, kept + step)
        return Arrived(w, ring, page, stepped=step)


def _turned(page: Page, cycle: Number) -> Page:
    """Return a client's page in the current cycle."""
    new = 1.0 * (page.cycle < cycle)
    now = Half(*(_either(new, b, a) for a, b in zip(page.now, page.next, strict=True)))
    rest = Half(*((1 - new) * a for a in page.next))
    return Page(now, rest, page.cycle + new * (cycle - page.cycle), (1 - new) * page.served)


def _added(half: Half, m_i: Vector, weight: Number) -> Half:
    return Half(half.sum + weight * m_i, half.count + weight)


def _either(condition: Number, yes: Vector, no: Vector) -> Vector:
    """Return one of two, by a condition of 1 or 0."""
    return condition * yes + (1 - condition) * no
