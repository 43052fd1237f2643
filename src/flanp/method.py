"""A federated method: its parts, and what they are where nothing else is said."""

from dataclasses import dataclass, field

from flanp.participation import Growing, Participation
from flanp.parts import Part
from flanp.patience import All, Patience
from flanp.solvers import Solver
from flanp.solvers.asynchronous import AsyncSolver
from flanp.stopping import LossNoise, StageRule
from flanp.work import Equal, Work


@dataclass(frozen=True)
class Method(Part):
    """The parts that make up a federated method: FLANP, unless others are given.

    >>> from flanp.solvers import FedGATE
    >>> Method(FedGATE(eta=0.05)).participation
    Growing(n0=1, growth=2.0)
    """

    solver: Solver | AsyncSolver
    """The federated solver of a stage."""
    participation: Participation = field(default=Growing())
    """Who takes part: FLANP's growth from the fastest client on."""
    stop: StageRule = field(default=LossNoise())
    """When a stage is over: where the excess loss is lost in its noise, which needs no constant."""
    work: Work = field(default=Equal(tau=10))
    """Local steps: ten full local gradients for everyone."""
    patience: Patience = field(default=All())
    """When a round is over: when all have answered."""
