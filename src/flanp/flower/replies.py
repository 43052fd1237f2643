"""What the replies of a round say together."""

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from flanp.flower.wire import Answer
from flanp.measurement import Measurement, noise

ABSURD = 1e3
"""A message this many times as long as the median of the latest ones is absurd."""


def shares(answers: list[Answer]) -> np.ndarray:
    """Return how much each client counts: s_i over the sum."""
    s = np.array([a.s for a in answers])
    return s / s.sum()


def mean_message(answers: list[Answer]) -> np.ndarray:
    """Return the clients' messages, averaged in double precision."""
    parts = zip(shares(answers), answers, strict=True)
    mean = sum(p_i * a.m.astype(float) for p_i, a in parts)
    return np.asarray(mean).astype(answers[0].m.dtype)


def measurement(answers: list[Answer]) -> Measurement | None:
    """Return what the clients' gradients say of w, if all have sent one."""
    gradients = [a.g.astype(float) for a in answers if a.g is not None]
    if len(gradients) < len(answers):
        return None
    p, samples = shares(answers), float(sum(a.s for a in answers))
    g = sum(p_i * g_i for p_i, g_i in zip(p, gradients, strict=True))
    grad_norm_sq = float((np.asarray(g) ** 2).sum())
    mean_sq = float(sum(p_i * (g_i**2).sum() for p_i, g_i in zip(p, gradients, strict=True)))
    within = sum(a.within for a in answers) / samples
    return Measurement(
        clients=len(answers),
        samples=samples,
        loss=float(p @ np.array([a.loss for a in answers])),
        grad_norm_sq=grad_norm_sq,
        noise=noise(len(answers), samples, grad_norm_sq, mean_sq, within),
    )


@dataclass
class UsualNorms:
    """Knows how long messages usually are."""

    latest: deque[float] = field(default_factory=lambda: deque(maxlen=20))

    def absurd(self, answers: dict[int, Answer]) -> dict[int, float]:
        """Return the norms of the messages that are absurdly long, by client."""
        norms = {i: float(np.linalg.norm(a.m.astype(float))) for i, a in answers.items()}
        usual = [*self.latest, *norms.values()]
        limit = ABSURD * float(np.median(usual)) if len(usual) >= 3 else math.inf
        absurd = {i: norm for i, norm in norms.items() if 0 < limit < norm}
        self.latest.extend(norm for i, norm in norms.items() if i not in absurd)
        return absurd
