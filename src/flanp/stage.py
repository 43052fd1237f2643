"""A stage of Algorithm 1."""

from typing import NamedTuple


class Stage(NamedTuple):
    """Where a run of Algorithm 1 is: stage k of K, with n of the N clients."""

    k: int
    """Number of the stage, from 0."""
    K: int
    """How many stages there are."""
    n: int
    """How many clients take part."""
    N: int
    """How many clients there are."""
    newcomers: int = 0
    """How many have come since the stage began."""

    @property
    def last(self) -> bool:
        """Whether no other stage follows, unless clients come."""
        return self.k == self.K - 1
