"""Oort's choice of participants: clients whose losses are high and who are quick."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import numpy as np

from flanp.checks import require
from flanp.participation import Known, Memory, Participation
from flanp.parts import Count, Many, Within
from flanp.selection import reports

FLAT, SHARP = 0.1, 5.0
"""The pacer's window of rounds is worth as much as the one before: within a tenth; and much more
or less: by five times. Constants of Oort's code."""
LEAST_RANGE = 1e-4
"""The least range that utilities are divided by, a constant of Oort's code."""

Share = Annotated[float, Within(0, 1)]
Percent = Annotated[float, Within(0, 100)]
Times = Annotated[float, Within(1, 1e6)]


@final
@dataclass(frozen=True)
class Oort(Participation):
    """Clients with a high utility, and some new ones: Oort of Lai et al. (OSDI 2021).

    A client that has reported its losses has the utility r = s_i sqrt(mean of their squares) and
    the score

        ((min(r, clip) - r_min) / (r_max - r_min) + sqrt(0.1 ln t / t_last)) (T / t_i)^alpha,

    where t is the round, t_last that of its last report, both from 1, clip the 0.9-quantile of
    the utilities, t_i the seconds that a round takes the client, T the seconds of the client at
    the 30th percentile; the factor is 1 for those within T. A share of the round, which shrinks
    from round to round, goes to clients who have never reported (exploration), drawn in proportion
    to s_i (T / t_i)^alpha; the others are drawn in proportion to their scores. The pacer moves T:
    up when the utility of those chosen by score stays the same, down when it leaps.

    As in the paper, `over` times k are asked: use it with `patience.First(k)`.

    >>> Oort(k=10).stages(100)
    [13]
    >>> Oort(k=10).exploring(0), round(Oort(k=10).exploring(5), 3), Oort(k=10).exploring(99)
    (0.9, 0.814, 0.3)

    References: Oort: Efficient Federated Learning via Guided Participant Selection,
    arXiv:2010.06081, Algorithm 1. The defaults are those of FedScale (ICML 2022), the same
    authors' platform, whose names for the fields are given in parentheses.
    """

    sees_losses: ClassVar[bool] = True

    k: Many
    """Clients whose work a round needs, K."""
    over: Annotated[float, Within(1, 100)] = 1.3
    """Times k that are asked (overcommitment)."""
    exploration: Share = 0.9
    """The share of new clients at the start, epsilon (exploration_factor)."""
    decay: Share = 0.98
    """What it is multiplied by in each round (exploration_decay)."""
    exploration_min: Share = 0.3
    """The share that it does not go below (exploration_min)."""
    window: Times = 5.0
    """New clients are drawn from so many times their number, the heaviest (sample_window)."""
    threshold: Percent = 30.0
    """The percentile of all clients' seconds that T is at the start (round_threshold)."""
    penalty: Annotated[float, Within(0, 100)] = 2.0
    """The exponent alpha (round_penalty)."""
    pacer_step: Count = 20
    """Rounds in the pacer's window, W (pacer_step)."""
    pacer_delta: Percent = 5.0
    """Percentiles by which the pacer moves T (pacer_delta)."""
    clip: Share = 0.9
    """The quantile that utilities are cut at (clip_bound)."""
    uncertainty: Annotated[float, Within(0, 1e6)] = 0.1
    """What ln t is multiplied by: how much long silence counts. A constant of FedScale's code."""
    cut_off: Share = 0.05
    """Only clients are drawn whose score is at least so much of the score of the last one that
    would be chosen by rank, c (cut_off_util)."""
    augment: Times = 10.0
    """They are drawn from at least so many times their number, whatever the cut-off. A constant
    of FedScale's code; 1 is the paper's rule."""
    blacklist: Count | None = None
    """Reports after which a client is chosen no more; None: as many as it likes
    (blacklist_rounds = -1)."""
    blacklist_share: Share = 0.3
    """The most clients that are put aside so (blacklist_max_len)."""

    def check(self, N: int) -> None:
        """Refuse a k above N."""
        require(self.k <= N, "k", self.k, f"at most the number of clients, {N}")

    def stages(self, N: int) -> list[int]:
        """Return [over k]."""
        return [min(math.ceil(self.over * self.k - 1e-9), N)]

    def pool(self, n: int, ranking: np.ndarray) -> np.ndarray:
        """Return everyone."""
        return ranking

    def select(self, n: int, known: Known) -> np.ndarray:
        """Return the participants of a first round."""
        return self.choose(n, known, {})[0]

    def choose(self, n: int, known: Known, memory: Memory) -> tuple[np.ndarray, Memory]:
        """Return n participants, fastest first, and what the pacer and the blacklist go by."""
        ranking, last = known.ranking, reports(known)[:, 0]
        n = min(n, len(ranking))
        memory = self.paced(known, memory)
        T = percentile(known.seconds[ranking], memory["threshold"])
        there = ranking[~np.isin(ranking, self.put_aside(n, ranking, memory))]
        old, new = there[last[there] >= 0], there[last[there] < 0]
        explore = min(int(n * self.exploring(known.round) + 1e-9), len(new))
        exploit = min(n - explore, len(old))

        old = old[self.worth_it(self.scores(known, old, T), exploit, known.rng)]
        weights = known.s[new] * slowness(known.seconds[new], T, self.penalty)
        new = new[_drawn(weights, n - exploit, self.window, known.rng)]
        chosen = np.isin(ranking, np.concatenate([old, new]))
        return ranking[chosen], {**memory, "exploited": old.tolist()}

    def exploring(self, rounds: int) -> float:
        """Return the share of new clients after so many rounds."""
        return max(self.exploration * self.decay**rounds, self.exploration_min)

    def scores(self, known: Known, clients: np.ndarray, T: float) -> np.ndarray:
        """Return the scores of clients that have reported."""
        if not len(clients):
            return np.zeros(0)
        r, t_last = utilities(known)[clients], reports(known)[clients, 0] + 1
        low, clip = 0.999 * r.min(), np.sort(r)[min(int(len(r) * self.clip), len(r) - 1)]
        gain = (np.minimum(r, clip) - low) / max(r.max() - low, LEAST_RANGE)
        silence = np.sqrt(self.uncertainty * math.log(known.round + 1) / t_last)
        return (gain + silence) * slowness(known.seconds[clients], T, self.penalty)

    def worth_it(self, scores: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return places of clients drawn in proportion to their scores, from the cut-off on."""
        if not count:
            return np.zeros(0, int)
        cut_off = self.cut_off * np.sort(scores)[-count]
        enough = max(self.augment, np.sum(scores >= cut_off) / count)
        return _drawn(scores, count, enough, rng)

    def paced(self, known: Known, memory: Memory) -> Memory:
        """Return the memory with what was heard since the last choice, and T as the pacer has it.

        The utility of a round is the mean over those who were chosen by score and answered; the
        pacer compares its sums over two windows of rounds.
        """
        rounds = known.round
        if not memory:
            sums = {"threshold": self.threshold, "window": 0.0, "before": 0.0}
            return {"round": rounds, **sums, "exploited": [], "counts": []}
        if rounds == memory["round"]:  # the same round is planned again
            return memory
        r, heard = utilities(known), reports(known)[:, 0] >= memory["round"]
        exploited = np.array(memory["exploited"], int)
        answered = exploited[heard[exploited]]
        now = memory["window"] + (float(r[answered].mean()) if len(answered) else 0.0)
        before, threshold = memory["before"], memory["threshold"]
        if rounds % self.pacer_step == 0:
            if rounds >= 2 * self.pacer_step:
                threshold = self.moved(threshold, before, now)
            before, now = now, 0.0
        sums = {"threshold": threshold, "window": now, "before": before}
        counts = _counted(memory["counts"], heard) if self.blacklist is not None else []
        return {"round": rounds, **sums, "exploited": memory["exploited"], "counts": counts}

    def moved(self, threshold: float, before: float, now: float) -> float:
        """Return T's percentile after two windows of rounds with some utilities."""
        if abs(now - before) <= FLAT * before:
            return min(100.0, threshold + self.pacer_delta)
        if abs(now - before) >= SHARP * before:
            return max(self.pacer_delta, threshold - self.pacer_delta)
        return threshold

    def put_aside(self, n: int, ranking: np.ndarray, memory: Memory) -> np.ndarray:
        """Return the clients with too many reports, if n others are left."""
        if self.blacklist is None or not memory["counts"]:
            return ranking[:0]
        counts = np.array(memory["counts"])[ranking]
        most = min(int(self.blacklist_share * len(ranking)), len(ranking) - n)
        many = np.argsort(-counts, kind="stable")[:most]
        return ranking[many[counts[many] > self.blacklist]]


def utilities(known: Known) -> np.ndarray:
    """Return s_i times the root of the mean square of each client's losses; 0 without a report."""
    with np.errstate(over="ignore"):
        r = known.s * np.maximum(reports(known)[:, 2], 0)
    return np.nan_to_num(r, nan=0.0, posinf=1e300)  # before a run is found to have diverged


def percentile(seconds: np.ndarray, percent: float) -> float:
    """Return T: the seconds of the client at a percentile of those known.

    >>> percentile(np.array([4.0, 1.0, 2.0, 3.0, np.inf]), 60)
    3.0
    """
    finite = np.sort(seconds[np.isfinite(seconds)])
    if not len(finite):
        return math.inf
    return float(finite[min(int(len(finite) * percent / 100), len(finite) - 1)])


def slowness(seconds: np.ndarray, T: float, alpha: float) -> np.ndarray:
    """Return (T / t_i)^alpha for clients slower than T, 1 for the others.

    >>> slowness(np.array([1.0, 2.0, 4.0, np.inf]), T=2.0, alpha=2.0)
    array([1.  , 1.  , 0.25, 0.  ])
    """
    return np.divide(T, seconds, out=np.ones(len(seconds)), where=seconds > T) ** alpha


def _drawn(weights: np.ndarray, count: int, times: float, rng: np.random.Generator) -> np.ndarray:
    """Return `count` places, drawn in proportion to weights from `times` as many, the heaviest.

    Exponential numbers, each divided by a weight: the least ones are draws without replacement
    (Efraimidis and Spirakis 2006). Weights of 0 come last.
    """
    heaviest = np.argsort(-weights, kind="stable")[: math.ceil(times * count - 1e-9)]
    with np.errstate(divide="ignore"):
        race = np.log(rng.exponential(size=len(heaviest))) - np.log(weights[heaviest])
    return heaviest[np.argsort(race, kind="stable")[:count]]


def _counted(counts: list[int], heard: np.ndarray) -> list[int]:
    """Return how often each client has reported, with those heard just now."""
    total = heard.astype(int)
    total[: len(counts)] += np.array(counts, int)
    return total.tolist()
