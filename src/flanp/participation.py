"""Who takes part: FLANP's growth, everyone, k random clients, the k fastest."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, final

import numpy as np

from flanp.checks import BadInput, calling, is_whole, require, shown
from flanp.parts import Many, Part, Within
from flanp.streams import Stream, generator
from flanp.work import Work

Memory = dict[str, Any]
"""What a policy remembers from round to round: numbers, and lists of them, by name."""


@dataclass(frozen=True)
class Known:
    """What the server has observed when it chooses a round's participants."""

    ranking: np.ndarray
    """All clients that the stage knows, fastest first."""
    T: np.ndarray
    """Seconds per local step of each client; infinite where nothing is known."""
    exchange: np.ndarray
    """Seconds of an exchange with each client, beside its steps."""
    s: np.ndarray
    """Samples of each client."""
    work: Work
    round: int = 0
    """Rounds done."""
    losses: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    """For each client the round of its last report (-1: none), the mean of its samples' losses and
    the root of the mean of their squares; empty if the policy does not ask for them."""
    seed: int = 0

    @cached_property
    def seconds(self) -> np.ndarray:
        """What a round takes each client; infinite where nothing is known."""
        return self.work.base(self.s) * self.T + self.exchange

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random numbers of this round's choice."""
        return generator(self.seed, Stream.PARTICIPATION, self.round)


class Participation(Part):
    """A policy: how many clients take part in each stage, and which ones in each round."""

    sees_losses: ClassVar[bool] = False
    """Whether participants report their losses."""

    def check(self, N: int) -> None:
        """Refuse a policy that asks for more clients than there are."""
        require(N >= 1, "clients", N, "1 or more")

    def sizes(self, N: int) -> list[int]:
        """Return `stages(N)`, after a look at whether a run can use them."""
        with calling(f"{type(self).__name__}.stages", "it must return a list of whole numbers"):
            sizes = list(dict.fromkeys(self.stages(N)))
        if N < 1:  # on real machines, for a moment
            return [0]
        ok = sizes and all(is_whole(n) and 1 <= n <= N for n in sizes)
        require(
            bool(ok) and all(a < b for a, b in zip(sizes, sizes[1:], strict=False)),
            f"{type(self).__name__}.stages({N})",
            sizes,
            f"at least one stage, each with more clients than the one before, 1 to {N}",
        )
        return sizes

    def participants(self, n: int, known: Known, memory: Memory) -> tuple[np.ndarray, Memory]:
        """Return `choose(n, known, memory)`, after a look at whether a run can use it."""
        name, ranking = type(self).__name__, known.ranking
        if not ranking.size:  # on real machines there may be nobody for a moment
            return ranking, memory
        with calling(f"{name}.select", "it must return clients of the ranking"):
            chosen, memory = self.choose(n, known, memory)
            active = np.asarray(chosen)
        if not isinstance(memory, dict):
            raise BadInput(f"{name}.choose returned {shown(memory)}: its memory must be a dict")
        is_slice = active.base is ranking and active.strides == ranking.strides and active.size > 0
        if is_slice:
            return active, memory
        require(
            _are_among(active, ranking),
            f"{type(self).__name__}.select(n = {n})",
            active.tolist(),
            "one or more different clients of the ranking",
        )
        return active, memory

    def drawn_from(self, n: int, ranking: np.ndarray) -> np.ndarray:
        """Return `pool(n, ranking)`, after a look at whether a run can use it."""
        name = f"{type(self).__name__}.pool"
        with calling(name, "it must return clients of the ranking"):
            pool = np.asarray(self.pool(n, ranking))
        if not ranking.size:
            return pool
        ok = _are_among(pool, ranking) and len(pool) >= n
        require(ok, f"{name}(n = {n})", pool.tolist(), f"{n} or more different clients of it")
        return pool

    def pool(self, n: int, ranking: np.ndarray) -> np.ndarray:
        """Return the clients that the rounds of a stage draw their n participants from."""
        return ranking[:n]

    @abstractmethod
    def stages(self, N: int) -> list[int]:
        """Return the number n of participants of each stage, the last stage last.

        Where clients have gone since `check`, as many as are left.
        """

    @abstractmethod
    def select(self, n: int, known: Known) -> np.ndarray:
        """Return the n participants of a round; `known.ranking` holds all clients, fastest first.

        `known.rng` draws random numbers, the same ones whenever the run is repeated.
        """

    def choose(self, n: int, known: Known, memory: Memory) -> tuple[np.ndarray, Memory]:
        """Return the participants and what to remember: for policies that remember something."""
        return self.select(n, known), memory


