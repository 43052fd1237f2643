"""The paper's theory as code, in its letters.

n, m: participants of a stage and of the one before; N: clients; s: samples of each client;
mu, L, kappa = L/mu: strong convexity, smoothness, condition number; c: the constant of the
statistical accuracy; sigma2: variance of a stochastic local gradient; Delta_0: suboptimality
L_N(w_0) - L_N(w_N*) of the start; T: seconds per local step, fastest client first.
Where the paper has a slip the corrected form is here: see docs/paper-notes.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from flanp.checks import require
from flanp.parts import Many, Positive
from flanp.schedules import Schedule
from flanp.stage import Stage


def V(samples: float, c: float) -> float:
    """Return the statistical accuracy V_ns = c/(n s) of so many samples (Section 2).

    >>> V(samples=100, c=5.0)
    0.05
    """
    return c / samples


def warm_start_bound(n: int, m: int, s: float, c: float) -> float:
    """Bound L_n(w_m) - L_n(w_n*), where w_m has the accuracy of m of the n clients (Prop. 1).

    2 (n - m)/n (V_(n-m)s + V_ms) + V_ms, which is 3 V_ms for n = 2m.

    >>> warm_start_bound(n=2, m=1, s=10, c=1.0) == 3 * V(10, 1.0)
    True
    """
    V_ms = V(m * s, c)
    if n == m:
        return V_ms
    return 2 * (n - m) / n * (V((n - m) * s, c) + V_ms) + V_ms


def global_gradient_bound(n: int, m: int, s: float, c: float, mu: float) -> float:
    """Bound ||grad L_n(w_m)||^2 (Lemma 1, second claim)."""
    V_ms = V(m * s, c)
    if n == m:
        return 4 * mu * V_ms
    roots = math.sqrt(V((n - m) * s, c)) + math.sqrt(V_ms)
    return 2 * ((n - m) / n * roots) ** 2 + 4 * mu * V_ms


def local_gradient_bound(m: int, s: float, c: float, mu: float) -> float:
    """Bound ||grad L^i(w_m)||^2 of any client i (Lemma 1, third claim)."""
    return 3 * (2 * mu + 1) * V(m * s, c) + 3 * V(s, c)


@final
@dataclass(frozen=True)
class Theorem1(Schedule):
    """Theorem 1's parameters of each stage; as a solver's schedule it sets eta_n and gamma_n.

    >>> theorem = Theorem1(mu=0.5, L=1.0, sigma2=2.0, c=4.0, s=100)
    >>> theorem.tau_n
    75
    >>> theorem.R_n == math.ceil(12 * 2 * math.log(6))
    True
    """

    mu: Positive
    L: Positive
    sigma2: Positive
    c: Positive
    s: Many

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.mu <= self.L, "L", self.L, f"at least mu = {self.mu}")

    @property
    def kappa(self) -> float:
        """L/mu."""
        return self.L / self.mu

    @property
    def tau_n(self) -> int:
        """Local steps of a round, 1.5 s sigma^2 / c, rounded up; the same for all n."""
        return math.ceil(1.5 * self.s * self.sigma2 / self.c)

    @property
    def R_n(self) -> int:
        """Rounds of a stage, 12 kappa ln 6, rounded up; the same for all n."""
        return math.ceil(12 * self.kappa * math.log(6))

    def alpha_terms(self, n: int) -> tuple[float, float, float, float, float]:
        """Return the five terms that alpha_n is the least of."""
        mu, L, kappa = self.mu, self.L, self.kappa
        return (
            1 / (12 * math.sqrt(3) * kappa * math.sqrt(kappa * L)),
            math.sqrt(n) / (12 * math.sqrt(2 * (3 * kappa**2 + 2) * (2 * mu + 1) * kappa * L)),
            (math.sqrt(n) / (96 * kappa**2 * L**2)) ** (1 / 3),
            # The paper has 15 c kappa L; the c does not follow from its own condition.
            math.sqrt(n) / math.sqrt(15 * kappa * L),
            math.sqrt(n) / (L * math.sqrt(30)),
        )

    def alpha_n(self, n: int) -> float:
        """Return alpha_n."""
        return min(self.alpha_terms(n))

    def eta_n(self, n: int) -> float:
        """Return the clients' step size, alpha_n / (tau_n sqrt(n))."""
        return self.alpha_n(n) / (self.tau_n * math.sqrt(n))

    def gamma_n(self, n: int) -> float:
        """Return the server's step size, sqrt(n) / (2 alpha_n L)."""
        return math.sqrt(n) / (2 * self.alpha_n(n) * self.L)

    def step_sizes(self, stage: Stage, eta: float, gamma: float) -> tuple[float, float]:
        """Return (eta_n, gamma_n), whatever the solver's own are."""
        del eta, gamma
        return self.eta_n(stage.n), self.gamma_n(stage.n)


def expected_time_flanp(
    T: Sequence[float], sizes: Sequence[int], kappa: float, s: int, sigma2: float, c: float
) -> float:
    """Return E[T_FLANP] = 18 ln(6) kappa s sigma^2 / c (T_n0 + T_2n0 + ... + T_N) (Prop. 2)."""
    return 18 * math.log(6) * kappa * s * sigma2 / c * sum(T[n - 1] for n in sizes)


def expected_time_fedgate(
    T: Sequence[float], kappa: float, s: int, sigma2: float, c: float, Delta_0: float
) -> float:
    """Return E[T_FedGATE] = 7.5 kappa s sigma^2 / c ln(5 Delta_0 N s / c) T_N (Prop. 3)."""
    N = len(T)
    return 7.5 * kappa * s * sigma2 / c * math.log(5 * Delta_0 * N * s / c) * T[-1]


def expected_order_statistic(i: int, N: int, rate: float = 1.0) -> float:
    """Return E[T_(i)] = (H_N - H_(N-i)) / rate of N exponential variables (proof of Theorem 2).

    >>> expected_order_statistic(1, 4)
    0.25
    """
    return math.fsum(1 / j for j in range(N - i + 1, N + 1)) / rate


def order_statistics_ratio(sizes: Sequence[int]) -> float:
    """Return (E[T_(n0)] + E[T_(2 n0)] + ... + E[T_(N)]) / E[T_(N)] of exponential speeds.

    For n0 = 1 and N a power of two it is at most 2 + 1/N (proof of Theorem 2).

    >>> order_statistics_ratio([1, 2, 4, 8]) <= 2 + 1 / 8
    True
    """
    N = sizes[-1]
    total = math.fsum(expected_order_statistic(n, N) for n in sizes)
    return total / expected_order_statistic(N, N)


def theorem2_bound(N: int, s: int, c: float, Delta_0: float) -> float:
    """Bound E[T_FLANP] / E[T_FedGATE] for exponential speeds and n0 = 1 (Theorem 2).

    12 ln(6) / (5 ln(5 Delta_0 N s / c)) (2 + 1/N).
    """
    return 12 * math.log(6) / (5 * math.log(5 * Delta_0 * N * s / c)) * (2 + 1 / N)


def homogeneous_gain(N: int, s: int) -> float:
    """Return log(Ns)/log(N), the order of the gain when all clients are equally fast (Sec. 4.2)."""
    return math.log(N * s) / math.log(N)
