"""How the step sizes eta_n and gamma_n change from stage to stage."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, final

from flanp.parts import Part, Within
from flanp.stage import Stage


class Schedule(Part):
    """Gives each stage its two step sizes."""

    @abstractmethod
    def step_sizes(self, stage: Stage, eta: float, gamma: float) -> tuple[float, float]:
        """Return (eta_n, gamma_n) for a stage, from the solver's eta and gamma."""


@final
@dataclass(frozen=True)
class Constant(Schedule):
    """The same eta and gamma in all stages."""

    def step_sizes(self, stage: Stage, eta: float, gamma: float) -> tuple[float, float]:
        """Return (eta, gamma)."""
        return eta, gamma


@final
@dataclass(frozen=True)
class Shrinking(Schedule):
    """The authors' script: eta divided, and gamma multiplied, by a factor at each doubling.

    With n participants it is eta f^e and gamma / f^e, e = floor(log2 N) - floor(log2 n), so that
    a stage of everyone has the solver's own eta and gamma.

    >>> Shrinking(2.0).step_sizes(Stage(k=0, K=5, n=1, N=16), eta=0.05, gamma=1.0)
    (0.8, 0.0625)
    """

    factor: Annotated[float, Within(1e-3, 1e3)] = 1.3

    def step_sizes(self, stage: Stage, eta: float, gamma: float) -> tuple[float, float]:
        """Return (eta_n, gamma_n); their product is the same in all stages."""
        e = math.floor(math.log2(stage.N)) - math.floor(math.log2(stage.n))
        f = self.factor**e
        return eta * f, gamma / f
