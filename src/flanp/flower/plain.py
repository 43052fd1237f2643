"""Plain FedAvg clients as a method: they train as they do, the server averages."""

from dataclasses import dataclass, field
from typing import final

from flanp.method import Method
from flanp.participation import Growing
from flanp.solvers import Solver, Step
from flanp.solvers.training import StepSize
from flanp.trees import Tree, Vector
from flanp.work import Equal


@final
@dataclass(frozen=True)
class OwnTraining(Solver):
    """What plain FedAvg clients do: their own training, whose step size nobody knows.

    The message is the update w - w_i, and with gamma = 1 the new model is the clients' mean.
    """

    eta: StepSize = field(default=1.0, init=False)

    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return w - gamma mean(w - w_i)."""
        return w - step.gamma * m, server


PLAIN = Method(OwnTraining(), Growing(n0=2), work=Equal(tau=1))
"""FLANP with plain clients. It begins with two, whose updates can be compared."""
