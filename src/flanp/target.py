"""The level that a run is to reach: of its loss, its gradient or one of its metrics."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from flanp.checks import BadInput, nearest, shown
from flanp.parts import Within, check_is

if TYPE_CHECKING:
    from flanp.data.federated import FederatedData
    from flanp.problems import Objective

STATISTICAL_ACCURACY = "statistical accuracy"
LOWER = {"loss": False, "grad_norm_sq": False}
"""Columns that each history has, and whether higher values are better."""
Level = Annotated[float, Within(-1e300, 1e300)]


class Target(NamedTuple):
    """A level of a column of the history.

    >>> Target.of({"loss": 0.3}).met(0.2)
    True
    """

    column: str
    level: float
    higher_is_better: bool = False

    @classmethod
    def of(cls, given: Any, metrics: Mapping[str, bool | None] | None = None) -> "Target":
        """Return a target that was given as {"loss": 0.3}, or say what is wrong with it.

        Args:
            given: what was given.
            metrics: which metrics there are, and whether a higher one is better; None: any.
        """
        if not isinstance(given, dict) or len(given) != 1:
            raise BadInput(
                f"target = {shown(given)}: it must be one level, such as {{ loss = 0.3 }}"
            )
        ((column, level),) = given.items()
        directions = {**LOWER, **(metrics or {})}
        if metrics is not None and column not in directions:
            raise BadInput(f"target.{column}: there is no such column{nearest(column, directions)}")
        higher = directions.get(column, False)
        if higher is None:
            raise BadInput(
                f"target.{column}: say whether higher values of it are better or lower ones: "
                "set higher_is_better = True or False where the metric is defined"
            )
        return cls(str(column), check_is(f"target.{column}", level, Level), higher)

    def met(self, value: float) -> bool:
        """Whether a value is at the level or better; one that was not measured is not."""
        return bool(value >= self.level if self.higher_is_better else value <= self.level)

    def where(self, values: np.ndarray) -> np.ndarray:
        """Return for each value whether it is at the level or better."""
        return np.asarray(values >= self.level if self.higher_is_better else values <= self.level)

    @property
    def sign(self) -> str:
        """Which side of the level is better."""
        return ">=" if self.higher_is_better else "<="

    def given(self) -> dict[str, float]:
        """Return it as it is given."""
        return {self.column: self.level}


def resolve_target(
    target: dict[str, float] | str | None, problem: "Objective", data: "FederatedData"
) -> dict[str, float] | None:
    """Return a target as a level, where it was given as "statistical accuracy"."""
    if not isinstance(target, str):
        return target
    if target != STATISTICAL_ACCURACY:
        raise BadInput(f"target = {target!r}: it must be {STATISTICAL_ACCURACY!r} or a level")
    constants = problem.constants(data)
    if constants is None or constants.c is None:
        raise BadInput(
            f"the statistical accuracy of {type(problem).__name__} is not known: give a level, "
            "such as loss = 0.3, as the target"
        )
    return {"grad_norm_sq": float(2 * constants.mu * constants.c / data.s.sum())}
