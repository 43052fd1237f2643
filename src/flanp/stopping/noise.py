"""The stage rules that need no constant: stop where going on would fit noise."""

import math
from dataclasses import dataclass
from typing import Annotated, final

from flanp.measurement import Look, Measurement
from flanp.parts import Count, Positive, Within
from flanp.stage import Stage
from flanp.stopping.base import Memory, StageRule

WINDOW = 3
"""Over how many rounds the decrease of the gradient is taken."""
FLOOR = 0.01
"""The least that the curvature left may be, in units of the steepest: below it rounding decides."""


@final
@dataclass(frozen=True)
class LossNoise(StageRule):
    """The default: stop where the excess loss is lost in its own sampling noise.

    Near the minimiser of L_n the excess loss is g.H^-1 g / 2, with g the gradient and H the
    curvature. For the n clients' own noise the same is, on average, noise / (2 mean curvature).
    What is left of g after some rounds lies where H is small; how small, the decrease tells: a
    round takes ||g|| to exp(-r) ||g|| with a rate r in proportion to the curvature where g lies. A
    stage begins with r_1, that of the noise which the new clients bring. So the stage ends when

        ||grad L_n||^2 <= theta * (its squared standard error) * r / r_1,

    which takes the norms of successive gradients and no mu, c or L. Where the gradient does not
    become smaller, as far from a minimiser of a hard loss, joining more clients pays more than
    going on: a stage that is not the last also ends after `at_most` rounds in which the squared
    norm has not lost a tenth.

    theta = 0.3 is within 1.35 times the rule with known constants for condition numbers of 20 and
    200, uniform and exponential speeds, from 1 or 8 clients on (benchmarks/stage_rule.py).
    """

    theta: Positive = 0.3
    at_most: Count | None = 10
    gain: Annotated[float, Within(0, 1)] = 0.1
    """What the squared norm must lose to count as smaller."""

    def looks_at(self, stage: Stage, rounds: int) -> Look:
        """Look at the active clients' gradient."""
        return Look.ACTIVE

    def met(
        self, memory: Memory, stage: Stage, rounds: int, seen: Measurement | None
    ) -> tuple[bool, Memory]:
        """Test ||grad L_n||^2 <= theta * noise * r / r_1."""
        assert seen is not None
        g = seen.grad_norm_sq
        before = memory if rounds and "g_1" in memory else {}
        past = [before[key] for key in ("g_3", "g_2", "g_1") if key in before]
        r = _rate([*past, g])
        r_1 = max(before.get("r_1", 0.0), r)
        lowest, since = before.get("lowest", math.inf), before.get("since", 0)
        if g < (1 - self.gain) * lowest:
            lowest, since = g, rounds
        remembered = dict(zip(("g_1", "g_2", "g_3"), reversed([*past, g][-WINDOW:]), strict=False))
        remembered |= {"r_1": r_1, "lowest": lowest, "since": since}
        too_long = self.at_most is not None and rounds - since >= self.at_most and not stage.last
        left = min(1.0, max(r / r_1, FLOOR)) if r_1 > 0 else 1.0
        # One sample has no noise to tell: on to the next stage, but not to the end.
        unknown = stage.last and math.isinf(seen.noise)
        accurate = g <= self.theta * left * seen.noise and not unknown
        return too_long or (accurate and rounds > 0) or g == 0, remembered


def _rate(squares: list[float]) -> float:
    """Return by how much the logarithm of the norm falls in a round.

    >>> round(_rate([1.0, math.exp(-2), math.exp(-4)]), 12)
    1.0
    """
    if len(squares) < 2 or not 0 < squares[-1] < math.inf or not 0 < squares[0] < math.inf:
        return 0.0
    return 0.5 * math.log(squares[0] / squares[-1]) / (len(squares) - 1)


@final
@dataclass(frozen=True)
class GradientNoise(StageRule):
    """Stop where the gradient is lost in its own sampling noise.

    The n clients' mean gradient is known only up to its standard error; to go on below that
    is to fit noise. The stage ends when

        ||grad L_n||^2 <= theta * (its squared standard error),

    which takes two sums over the clients and no mu, c or L. A single client's standard error comes
    from the two halves of its data. Far from a minimiser of a hard, non-convex loss the gradient
    may stay above its noise for very long while joining more clients would pay, so
    a stage that is not the last also ends after `at_most` rounds.
    """

    theta: Positive = 0.1
    at_most: Count | None = 20

    def looks_at(self, stage: Stage, rounds: int) -> Look:
        """Look at the active clients' gradient."""
        return Look.ACTIVE

    def met(
        self, memory: Memory, stage: Stage, rounds: int, seen: Measurement | None
    ) -> tuple[bool, Memory]:
        """Test ||grad L_n||^2 <= theta * noise."""
        assert seen is not None
        too_long = self.at_most is not None and rounds >= self.at_most and not stage.last
        # One sample has no noise to tell: on to the next stage, but not to the end.
        unknown = stage.last and math.isinf(seen.noise)
        return too_long or (seen.grad_norm_sq <= self.theta * seen.noise and not unknown), memory
