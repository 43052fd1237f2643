"""What the replies of a round say together."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import MetricRecord, RecordDict
from flwr.common.logger import log

from flanp.flower.wire import Answer
from flanp.measurement import Measurement, noise
from flanp.trees import Vector

ABSURD = 1e3
"""A message this many times as long as the latest ones and as the median of its round is absurd."""

Aggregate = Callable[[list[RecordDict], str], MetricRecord]


def shares(answers: list[Answer]) -> np.ndarray:
    """Return how much each client counts: s_i over the sum."""
    s = np.array([a.s for a in answers])
    return s / s.sum()


def mean_message(answers: list[Answer]) -> np.ndarray:
    """Return the clients' messages, averaged in double precision."""
    return mean_over(answers, [a.m for a in answers])


def mean_over(answers: list[Answer], vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Return a vector of each client, averaged in double precision."""
    parts = zip(shares(answers), vectors, strict=True)
    return np.asarray(sum(p_i * vector.astype(float) for p_i, vector in parts))


def measurement(answers: list[Answer], drifts: Sequence[Vector] = ()) -> Measurement | None:
    """Return what the clients' gradients say of w, if all have sent one.

    Drifts are what a solver subtracts from each one's gradients, where it stands for the others.
    """
    gradients = [a.g.astype(float) for a in answers if a.g is not None]
    if len(gradients) < len(answers):
        return None
    p, samples = shares(answers), float(sum(a.s for a in answers))
    g = sum(p_i * g_i for p_i, g_i in zip(p, gradients, strict=True))
    own_norm_sq = float((np.asarray(g) ** 2).sum())
    tilt = sum(p_i * np.asarray(drift, float) for p_i, drift in zip(p, drifts, strict=False))
    mean_sq = float(sum(p_i * (g_i**2).sum() for p_i, g_i in zip(p, gradients, strict=True)))
    within = sum(a.within for a in answers) / samples
    return Measurement(
        clients=len(answers),
        samples=samples,
        loss=float(p @ np.array([a.loss for a in answers])),
        grad_norm_sq=float(((g - tilt) ** 2).sum()),
        noise=noise(len(answers), samples, own_norm_sq, mean_sq, within),
    )


def average_metrics(
    metrics: list[MetricRecord], aggregate: Aggregate, weight: str
) -> MetricRecord | None:
    """Return the average of the metrics that all clients have in the same form."""
    if not metrics:
        return None

    def form(value: Any) -> int | None:
        return len(value) if isinstance(value, list) else None

    common = [
        name
        for name in metrics[0]
        if all(name in m and form(m[name]) == form(metrics[0][name]) for m in metrics)
    ]
    contents = [
        RecordDict({"metrics": MetricRecord({name: m[name] for name in common})}) for m in metrics
    ]
    try:
        return aggregate(contents, weight)
    except Exception as error:  # a user's function; a run must not end for its records
        log(WARNING, "the clients' metrics cannot be averaged: %s", error)
        return None


@dataclass
class UsualNorms:
    """Knows how long messages are.

    Those of a converged solver are short, and a fresh start makes all of them long at once: that
    is why most of the round's are long enough to compare with.
    """

    latest: deque[float] = field(default_factory=lambda: deque(maxlen=20))

    def exceeded(self, answer: Answer) -> bool:
        """Whether a single message is absurdly long beside the latest ones."""
        norm = float(np.linalg.norm(answer.m.astype(float)))
        return len(self.latest) > 2 and norm > ABSURD * max(self.latest) > 0

    def absurd(self, answers: dict[int, Answer]) -> dict[int, float]:
        """Return the norms of the messages that are absurdly long, by client."""
        norms = {i: float(np.linalg.norm(a.m.astype(float))) for i, a in answers.items()}
        if len(self.latest) + len(norms) < 3 or not norms:
            limit = math.inf
        else:
            limit = ABSURD * max(float(np.median([*norms.values()])), *self.latest, 0.0)
        absurd = {i: norm for i, norm in norms.items() if 0 < limit < norm}
        self.latest.extend(norm for i, norm in norms.items() if i not in absurd)
        return absurd
