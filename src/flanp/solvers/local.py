"""What a client makes of its directions within a round: it follows them, or builds up momentum."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, final

import numpy as np

from flanp.parts import Part, Within
from flanp.trees import Tree, Vector


class LocalStep(Part):
    """How a local step follows from the directions so far, coordinate by coordinate.

    Its memory begins anew in each round.
    """

    @abstractmethod
    def start(self, w: Vector) -> Tree:
        """Return the memory at the start of a round at w; () is none."""

    def length(self, tau: np.ndarray) -> np.ndarray:
        """Return how many plain steps along one direction tau steps along it come to."""
        return tau

    @abstractmethod
    def step(self, d_i: Vector, memory: Tree) -> tuple[Vector, Tree]:
        """Return the direction to step along, and the new memory."""


@final
@dataclass(frozen=True)
class SGD(LocalStep):
    """Each step follows its own direction."""

    def start(self, w: Vector) -> Tree:
        """Remember nothing."""
        del w
        return ()

    def step(self, d_i: Vector, memory: Tree) -> tuple[Vector, Tree]:
        """Return d_i."""
        return d_i, memory


@final
@dataclass(frozen=True)
class Momentum(LocalStep):
    """The heavy ball: v <- beta v + d_i, from v = 0 in each round. beta = 0 is SGD.

    A step is up to 1 / (1 - beta) times as long as without: lower eta accordingly. Solvers whose
    messages are means of directions divide by the weights of all directions, not by tau_i.

    Reference: Polyak, Some methods of speeding up the convergence of iteration methods, 1964.

    >>> Momentum(beta=0.5).step(d_i=1.0, memory=2.0)
    (2.0, 2.0)
    """

    beta: Annotated[float, Within(0, 0.9999)] = 0.9

    def length(self, tau: np.ndarray) -> np.ndarray:
        """Return sum_t (1 - beta^t) / (1 - beta), the weights of a direction that never changes."""
        b = self.beta
        return (tau - b * (1 - b**tau) / (1 - b)) / (1 - b)

    def start(self, w: Vector) -> Tree:
        """Return v = 0."""
        return 0 * w

    def step(self, d_i: Vector, memory: Tree) -> tuple[Vector, Tree]:
        """Return v, twice."""
        v = self.beta * memory + d_i
        return v, v
