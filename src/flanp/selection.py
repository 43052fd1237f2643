"""Rivals' choices of participants: FedCS (whoever fits a deadline) and TiFL (one tier a round)."""

import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import numpy as np

from flanp.checks import require
from flanp.participation import Known, Memory, Participation
from flanp.parts import Count, Many, Within

NO_REPORT = sys.float_info.max
"""The loss of a tier of which nothing is known: the least accurate. Checkpoints hold it as JSON,
which has no infinity."""


@final
@dataclass(frozen=True)
class FedCS(Participation):
    """As many clients as fit a deadline: FedCS of Nishio and Yonetani (ICC 2019).

    Greedily adds the client that lengthens the round least, while the estimate of the round stays
    within the deadline. Clients here have links of their own, so the estimate is the slowest
    one's `Known.seconds` (the paper's share an uplink and queue for it), and the greedy choice is
    all clients within the deadline, at least the fastest. All clients are candidates; the paper
    draws candidates first.

    Nobody takes part of whom nothing is known, unless nothing is known of anyone.

    Reference: Client Selection for Federated Learning with Heterogeneous Resources in Mobile
    Edge, arXiv:1804.08333, Algorithm 3.
    """

    deadline: Annotated[float, Within(1e-9, 1e12)]
    """Seconds that a round may take, T_round."""
    most: Many | None = None
    """The most clients in a round."""

    def stages(self, N: int) -> list[int]:
        """Return [N]: the number of candidates."""
        return [N]

    def pool(self, n: int, ranking: np.ndarray) -> np.ndarray:
        """Return everyone."""
        return ranking

    def select(self, n: int, known: Known) -> np.ndarray:
        """Return those who fit the deadline, fastest first."""
        seconds = known.seconds[known.ranking]
        fit = max(1, int(np.sum(seconds <= self.deadline)))
        if not np.isfinite(seconds).any():
            fit = len(seconds)
        quickest = np.argsort(seconds, kind="stable")[: min(fit, self.most or fit)]
        return known.ranking[np.sort(quickest)]


@final
@dataclass(frozen=True)
class TiFL(Participation):
    """k random clients of one tier, drawn in each round: TiFL of Chai et al. (HPDC 2020).

    The ranking is cut into tiers of (nearly) equal size, so that nobody waits for a client of
    another tier. All tiers are equally likely at first. After every `interval` rounds, if the
    accuracy of the tier drawn last is no better than an interval ago, the least accurate of the
    n tiers with credits become the likeliest (the paper's ChangeProbs):

        p = (n - rank) / (n (n + 1) / 2),  rank = 0 for the least accurate.

    The paper's server tests the model on data of each tier. Here it has the losses that
    participants report with their work: a tier's accuracy is minus the mean of its clients' last
    reports, however old; a tier without any is the least accurate.

    >>> TiFL(k=3).stages(50)
    [3]
    >>> change_probabilities(np.array([0.5, 0.1, 0.9]), np.array([True, True, True])).round(3)
    array([0.333, 0.167, 0.5  ])

    Reference: TiFL: A Tier-based Federated Learning System, arXiv:2001.09249, Algorithm 2.
    """

    sees_losses: ClassVar[bool] = True

    k: Many
    """Clients in a round, |C|; all of a tier that has fewer."""
    tiers: Many = 5
    """The paper's T."""
    interval: Count = 10
    """Rounds between changes of the probabilities, I."""
    credits: tuple[Count, ...] | None = None
    """How often each tier may be drawn, the fastest first; None: without end. Once all are used
    up, they count no longer, and all tiers are equally likely again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.credits is not None:
            require(
                len(self.credits) == self.tiers,
                "credits",
                list(self.credits),
                f"one number for each of the {self.tiers} tiers",
            )

    def check(self, N: int) -> None:
        """Refuse more tiers than clients, and a k above N."""
        require(self.tiers <= N, "tiers", self.tiers, f"at most the number of clients, {N}")
        require(self.k <= N, "k", self.k, f"at most the number of clients, {N}")

    def stages(self, N: int) -> list[int]:
        """Return [k], or the size of the largest tier."""
        return [min(self.k, -(-N // self.tiers))]

    def pool(self, n: int, ranking: np.ndarray) -> np.ndarray:
        """Return everyone."""
        return ranking

    def select(self, n: int, known: Known) -> np.ndarray:
        """Return the participants of a first round."""
        return self.choose(n, known, {})[0]

    def choose(self, n: int, known: Known, memory: Memory) -> tuple[np.ndarray, Memory]:
        """Return n random clients of a random tier, and the tiers' credits and probabilities."""
        tiers = np.array_split(known.ranking, self.tiers)
        there = np.array([len(tier) > 0 for tier in tiers])  # there may be fewer on real machines
        losses = tier_losses(tiers, known)
        equal = [1 / self.tiers] * self.tiers
        before = memory or {
            "credits": list(self.credits or ()),
            "probabilities": equal,
            "losses": losses.tolist(),
            "tier": 0,
        }
        credits, p = np.array(before["credits"]), np.array(before["probabilities"])
        last, tier = np.array(before["losses"]), before["tier"]
        may = there & (credits > 0) if credits.size else there
        if not may.any():
            credits, p, may = credits[:0], np.array(equal), there
        if known.round and known.round % self.interval == 0:
            if losses[tier] >= last[tier]:
                p = change_probabilities(losses, may)
            last = losses
        weights = p * may if (p * may).any() else may
        tier = int(known.rng.choice(self.tiers, p=weights / weights.sum()))
        if credits.size:
            credits[tier] -= 1
        clients = tiers[tier]
        picked = known.rng.choice(len(clients), min(n, len(clients)), replace=False)
        return clients[np.sort(picked)], {
            "credits": credits.tolist(),
            "probabilities": p.tolist(),
            "losses": last.tolist(),
            "tier": tier,
        }


def tier_losses(tiers: list[np.ndarray], known: Known) -> np.ndarray:
    """Return the mean of the losses that the clients of each tier have reported last."""
    rows = reports(known)
    reported = [tier[rows[tier, 0] >= 0] for tier in tiers]
    means = [rows[clients, 1].mean() if len(clients) else np.nan for clients in reported]
    return np.nan_to_num(np.array(means), nan=NO_REPORT, posinf=NO_REPORT)


def change_probabilities(losses: np.ndarray, may: np.ndarray) -> np.ndarray:
    """Return ChangeProbs: of the tiers that may be drawn, the less accurate are the likelier.

    Equally accurate ones rank by speed, the fastest as the least accurate.
    """
    ranked = [tier for tier in np.argsort(-losses, kind="stable") if may[tier]]
    n = len(ranked)
    p = np.zeros(len(losses))
    p[ranked] = (n - np.arange(n)) / (n * (n + 1) / 2)
    return p


def reports(known: Known) -> np.ndarray:
    """Return `known.losses` with a row for each client, also for those who have joined since."""
    rows = np.full((len(known.T), 3), -1.0)
    rows[: len(known.losses)] = known.losses
    return rows
