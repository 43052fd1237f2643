"""The stage rules of the paper and of its authors' script."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, final

from flanp.checks import BadInput
from flanp.measurement import Look, Measurement
from flanp.parts import Count, Positive, Within
from flanp.stage import Stage
from flanp.stopping.base import Memory, StageRule

if TYPE_CHECKING:
    from flanp.data.federated import FederatedData
    from flanp.problems import Objective


@final
@dataclass(frozen=True)
class StatisticalAccuracy(StageRule):
    """The paper's test, ||grad L_n(w)||^2 <= 2 mu V_ns with V_ns = c/(n s): mu and c are known."""

    mu: Positive | None = None
    """Strong convexity of the loss; the problem's own if left out."""
    c: Positive | None = None
    """The constant of the statistical accuracy V_ns = c/(n s); the problem's own if left out."""

    def complete(self, problem: "Objective", data: "FederatedData") -> "StatisticalAccuracy":
        """Return the rule with the constants of a problem in place of those left out."""
        if self.mu is not None and self.c is not None:
            return self
        constants = problem.constants(data)
        mu = self.mu or (constants and constants.mu)
        c = self.c or (constants and constants.c)
        if mu is None or c is None:
            raise BadInput(
                f"mu and c of {type(problem).__name__} are not known: give them to the rule "
                "StatisticalAccuracy, or use GradientNoise, which needs neither"
            )
        if c < 1e-12 or mu < 1e-12:
            raise BadInput(
                f"mu = {mu:g} and c = {c:g} of {type(problem).__name__} on this data: without "
                "noise or curvature there is no accuracy to stop at; use another stage rule"
            )
        return StatisticalAccuracy(mu, c)

    def looks_at(self, stage: Stage, rounds: int) -> Look:
        """Look at the active clients' gradient."""
        return Look.ACTIVE

    def met(
        self,
        memory: Memory,
        stage: Stage,
        rounds: int,
        seen: Measurement | None,
    ) -> tuple[bool, Memory]:
        """Test ||grad L_n||^2 <= 2 mu c/(n s)."""
        assert seen is not None
        assert self.mu is not None
        assert self.c is not None
        V_ns = self.c / seen.samples
        return seen.grad_norm_sq <= 2 * self.mu * V_ns, memory


@final
@dataclass(frozen=True)
class Halving(StageRule):
    """The paper's heuristic: a threshold on ||grad L_n||^2 that is halved from stage to stage.

    No constant is known. The first stage's threshold is given, or a fraction of the first
    gradient's squared norm. Halving is what V_ns = c/(n s) does when n doubles.
    """

    threshold: Annotated[float, Within(1e-30, 1e30)] | None = None
    """||grad L_n||^2 that ends the first stage."""
    fraction: Annotated[float, Within(1e-12, 0.999999)] = 0.01
    """Without a threshold: the fraction of ||grad L_n0(w_0)||^2 that ends the first stage."""

    def looks_at(self, stage: Stage, rounds: int) -> Look:
        """Look at the active clients' gradient."""
        return Look.ACTIVE

    def met(
        self,
        memory: Memory,
        stage: Stage,
        rounds: int,
        seen: Measurement | None,
    ) -> tuple[bool, Memory]:
        """Test ||grad L_n||^2 <= threshold / 2^k."""
        assert seen is not None
        first = memory.get("first") or self.threshold or self.fraction * seen.grad_norm_sq
        return seen.grad_norm_sq <= math.ldexp(first, -stage.k), {"first": first}


@final
@dataclass(frozen=True)
class Authors(StageRule):
    """The rule of the FLANP authors' script.

    The first stage takes 21 rounds. The gradient norm of the whole training set at its end is the
    threshold, which is halved at each transition; a later stage ends when that norm is under
    the threshold, or after 20 rounds.
    """

    first_rounds: Count = 21
    at_most: Count = 20

    def looks_at(self, stage: Stage, rounds: int) -> Look:
        """Look at the whole training set, in the first stage only at its end."""
        return Look.NOTHING if stage.k == 0 and rounds < self.first_rounds else Look.WHOLE

    def met(
        self, memory: Memory, stage: Stage, rounds: int, seen: Measurement | None
    ) -> tuple[bool, Memory]:
        """Count, or test ||grad L_N|| <= threshold / 2^k."""
        if seen is None:
            return False, memory
        norm = math.sqrt(seen.grad_norm_sq)
        if stage.k == 0:
            return True, {"first": norm}
        return rounds >= self.at_most or norm <= math.ldexp(memory["first"], -stage.k), memory
