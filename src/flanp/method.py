"""A federated method: its parts, and what they are where nothing else is said."""

from dataclasses import dataclass, field

from flanp.participation import Everyone, Growing, Nimble, Participation
from flanp.parts import Part
from flanp.patience import All, Patience
from flanp.solvers import Memory, Solver
from flanp.solvers.asynchronous import AsyncSolver, Tracking
from flanp.stopping import LossNoise, StageRule
from flanp.work import Balanced, Equal, Work


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


def auto(eta: float, batch: int | None = None, in_rounds: bool = False) -> Method:
    """Return the method to take where nothing speaks for another one.

    With full gradients the fastest clients take part, as many as pay, and the others are remembered
    (solvers.Memory). With mini-batches everyone works all the time, and nobody waits
    (solvers.Tracking): their noise has to be averaged, so every client's work is of use. For real
    machines, which have no asynchronous methods yet, `in_rounds` keeps to memory. How many local
    steps there are follows from what exchanges cost, as far as the server knows. docs/league.md
    says how far this is from the best in each world.

    >>> auto(eta=0.05).participation
    Nimble(roots=0.5, worth=3.0)
    """
    # roots = 3: of 2, 2.5 and 3 the quickest with exchanges of ten steps on the digits (24.4, 20.4
    # and 18.1 steps of the slowest to a loss of 0.1), and within 5 to 7% with phones and a tail.
    # rho = 0.2 on eight tuning seeds is within 1.14 of the best of 0.1, 0.15, 0.2 and 0.3 in seven
    # worlds; 0.1 takes 1.34 times as long where the slow differ, 0.3 1.25 times in "exchange".
    if batch is not None and not in_rounds:
        tracking = Tracking(eta, rho=0.2)
        return Method(tracking, Everyone(), work=Balanced(tau=1, batch=batch, roots=3.0))
    # In rounds, the noise of mini-batches asks for more clients, reports and local steps.
    worth, long, rho = (3.0, 1.0, 1.0) if batch is None else (6.0, 2.0, 0.3)
    local = Balanced(tau=1, batch=batch, roots=long)
    return Method(Memory(eta, rho=rho), Nimble(worth=worth), work=local)
