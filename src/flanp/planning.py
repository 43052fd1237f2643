"""Is FLANP worth it for these speeds, and with which n0 and growth?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from flanp.checks import require
from flanp.participation import Growing
from flanp.parts import Many, Positive, Seed, Within, check_is
from flanp.speeds import Homogeneous, Measured, Speeds, Uniform, seconds_from
from flanp.streams import Stream, generator

GROWTHS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 16.0)
DRAWS = 400  # fewer where stages or clients are very many
MOST_STAGES = 2000  # a stage takes 25 to 100 microseconds to predict
WORTH = 1.2  # a speed-up from which on it is called worth it


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
        if self.full_rounds == 0:
            return "not worth it: the start is within the statistical accuracy of all data already"
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
        more = f", and {self.best_speed_up:.1f}x with {best}"
        better = self.best_speed_up > 1.02 * self.speed_up
        return f"worth it: {self.speed_up:.1f}x sooner{more if better else ''}"


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
        speeds: seconds per local step; random ones are drawn many times, and those per sample are
            of steps that use all samples.
        clients: N.
        samples: s, of each client.
        kappa: condition number of the risk.
        n0: participants of the first stage.
        growth: the paper's alpha.
        start: Delta_0 / c, the start's excess loss in units of V at one sample.
        step: eta tau L, how far a round goes in the steepest direction.
        tau: local steps of a round; it scales all times alike.
        seed: of the draws.

    >>> from flanp.speeds import Exponential
    >>> plan(Exponential(), clients=100, samples=100).speed_up > 3
    True
    >>> plan(Homogeneous(), clients=2, samples=1).verdict()[:12]
    'not worth it'
    """
    speeds = check_is("speeds", speeds, Speeds)
    clients = check_is("clients", clients, Many)
    samples = check_is("samples", samples, Annotated[float, Within(1, 1e12)])
    kappa = check_is("kappa", kappa, Annotated[float, Within(1, 1e12)])
    start = check_is("start", start, Positive)
    step = check_is("step", step, Annotated[float, Within(1e-9, 1e9)])
    tau = check_is("tau", tau, Annotated[float, Within(1e-9, 1e9)])
    seed = check_is("seed", seed, Seed)
    flanp = Growing(n0, growth)
    starts = np.unique(np.rint(np.geomspace(1, clients, 24)).astype(int)).tolist()
    choices = [(n, g) for n in starts for g in GROWTHS]
    chains = [[clients], _stages(flanp, clients), *(Growing(*c).stages(clients) for c in choices)]
    rounds = _rounds(chains, samples, kappa, start, step)
    sizes, where = np.unique(np.concatenate(chains), return_inverse=True)
    T = _slowest(speeds, clients, sizes, seed) * (samples if speeds.per_sample else 1)
    spent = np.concatenate(rounds).astype(float)[:, None] * T[where]
    times = np.add.reduceat(spent, np.cumsum([0, *map(len, chains[:-1])]), axis=0)
    ups = np.divide(times[0], times, out=np.ones_like(times), where=times > 0)  # 0 / 0 is 1
    medians = np.median(ups[2:], axis=1).tolist()
    best = int(np.argmax(medians))
    mean_T = dict(zip(sizes.tolist(), T.mean(axis=1).tolist(), strict=True))
    own = zip(chains[1], rounds[1], strict=True)
    low, middle, high = np.quantile(ups[1], [0.025, 0.5, 0.975]).tolist()
    return Plan(
        n0=flanp.n0,
        growth=flanp.growth,
        stages=[PlannedStage(n, mean_T[n], r, r * tau * mean_T[n]) for n, r in own],
        full_rounds=rounds[0][0],
        full_time=rounds[0][0] * tau * mean_T[clients],
        speed_up=middle,
        low=low,
        high=high,
        draws=T.shape[1],
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
    return np.array(_rounds([list(sizes)], s, kappa, start, step, modes)[0])


def _stages(flanp: Growing, N: int) -> list[int]:
    """Return the sizes of the stages, unless they are too many."""
    flanp.check(N)
    alone = min(max(flanp.n0, 1 / (flanp.growth - 1)), N)  # below it a stage adds one client
    least = alone - flanp.n0 + math.log(N / alone) / math.log(flanp.growth)
    ok = least < MOST_STAGES and len(flanp.stages(N)) <= MOST_STAGES
    require(ok, "growth", flanp.growth, f"larger, such as 2: it makes over {MOST_STAGES} stages")
    return flanp.stages(N)


def _rounds(
    chains: list[list[int]], s: float, kappa: float, start: float, step: float, modes: int = 20
) -> list[list[int]]:
    """Return the `expected_rounds` of each chain of stages, stage k of all chains at once."""
    curvature = np.geomspace(1 / kappa, 1, modes)
    rates = 2 * step * curvature
    c = modes / 2  # sigma^2 = 1
    order = sorted(range(len(chains)), key=lambda i: -len(chains[i]))
    a = np.full((len(chains), modes), 2 * start * c / curvature.sum())
    m = np.full(len(chains), math.inf)
    rounds: list[list[int]] = [[] for _ in chains]
    for k in range(len(chains[order[0]])):
        order = [i for i in order if len(chains[i]) > k]
        n = np.array([chains[i][k] for i in order], float)
        added = np.maximum(1 / (m[: len(n)] * s) - 1 / (n * s), 0)
        a = a[: len(n)] + added[:, None] / curvature
        r = _first_below(2 / kappa * c / (n * s), curvature**2 * a, rates)
        a, m = a * np.exp(-rates * r[:, None]), n
        for i, r_i in zip(order, r.tolist(), strict=True):
            rounds[i].append(int(r_i))
    return rounds


def _first_below(limit: np.ndarray, w: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Return the least whole r >= 0 with sum_j w_j exp(-rates_j r) <= limit, for each row of w.

    The logarithm of the sum is convex in r, so its tangents cross the limit before it does:
    Newton's method climbs to r from below, here from where the last single term crosses.
    """
    limit = limit * (1 + 1e-12)  # a sum that equals it but for rounding (below 1e-13) is there
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):  # terms that are 0
        r = np.maximum(np.ceil((np.log(w / limit[:, None]) / rates).max(axis=1)), 0)
        while True:
            terms = w * np.exp(-rates * r[:, None])
            over = terms.sum(axis=1) / limit
            if not (over > 1).any():
                return r
            newton = np.ceil(np.log(over) * over * limit / (terms @ rates))
            r = np.where(over > 1, r + np.maximum(newton, np.spacing(r)), r)


def _slowest(speeds: Speeds, N: int, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Return T of the slowest of the n fastest clients, for each n of `sizes`, in many draws.

    Where the quantile function is known it is that of U_(n), the n-th smallest of N uniform
    variables: the sum of the first n of N + 1 exponential variables over the sum of all.
    """
    if isinstance(speeds, Measured):
        n = len(speeds.seconds)
        require(n == N, "clients", N, f"{n}, the number of speeds: one for each")
        return np.sort(speeds.seconds)[sizes - 1, None]
    rng = generator(seed, Stream.SPEEDS)
    if speeds.quantile(np.array([0.5])) is None:
        return _draw(speeds, N, sizes, rng)
    draws = 1 if isinstance(speeds, Homogeneous) else min(DRAWS, max(100, 400_000 // len(sizes)))
    gaps = np.diff(sizes, prepend=0, append=N + 1)[:, None]
    sums = rng.standard_gamma(gaps, (len(gaps), draws)).cumsum(axis=0)
    U = np.clip(sums[:-1] / sums[-1], np.finfo(float).tiny, 1 - 2.0**-53)
    T = seconds_from(speeds.quantile, U.shape, U)
    if isinstance(speeds, Uniform) and speeds.pin_ends:
        T[sizes == 1], T[sizes == N] = speeds.low, speeds.high
    return T


def _draw(speeds: Speeds, N: int, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the same from all N speeds, in fewer draws the more they are."""
    require(N <= 10**6, "clients", N, f"at most 1e6, unless {type(speeds).__name__} has quantile()")
    ids = [str(i) for i in range(N)]
    T: list[np.ndarray] = []
    for _ in range(min(DRAWS, max(4, 4_000_000 // N))):
        before = rng.bit_generator.state
        T.append(np.sort(seconds_from(speeds.draw, (N,), ids, rng))[sizes - 1])
        if rng.bit_generator.state == before:  # nothing random was asked for: they are fixed
            break
    return np.stack(T, axis=1)
