"""Ringmaster ASGD: a step for each message that is not too old."""

from dataclasses import dataclass
from typing import ClassVar, final

from flanp.parts import Many
from flanp.solvers.asynchronous.base import Arrival, Arrived, AsyncSolver
from flanp.trees import Tree, Vector


@final
@dataclass(frozen=True)
class Ringmaster(AsyncSolver):
    """w <- w - eta gamma Delta_i for each message that is less than R steps old.

    Older ones are discarded. A client with more samples than the mean of those at work does longer
    steps, in proportion. It is time-optimal where all clients draw from one distribution;
    with few samples each, or other data at slow clients, it is biased towards the fast.

    Reference: Maranjyan, Tyurin and Richtarik, Ringmaster ASGD: The First Asynchronous SGD with
    Optimal Time Complexity, ICML 2025, arXiv:2501.16168, algorithm 4.
    """

    traced: ClassVar[tuple[str, ...]] = ("eta", "gamma", "R")

    R: Many = 10

    def arrive(self, w: Vector, server: Tree, own: Tree, m_i: Vector, arrival: Arrival) -> Arrived:
        """Do a step if the message is recent."""
        used = 1.0 * (arrival.staleness < self.R)
        step = used * arrival.relative * arrival.eta * arrival.gamma
        return Arrived(w - step * m_i, server, own, used, used)
