"""When the n active clients are done: the stage rules."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, final

import numpy as np

from flanp.checks import BadInput, calling, require, shown
from flanp.measurement import Look, Measurement
from flanp.parts import Count, Part, Positive, Within
from flanp.stage import Stage

if TYPE_CHECKING:
    from flanp.data.federated import FederatedData
    from flanp.problems import Problem

Memory = dict[str, Any]
"""What a rule remembers from round to round and stage to stage: numbers by name."""


class StageRule(Part):
    """Decides, before each round, whether the stage is over."""

    def sight(self, stage: Stage, rounds: int) -> Look:
        """Return `looks_at(stage, rounds)`, after a look at whether a run can use it."""
        name, allowed = f"{type(self).__name__}.looks_at", "a flanp.stopping.Look"
        with calling(name, f"it must return {allowed}"):
            look = self.looks_at(stage, rounds)
        require(isinstance(look, Look), name, look, allowed)
        return look

    def judged(
        self, memory: Memory, stage: Stage, rounds: int, seen: Measurement | None
    ) -> tuple[bool, Memory]:
        """Return `met(...)`, after a look at whether a run can use it."""
        name = f"{type(self).__name__}.met"
        expected = "it must return (whether the stage ends, what to remember)"
        with calling(name, expected):
            accurate, memory = self.met(memory, stage, rounds, seen)
        if not isinstance(accurate, bool | np.bool_) or not isinstance(memory, dict):
            raise BadInput(f"{name} returned {shown((accurate, memory))}: {expected}")
        memory = {k: v.item() if isinstance(v, np.generic) else v for k, v in memory.items()}
        for key, value in memory.items():
            require(isinstance(key, str), f"{name}: a key of its memory", key, "a text")
            plain = isinstance(value, bool | int | float | str | None)
            require(plain, f"{name}: memory[{key!r}]", value, "a number, a text or nothing")
        return bool(accurate), memory

    @abstractmethod
    def looks_at(self, stage: Stage, rounds: int) -> Look:
        """Return what `met` must be shown after so many rounds of a stage."""

    @abstractmethod
    def met(
        self, memory: Memory, stage: Stage, rounds: int, seen: Measurement | None
    ) -> tuple[bool, Memory]:
        """Return whether the stage ends after `rounds` rounds of it, and what to remember."""

    def complete(self, problem: "Problem", data: "FederatedData") -> "StageRule":
        """Return the rule with what it needs of a problem's constants."""
        del problem, data
        return self


@final
@dataclass(frozen=True)
class StatisticalAccuracy(StageRule):
    """The paper's test, ||grad L_n(w)||^2 <= 2 mu V_ns with V_ns = c/(n s): mu and c are known."""

    mu: Positive | None = None
    """Strong convexity of the loss; the problem's own if left out."""
    c: Positive | None = None
    """The constant of the statistical accuracy V_ns = c/(n s); the problem's own if left out."""

    def complete(self, problem: "Problem", data: "FederatedData") -> "StatisticalAccuracy":
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
class GradientNoise(StageRule):
    """The parameter-free rule: stop where the gradient is lost in its own sampling noise.

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


@final
@dataclass(frozen=True)
class FixedRounds(StageRule):
    """The same number of rounds in each stage."""

    rounds: Count

    def looks_at(self, stage: Stage, rounds: int) -> Look:
        """Look at nothing."""
        return Look.NOTHING

    def met(
        self,
        memory: Memory,
        stage: Stage,
        rounds: int,
        seen: Measurement | None,
    ) -> tuple[bool, Memory]:
        """Count."""
        return rounds >= self.rounds, memory


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


@final
@dataclass(frozen=True)
class Never(StageRule):
    """No stage ends by itself: for a single stage that runs to a target or a limit."""

    def looks_at(self, stage: Stage, rounds: int) -> Look:
        """Look at nothing."""
        return Look.NOTHING

    def met(
        self,
        memory: Memory,
        stage: Stage,
        rounds: int,
        seen: Measurement | None,
    ) -> tuple[bool, Memory]:
        """Go on."""
        return False, memory


@final
@dataclass(frozen=True)
class Endless(StageRule):
    """Another rule, but the last stage goes on: for runs to a common target.

    It ends when clients have come that did not take part yet.
    """

    rule: StageRule

    def looks_at(self, stage: Stage, rounds: int) -> Look:
        """Look at what the rule does, in the last stage at nothing."""
        return Look.NOTHING if stage.last else self.rule.sight(stage, rounds)

    def met(
        self, memory: Memory, stage: Stage, rounds: int, seen: Measurement | None
    ) -> tuple[bool, Memory]:
        """Ask the rule, in the last stage whether there are newcomers."""
        if stage.last:
            return stage.newcomers > 0, memory
        return self.rule.judged(memory, stage, rounds, seen)
