"""Is FLANP worth it for these speeds, and with which n0 and growth?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flanp.checks import BadInput, require
from flanp.participation import Flanp
from flanp.speeds import Exponential, Homogeneous, LogNormal, Measured, Speeds, Uniform, read_speeds
from flanp.streams import Stream, generator

GROWTHS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 16.0)
DRAWS = 400
WORTH = 1.2
"""A speed-up from which on it is called worth it."""


class PlannedStage(NamedTuple):
    """One stage of a plan."""

    n: int
    T: float
    """Seconds per step of the slowest participant."""
    rounds: int
    time: float


@dataclass(frozen=True)
class Plan:
    """What to expect of FLANP and of full participation."""

    n0: int
    growth: float
    stages: list[PlannedStage]
    full_rounds: int
    full_time: float
    speed_up: float
    """Median over the draws of the speeds."""
    low: float
    """2.5% of the draws are below."""
    high: float
    """97.5% of the draws are below."""
    draws: int
    best_n0: int
    best_growth: float
    best_speed_up: float

    @property
    def time(self) -> float:
        """Virtual time of FLANP."""
        return sum(stage.time for stage in self.stages)

    def verdict(self) -> str:
        """Return the answer in words."""
        best = f"n0 = {self.best_n0}, growth = {self.best_growth:g}"
        if self.best_speed_up < WORTH:
            return (
                f"not worth it: at best {self.best_speed_up:.1f}x sooner ({best}); the clients are "
                "too alike in speed, or hold too few samples, for fewer of them to get far"
            )
        if self.speed_up < WORTH:
            return (
                f"not worth it with n0 = {self.n0}, growth = {self.growth:g} "
                f"({self.speed_up:.1f}x), but {self.best_speed_up:.1f}x sooner with {best}"
            )
        text = f"worth it: {self.speed_up:.1f}x sooner"
        if self.best_speed_up > 1.02 * self.speed_up:
            text += f", and {self.best_speed_up:.1f}x with {best}"
        return text


def plan(
    speeds: Speeds,
    clients: int,
    samples: float,
    kappa: float = 20.0,
    n0: int = 1,
    growth: float = 2.0,
    start: float = 0.3,
    step: float = 0.5,
    tau: float = 1.0,
    seed: int = 0,
) -> Plan:
    """Predict the time of FLANP and of full participation with the same solver.

    Args:
        speeds: seconds per local step; random ones are drawn many times.
        clients: N.
        samples: s, of each client.
        kappa: condition number of the risk.
        n0: participants of the first stage.
        growth: the paper's alpha.
        start: Delta_0 / c, the start's excess loss in units of V at one sample.
        step: eta tau L, how far a round goes in the steepest direction.
        tau: local steps of a round; it scales all times alike.
        seed: of the draws.

    >>> plan(Exponential(), clients=100, samples=100).speed_up > 3
    True
    >>> plan(Homogeneous(), clients=2, samples=1).verdict()[:12]
    'not worth it'
    """
    require(clients >= 1, "clients", clients, "1 or more")
    require(samples >= 1, "samples", samples, "1 or more")
    require(kappa >= 1, "kappa", kappa, "1 or more")
    require(start > 0, "start", start, "a positive number")
    require(tau > 0, "tau", tau, "a positive number")
    Flanp(n0, growth).check(clients)
    ids = [str(i) for i in range(clients)]
    fixed = isinstance(speeds, Measured | Homogeneous)
    rng = generator(seed, Stream.SPEEDS)
    T = np.sort([speeds.draw(ids, rng) for _ in range(1 if fixed else DRAWS)], axis=1)
    full = int(expected_rounds([clients], samples, kappa, start, step)[0])

    def predict(n0: int, growth: float) -> tuple[np.ndarray, list[int], np.ndarray]:
        sizes = Flanp(n0, growth).stages(clients)
        rounds = expected_rounds(sizes, samples, kappa, start, step)
        return full * T[:, -1] / (T[:, np.array(sizes) - 1] @ rounds), sizes, rounds

    ups, sizes, rounds = predict(n0, growth)
    choices = [(n, g) for n in _starts(clients) for g in GROWTHS]
    medians = [float(np.median(predict(n, g)[0])) for n, g in choices]
    best = int(np.argmax(medians))
    mean_T = T.mean(axis=0)
    stages = [
        PlannedStage(n, float(mean_T[n - 1]), r, r * tau * float(mean_T[n - 1]))
        for n, r in zip(sizes, rounds.tolist(), strict=True)
    ]
    low, middle, high = np.quantile(ups, [0.025, 0.5, 0.975])
    return Plan(
        n0=n0,
        growth=growth,
        stages=stages,
        full_rounds=full,
        full_time=full * tau * float(mean_T[-1]),
        speed_up=float(middle),
        low=float(low),
        high=float(high),
        draws=len(T),
        best_n0=choices[best][0],
        best_growth=choices[best][1],
        best_speed_up=medians[best],
    )


def expected_rounds(
    sizes: Sequence[int], s: float, kappa: float, start: float, step: float = 0.5, modes: int = 20
) -> np.ndarray:
    """Return the rounds of each stage, on a quadratic risk, in expectation.

    The curvatures lambda_j of the risk are spread from 1/kappa to 1. In direction j a round
    multiplies the mean squared error a_j to the stage's minimiser by (1 - eta lambda_j)^(2 tau),
    here exp(-2 step lambda_j). The minimisers of L_m and L_n differ by
    sigma^2 / lambda_j (1/(m s) - 1/(n s)), which is added to a_j at the transition. A stage ends by
    the paper's test, sum_j lambda_j^2 a_j <= 2 mu V_ns with c = d sigma^2 / 2. This is the paper's
    argument (Theorem 1, Proposition 1) with expected values in place of its bounds.

    Args:
        sizes: n of each stage.
        s: samples of each client.
        kappa: condition number.
        start: Delta_0 / c.
        step: eta tau L.
        modes: d, how many directions.

    >>> expected_rounds([1, 2, 4, 8], s=100, kappa=20, start=0.3).tolist()
    [21, 11, 12, 13]
    """
    curvature = np.geomspace(1 / kappa, 1, modes)
    c = modes / 2  # sigma^2 = 1
    a = np.full(modes, 2 * start * c / curvature.sum())
    decay = np.exp(-2 * step * curvature)
    rounds = []
    for m, n in zip([math.inf, *sizes[:-1]], sizes, strict=True):
        if m < n:
            a = a + (1 / (m * s) - 1 / (n * s)) / curvature
        limit = 2 / kappa * c / (n * s)
        slowest = curvature[0] ** 2 * a.sum() + (curvature**2 * a).sum()
        most = max(0, math.ceil(math.log(slowest / limit) / (2 * step * curvature[0])) + 1)
        gradients = (curvature**2 * a) @ decay[:, None] ** np.arange(most + 1)
        r = int(np.argmax(gradients <= limit))
        rounds.append(r)
        a = a * decay**r
    return np.array(rounds)


def parse_speeds(text: str) -> Speeds:
    """Read speeds as the command line takes them: a CSV file, or name:parameter:parameter.

    >>> parse_speeds("uniform:50:500")
    Uniform(jitter=0.0, low=50.0, high=500.0, pin_ends=False)
    >>> parse_speeds("exp:1")
    Exponential(jitter=0.0, rate=1.0, offset=0.0)
    """
    name, *parameters = text.split(":")
    kinds = {"uniform": Uniform, "exp": Exponential, "lognormal": LogNormal, "same": Homogeneous}
    if name in kinds:
        try:
            return kinds[name](*(float(p) for p in parameters))
        except (TypeError, ValueError) as error:
            raise BadInput(f"--speeds {text}: {error}; for instance uniform:50:500") from error
    return Measured(tuple(read_speeds(Path(text)).values()))


def _starts(clients: int) -> Sequence[int]:
    """Return the n0 that are tried: all small ones, then ever further apart."""
    return sorted({n for n in np.rint(np.geomspace(1, clients, 24)).astype(int).tolist() if n >= 1})
