"""Why a run is over."""

from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """The kinds of ends."""

    ACCURACY = "accuracy reached"
    TARGET = "target reached"
    ROUNDS = "limit of rounds"
    TIME = "limit of time"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Ended(NamedTuple):
    """Why a run is over, and what there is to say of it.

    >>> print(Ended(Reason.ROUNDS, "limit of 3 rounds"))
    limit of 3 rounds
    """

    reason: Reason
    words: str = ""

    @property
    def failed(self) -> bool:
        """Whether something went wrong."""
        return self.reason in (Reason.DIVERGED, Reason.INTERRUPTED, Reason.FAILED)

    def __str__(self) -> str:
        return self.words or str(self.reason)