@final
@dataclass(frozen=True)
class Growing(Participation):
    """The n fastest clients; n = n0, then n <- min(growth n, N) from stage to stage.

    >>> Growing(n0=1, growth=2).stages(37)
    [1, 2, 4, 8, 16, 32, 37]
    >>> Growing(n0=1, growth=1.5).stages(7)
    [1, 2, 3, 4, 6, 7]
    """

    n0: Many = 1
    """How many clients take part in the first stage."""
    growth: Annotated[float, Within(1, 1e6, above=True)] = 2.0
    """The paper's alpha. A growth that would add less than one client adds one."""

    def check(self, N: int) -> None:
        """Refuse an n0 above N."""
        require(self.n0 <= N, "n0", self.n0, f"at most the number of clients, {N}")

    def stages(self, N: int) -> list[int]:
        """Return n0, growth n0, growth^2 n0, ..., N."""
        n = min(self.n0, N)
        stages = [n]
        while n < N:
            # A hair more than growth n, for 1.15 * 100 is just under 115.
            n = min(max(n + 1, int(self.growth * n + 1e-9)), N)
            stages.append(n)
        return stages

    def select(self, n: int, known: Known) -> np.ndarray:
        """Return the n fastest."""
        return known.ranking[:n]


@final
@dataclass(frozen=True)
class Everyone(Participation):
    """All N clients in one stage: the bare solver."""

    def stages(self, N: int) -> list[int]:
        """Return [N]."""
        return [N]

    def select(self, n: int, known: Known) -> np.ndarray:
        """Return all clients."""
        return known.ranking[:n]


@final
@dataclass(frozen=True)
class RandomK(Participation):
    """k clients, drawn anew in each round, uniformly and without replacement.

    With `over` above 1, that many times k are asked: together with `patience.First(k)` this is
    over-selection (Bonawitz et al., Towards Federated Learning at Scale, MLSys 2019, with 1.3).

    >>> RandomK(10, over=1.3).stages(100)
    [13]
    """

    k: Many
    over: Annotated[float, Within(1, 100)] = 1.0

    def check(self, N: int) -> None:
        """Refuse a k above N."""
        require(self.k <= N, "k", self.k, f"at most the number of clients, {N}")

    def stages(self, N: int) -> list[int]:
        """Return [over k]."""
        return [min(math.ceil(self.over * self.k - 1e-9), N)]

    def pool(self, n: int, ranking: np.ndarray) -> np.ndarray:
        """Return everyone."""
        return ranking

    def select(self, n: int, known: Known) -> np.ndarray:
        """Return n random clients, fastest first."""
        return known.ranking[np.sort(known.rng.choice(len(known.ranking), n, replace=False))]


@final
@dataclass(frozen=True)
class FastestK(Participation):
    """The k fastest clients in all rounds; the others' data is never used."""

    k: Many

    def check(self, N: int) -> None:
        """Refuse a k above N."""
        require(self.k <= N, "k", self.k, f"at most the number of clients, {N}")

    def stages(self, N: int) -> list[int]:
        """Return [k]."""
        return [min(self.k, N)]

    def select(self, n: int, known: Known) -> np.ndarray:
        """Return the n fastest."""
        return known.ranking[:n]


@final
@dataclass(frozen=True)
class Nimble(Participation):
    """The fastest clients, as many as pay: for solvers that remember the others.

    With k participants a round lasts as long as the k-th fastest takes, and brings less where k is
    small: their mean is noisier, and stands less well for those who are absent. The k is taken
    that makes

        (seconds of a round with the k fastest) * (1 + worth / k)

    least, from roots sqrt(N) on: where all are alike, everyone. Who is fast is seen anew in each
    round. On the digits with batches of ten the times to a loss of 0.1 follow this with worth = 6
    to 3%, for k from 3 to 12 and exponential or uniform speeds.

    >>> Nimble().stages(100)
    [5]
    """

    roots: Annotated[float, Within(1e-3, 1e3)] = 0.5
    worth: Annotated[float, Within(0, 1e6)] = 3.0

    def stages(self, N: int) -> list[int]:
        """Return the least k."""
        return [min(max(2, round(self.roots * math.sqrt(N))), N)]

    def pool(self, n: int, ranking: np.ndarray) -> np.ndarray:
        """Return everyone."""
        return ranking

    def select(self, n: int, known: Known) -> np.ndarray:
        """Return the k fastest in rounds as long as those of the n fastest."""
        ranking, T, exchange = known.ranking, known.T, known.exchange
        first = ranking[np.argsort(known.seconds[ranking], kind="stable")[:n]]
        base = known.work.base(known.s)
        times = known.work.local_steps(T[first], known.s[first], exchange[first]) / base[first]
        seconds = (np.median(times) * base * T + exchange)[ranking]
        order = np.argsort(seconds, kind="stable")
        k = np.arange(n, len(order) + 1)
        return ranking[order[: self.best(k, seconds[order][n - 1 :])]]

    def best(self, k: np.ndarray, seconds: np.ndarray) -> int:
        """Return the k that pays most, from the seconds of a round with each."""
        return int(k[np.argmin(seconds * (1 + self.worth / k))])


def _are_among(active: np.ndarray, ranking: np.ndarray) -> bool:
    """Whether some clients are different ones of the ranking, in linear time."""
    if active.ndim != 1 or not active.size or active.dtype.kind not in "iu":
        return False
    there = np.zeros(ranking.max() + 1, bool)
    there[ranking] = True
    known = active.min() >= 0 and active.max() < len(there) and there[active].all()
    return bool(known) and len(np.unique(active)) == len(active)
