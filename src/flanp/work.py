"""How many local steps each participant does, and on what."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import numpy as np

from flanp.checks import BadInput, calling, require, shown
from flanp.parts import Count, Part, Within

NONE = np.zeros(0)
MOST_STEPS = 1_000_000
"""The most local steps that a client does in a round, which nothing can interrupt."""


@dataclass(frozen=True)
class Work(Part):
    """Local work: tau steps, each on a mini-batch or on all of the client's samples."""

    tau: Annotated[int, Within(1, 100_000)] | None = None
    """Local steps per round; give this or epochs."""
    epochs: Annotated[float, Within(0, 10_000, above=True)] | None = None
    """Passes over the client's samples per round, in place of tau."""
    batch: Count | None = None
    """Samples in a mini-batch; without it, each step uses the full local gradient."""

    chooses_tau: ClassVar[bool] = False
    """Whether it finds the number of steps by itself, and tuning is to leave it alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            (self.tau is None) != (self.epochs is None),
            "(tau, epochs)",
            (self.tau, self.epochs),
            "one of the two, and not both",
        )

    def base(self, s: np.ndarray) -> np.ndarray:
        """Return the steps that tau, or the epochs over s_i samples, come to for each client."""
        if self.tau is not None:
            return np.full(len(s), self.tau)
        assert self.epochs is not None
        per_epoch = 1 if self.batch is None else np.ceil(s / self.batch)
        return np.maximum(1, np.rint(self.epochs * per_epoch)).astype(int) * np.ones(len(s), int)

    def local_steps(self, T: np.ndarray, s: np.ndarray, exchange: np.ndarray) -> np.ndarray:
        """Return `steps(T, s, exchange)`, after a look at whether a run can use them."""
        with calling(f"{type(self).__name__}.steps", "it must return a number of steps for each"):
            tau = np.asarray(self.steps(T, s, exchange))
        whole = tau.shape == T.shape and tau.dtype.kind in "iu"
        if not whole or (tau.size and not (tau.min() >= 1 and tau.max() <= MOST_STEPS)):
            raise BadInput(
                f"{type(self).__name__}(tau = {self.tau}, epochs = {self.epochs}): local steps "
                f"{shown(tau.tolist())}: they must be whole numbers from 1 to {MOST_STEPS:,} for "
                "each participant; see tau, epochs, batch"
            )
        return tau

    @abstractmethod
    def steps(self, T: np.ndarray, s: np.ndarray, exchange: np.ndarray) -> np.ndarray:
        """Return tau_i for participants with T_i seconds per step and s_i samples.

        An exchange with each takes so many seconds beside its steps.
        """


@final
@dataclass(frozen=True)
class Equal(Work):
    """tau steps for everyone: the paper's.

    >>> Equal(tau=10).steps(T=np.array([1.0, 5.0]), s=np.array([100, 100]))
    array([10, 10])
    >>> Equal(epochs=2, batch=30).steps(T=np.array([1.0, 5.0]), s=np.array([100, 60]))
    array([8, 4])
    """

    def steps(self, T: np.ndarray, s: np.ndarray, exchange: np.ndarray = NONE) -> np.ndarray:
        """Return tau for each."""
        return self.base(s)


@final
@dataclass(frozen=True)
class SpeedMatched(Work):
    """As many times tau steps as fit while the slowest participant does its tau: nobody idles.

    tau_i = tau * floor(tau_slowest T_slowest / (tau T_i)), at most `limit` times tau: fast clients
    drift towards their own data, and the server's step, as long as the mean tau_i, diverges where
    eta tau limit is above some 10 (in units of the curvature).

    >>> SpeedMatched(tau=10).steps(T=np.array([1.0, 2.0, 5.0]), s=np.array([9, 9, 9]))
    array([30, 20, 10])
    """

    limit: Annotated[int, Within(1, 1000)] = 3
    """Largest multiple of tau that any client does."""

    def steps(self, T: np.ndarray, s: np.ndarray, exchange: np.ndarray = NONE) -> np.ndarray:
        """Return tau_i."""
        tau = self.base(s)
        # The factor 1 + 1e-9 keeps a quotient such as 0.3/0.1 from falling just below 3.
        fit = np.floor((tau * T).max() / (tau * T) * (1 + 1e-9)).astype(int)
        return tau * np.clip(fit, 1, self.limit)


@final
@dataclass(frozen=True)
class Partial(Work):
    """As many of tau steps as fit while some client does all of its own: the slow do a part.

    tau_i = tau_q T_q / T_i rounded down, at least 1 and at most tau, where q is the client at a
    quantile of the time that the work takes. With FedProx this is its answer to stragglers.

    Reference: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.

    >>> Partial(tau=10).steps(T=np.array([1.0, 2.0, 5.0]), s=np.array([9, 9, 9]))
    array([10, 10,  4])
    """

    quantile: Annotated[float, Within(0, 1)] = 0.5

    def steps(self, T: np.ndarray, s: np.ndarray, exchange: np.ndarray = NONE) -> np.ndarray:
        """Return tau_i."""
        tau = self.base(s)
        time = np.quantile(tau * T, self.quantile, method="lower")
        fit = np.floor(time / T * (1 + 1e-9))
        return np.clip(fit, 1, tau).astype(int)


@final
@dataclass(frozen=True)
class Balanced(Work):
    """More steps where exchanges cost more: tau times the odd number next to roots sqrt(E / T).

    E and T are the participants' median seconds of an exchange and of a step. A round that spends
    much more on exchanges than on steps had better do more of the latter, but each further step of
    a round is worth less. At step sizes near the longest, every step turns the error in the
    steepest direction round, so an even number of them does the work of fewer. Linear regression
    with memory, E / T = 0.7, 1.7 and 32: of 1, 2, 3, 5, 7 and 10 steps the best are 1, 3 and 5,
    and this choice is within 2% of them.

    >>> T, s = np.array([1.0, 2.0, 2.0]), np.full(3, 9.0)
    >>> Balanced(tau=1).steps(T, s, exchange=np.zeros(3))
    array([1, 1, 1])
    >>> Balanced(tau=1).steps(T, s, exchange=np.full(3, 50.0))
    array([5, 5, 5])
    """

    chooses_tau: ClassVar[bool] = True

    roots: Annotated[float, Within(1e-3, 1e3)] = 1.0
    most: Annotated[int, Within(1, 100_000)] = 51
    """Largest multiple of tau."""

    def steps(self, T: np.ndarray, s: np.ndarray, exchange: np.ndarray = NONE) -> np.ndarray:
        """Return the same multiple of tau for everyone."""
        E, T_median = (float(np.median(a)) if len(a) else 0.0 for a in (exchange, T))
        ratio = E / max(T_median, E / MOST_STEPS) if 0 < E < math.inf > T_median else 0.0
        times = min(1 + 2 * round(self.roots * math.sqrt(ratio) / 2), self.most)
        base = self.base(s)
        return base * max(1, min(times, MOST_STEPS // int(base.max(initial=1))))
