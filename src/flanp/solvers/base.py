"""What a federated solver is: the few places where federated algorithms differ."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np

from flanp.checks import calling, require
from flanp.parts import Part, Within
from flanp.schedules import Constant, Schedule
from flanp.stage import Stage

StepSize = Annotated[float, Within(1e-9, 1e9)]
"""Of a step that float32 can still tell from none, and from one to infinity."""


class Step(NamedTuple):
    """The numbers of one round that the server's step needs."""

    eta: Any
    """The clients' step size, eta_n."""
    gamma: Any
    """The server's step size, gamma_n."""
    tau_mean: Any
    """sum_i p_i tau_i over the participants; p_i is client i's share of their samples."""
    tau_harmonic: Any
    """1 / sum_i (p_i / tau_i) over the participants."""
    share: Any
    """The participants' share of all clients' samples (n/N where all have equally many)."""


@dataclass(frozen=True)
class Solver(Part):
    """One federated algorithm, in the paper's letters.

    In each round, participant i starts at the global model, w_i = w, and does tau_i times
    w_i <- w_i - eta d_i with d_i = `direction`. It sends its `message`, made of
    Delta_i = (w - w_i) / eta. The engine averages the messages over the participants,
    m = sum_i p_i m_i; the server applies `server_step`, each participant `client_step`.

    The methods use nothing but + - * / on arrays, so that they run on JAX arrays in the
    simulator and on NumPy arrays in a process on a real machine. All of the state goes in
    and out; a state that a solver does not need is the empty tuple.
    """

    eta: StepSize
    """Step size of the clients."""
    gamma: StepSize = 1.0
    """Step size of the server."""
    schedule: Schedule = field(default_factory=Constant)
    """How eta and gamma change from stage to stage."""

    @property
    def pull(self) -> float:
        """Return how strongly local steps are drawn back to w."""
        return 0.0

    def step_sizes(self, stage: Stage) -> tuple[float, float]:
        """Return (eta_n, gamma_n) of a stage."""
        name = f"{type(self.schedule).__name__}.step_sizes"
        with calling(name, "it must return two numbers, eta_n and gamma_n"):
            eta_n, gamma_n = self.schedule.step_sizes(stage, self.eta, self.gamma)
            return float(eta_n), float(gamma_n)

    @abstractmethod
    def start(self, w: Any) -> tuple[Any, Any]:
        """Return the server's and a client's state at the start of a stage."""

    @abstractmethod
    def drift(self, client: Any, server: Any) -> Any:
        """Return what a client subtracts from each of its gradients in this round."""

    @abstractmethod
    def direction(self, g: Any, drift: Any, w_i: Any, w: Any) -> Any:
        """Return d_i, the direction of one local step, from the stochastic gradient g at w_i."""

    @abstractmethod
    def message(self, Delta_i: Any, tau_i: Any) -> Any:
        """Return m_i, what client i sends after tau_i local steps."""

    @abstractmethod
    def server_step(self, w: Any, server: Any, m: Any, step: Step) -> tuple[Any, Any]:
        """Return the new global model and server state from the mean message m."""

    @abstractmethod
    def client_step(self, client: Any, server: Any, m_i: Any, m: Any) -> Any:
        """Return client i's new state; `server` is the state that the round began with."""


def check_step_sizes(
    solver: Solver, sizes: Sequence[int], N: int, l2: float, tau: np.ndarray, precision: str
) -> None:
    """Refuse step sizes that no data could bear: beyond the numbers, or the penalties'.

    Where the data adds nothing, tau steps and the server's take w to
    (1 - gamma (1 - (1 - eta l2)^tau)) w, and local steps are drawn to w by (1 - eta pull).

    Args:
        solver: whose they are.
        sizes: n of each stage.
        N: how many clients there are.
        l2: curvature that the loss has in every direction, whatever the data.
        tau: local steps of the clients.
        precision: of the arithmetic.
    """
    most = float(np.finfo(precision).max)
    for k, n in enumerate(sizes):
        eta_n, gamma_n = solver.step_sizes(Stage(k, len(sizes), n, N))
        for name, value in (("eta", eta_n), ("gamma", gamma_n)):
            where = f"{name} of stage {k + 1} by the solver's schedule"
            require(1 / most < value < most, where, value, f"{1 / most:.0e} to {most:.0e}")
        with np.errstate(over="ignore"):
            step = gamma_n * (1 - np.float64(1 - eta_n * l2) ** tau.max())
        require(
            tau.min() < tau.max() or 0 <= step <= 2,
            "(l2, eta, gamma, tau)",
            (l2, eta_n, gamma_n, int(tau.max())),
            "such that the penalty alone does not blow the model up: lower l2 or eta",
        )
        require(
            tau.max() == 1 or eta_n * solver.pull <= 2,
            "(rho, eta)",
            (solver.pull, eta_n),
            "at most 2 as a product: longer local steps overshoot w, each by more",
        )
