"""Stage rules that look at nothing, and one that goes on."""

from dataclasses import dataclass
from typing import final

from flanp.measurement import Look, Measurement
from flanp.parts import Count
from flanp.stage import Stage
from flanp.stopping.base import Memory, StageRule


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
