"""Is FLANP worth it for these speeds and exchanges, with which n0 and growth, and is memory?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from flanp.checks import require
from flanp.drawing import drawn
from flanp.forecast import best_m, memory_time
from flanp.network import FREE, Network
from flanp.participation import Growing, Nimble
from flanp.parts import Many, Positive, Seed, Within, check_is
from flanp.speeds import Speeds

GROWTHS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 16.0)
MOST_STAGES = 2000  # a stage takes 25 to 100 microseconds to predict
STAND_INS = 500  # clients that stand for all where they are looked at one by one
WORTH = 1.2  # a speed-up from which on it is called worth it


class PlannedStage(NamedTuple):
    """One stage of a plan."""

    n: int
    T: float
    """Seconds per step of the slowest participant; of a step and an exchange, if that costs."""
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
    tau: float
    """Local steps of a round."""
    memory_k: int
    """How many clients take part where the others are remembered."""
    memory_time: float
    """What that takes; infinite if it is not to be told."""
    memory_T: float
    """Seconds per step, and exchange, of the slowest of them."""
    best_m: int
    """With how many of the fastest clients asynchronous SGD is quickest."""
    bound: float
    """One step, and exchange, of the slowest client: less takes no method that uses all data."""

    @property
    def time(self) -> float:
        """Virtual time of FLANP."""
        return sum(stage.time for stage in self.stages)

    @property
    def memory_rounds(self) -> tuple[float, float]:
        """Seconds per step of the slowest participant with memory, and how many rounds it does."""
        return self.memory_T, self.memory_time / (self.tau * self.memory_T)

    def verdict(self) -> str:
        """Return the answer in words."""
        if self.full_rounds == 0:
            return "not worth it: the start is within the statistical accuracy of all data already"
        return f"{self._on_flanp()}; {self._on_memory()}"

    def _on_memory(self) -> str:
        gain = self.full_time / self.memory_time
        if gain < WORTH:
            return "a memory of absent clients (method = auto) is not worth it"
        quickest = gain > max(self.speed_up, self.best_speed_up)
        words = "quickest" if quickest else "in between"
        return (
            f"{words}: {self.memory_k} clients and a memory of the others (method = auto), "
            f"{gain:.1f}x sooner; {self.memory_time / self.bound:.1f} times the least for all data"
        )

    def _on_flanp(self) -> str:
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
    tau: float | None = None,
    seed: int = 0,
    network: Network = FREE,
    megabytes: float = 0.0,
) -> Plan:
    """Predict the time of FLANP, of full participation and of memory, with the same solver.

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
        tau: local steps of a round. Left out, they are chosen by what exchanges cost
            (work.Balanced), and a round goes tau times `step`.
        seed: of the draws.
        network: what exchanges cost.
        megabytes: of a model, and of a message.

    >>> from flanp.speeds import Exponential
    >>> plan(Exponential(), clients=100, samples=100).speed_up > 3
    True
    >>> plan(Exponential(), clients=2, samples=1).verdict()[:12]
    'not worth it'
    """
    speeds = check_is("speeds", speeds, Speeds)
    clients = check_is("clients", clients, Many)
    samples = check_is("samples", samples, Annotated[float, Within(1, 1e12)])
    kappa = check_is("kappa", kappa, Annotated[float, Within(1, 1e12)])
    start = check_is("start", start, Positive)
    step = check_is("step", step, Annotated[float, Within(1e-9, 1e9)])
    tau = check_is("tau", tau, Annotated[float, Within(1e-9, 1e9)] | None)
    seed = check_is("seed", seed, Seed)
    network = check_is("network", network, Network)
    megabytes = check_is("megabytes", megabytes, Annotated[float, Within(0, 1e9)])
    flanp = Growing(n0, growth)
    starts = np.unique(np.rint(np.geomspace(1, clients, 24)).astype(int)).tolist()
    choices = [(n, g) for n in starts for g in GROWTHS]
    chains = [[clients], _stages(flanp, clients), *(Growing(*c).stages(clients) for c in choices)]
    (least,) = Nimble().stages(clients)
    some = np.unique(np.linspace(1, clients, min(clients, STAND_INS)).astype(int))
    sizes = np.unique(np.concatenate([*chains, [least], some]))
    where = np.searchsorted(sizes, np.concatenate(chains))
    fleet = drawn(speeds, network, clients, sizes, samples, megabytes, seed)
    if tau is None:
        tau = fleet.steps(least)
        step *= tau
    rounds = _rounds(chains, samples, kappa, start, step)
    T = fleet.seconds(tau) / tau
    spent = np.concatenate(rounds).astype(float)[:, None] * T[where]
    times = np.add.reduceat(spent, np.cumsum([0, *map(len, chains[:-1])]), axis=0)
    ups = np.divide(times[0], times, out=np.ones_like(times), where=times > 0)  # 0 / 0 is 1
    medians = np.median(ups[2:], axis=1).tolist()
    best = int(np.argmax(medians))
    mean_T = dict(zip(sizes.tolist(), T.mean(axis=1).tolist(), strict=True))
    enough = sizes >= least
    k = Nimble().best(sizes[enough], T.mean(axis=1)[enough])
    single = np.sort(fleet.seconds(1.0), axis=0).mean(axis=1)[np.searchsorted(sizes, some)]
    remembering = memory_time(tau * mean_T[k], single, clients * samples, kappa, start, step)
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
        tau=tau,
        memory_k=k,
        memory_time=remembering,
        memory_T=mean_T[k],
        best_m=round(best_m(single, float(len(some))) * clients / len(some)),
        bound=float(single[-1]),
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
