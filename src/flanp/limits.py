"""How far a run goes."""

import math
from dataclasses import dataclass
from typing import Annotated

from flanp.parts import Count, Part, Within


@dataclass(frozen=True)
class Limits(Part):
    """How far a run goes, and how much of it is recorded."""

    max_rounds: Count = 1000
    """Limit on the rounds."""
    max_time: Annotated[float, Within(0, math.inf, above=True)] = math.inf
    """Limit on the time."""
    record_every: Count = 1
    """Record, and evaluate, every so many rounds."""
    record_after: Annotated[float, Within(0, 1e300)] = 0.0
    """Record no sooner than so many seconds after the last record."""
    record_growth: Annotated[float, Within(0, 1e6)] = 0.0
    """Record no sooner than when the time has grown by so large a share since the last record."""


LIMITS = Limits()
"""Those of a run for which nothing else is said."""
