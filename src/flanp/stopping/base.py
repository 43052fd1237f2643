"""What a stage rule is: it says when the n active clients are done."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from flanp.checks import BadInput, calling, require, shown
from flanp.measurement import Look, Measurement
from flanp.parts import Part
from flanp.stage import Stage

if TYPE_CHECKING:
    from flanp.data.federated import FederatedData
    from flanp.problems import Objective

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

    def complete(self, problem: "Objective", data: "FederatedData") -> "StageRule":
        """Return the rule with what it needs of a problem's constants."""
        del problem, data
        return self
