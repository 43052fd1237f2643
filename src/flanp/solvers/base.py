"""What a federated solver is: the few places where federated algorithms differ."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flanp.checks import require
from flanp.solvers.training import ClientState, Posted, Training
from flanp.stage import Stage
from flanp.trees import Number, Tree, Vector, leaves


class Step(NamedTuple):
    """The numbers of one round that the steps at its end need."""

    eta: Number
    """The clients' step size, eta_n."""
    gamma: Number
    """The server's step size, gamma_n."""
    tau_mean: Number
    """sum_i p_i tau_i over the participants; p_i is client i's share of their samples, tau_i its
    steps or, with momentum, as many plain steps as they come to."""
    tau_harmonic: Number
    """1 / sum_i (p_i / tau_i) over the participants."""
    share: Number
    """The participants' share of all clients' samples (n/N where all have equally many)."""


def step_of(eta: float, gamma: float, s: np.ndarray, tau: np.ndarray, pool: float) -> Step:
    """Return the numbers of a round.

    Args:
        eta: eta_n.
        gamma: gamma_n.
        s: samples of each participant that counts.
        tau: local steps of each or, with momentum, as many plain steps as they come to.
        pool: samples of all clients that the stage draws from.
    """
    S = s.sum()
    p = s / S
    return Step(eta, gamma, p @ tau, 1 / (p / tau).sum(), S / pool)


@dataclass(frozen=True)
class Solver(Training):
    """A synchronous algorithm: participants work side by side, and their mean message counts.

    The engine averages the messages over the participants, m = sum_i p_i m_i; the server applies
    `server_step`, each participant `client_step`.
    """

    @abstractmethod
    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return the new global model and server state from the mean message m."""

    def client_step(self, client: Tree, server: Tree, m_i: Vector, m: Vector, step: Step) -> Tree:
        """Return client i's new state; `server` is the state that the round began with."""
        del server, m_i, m, step
        return client

    def settle(
        self, client: ClientState, server: Tree, posted: Posted, m: Vector, step: Step
    ) -> ClientState:
        """Return all that a client keeps after a round, now that its mean message is known."""
        own = client.own
        if leaves(own):
            own = self.client_step(own, server, posted.m_i, m, step)
        return ClientState(own, posted.error)

    def recall(self, server: Tree, change: Tree) -> Tree:
        """Return the server's state after messages of absent clients.

        Their states have changed by `client_step`, with the mean of the participants' first
        directions from the same model in place of m. `change` is the sum of these changes, each
        times the client's share of all samples.
        """
        del change
        return server


def check_step_sizes(
    solver: Training, sizes: Sequence[int], N: int, l2: float, tau: np.ndarray, precision: str
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
