"""How samples are dealt out to clients."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, final

import numpy as np

from flanp.checks import BadInput, calling, shown
from flanp.parts import Part, Within


class Split(Part):
    """Deals samples out to clients."""

    def hands(self, y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return `deal(y, clients, rng)`, after a look at whether it deals rows out, and once."""
        name = f"{type(self).__name__}.deal"
        expected = f"it must return {clients} lists of row numbers, no row twice"
        with calling(name, expected):
            hands = [np.asarray(hand) for hand in self.deal(y, clients, rng)]
            rows = np.concatenate(hands)
        whole = rows.dtype.kind in "iu" and rows.ndim == 1
        if not whole or len(hands) != clients or len(np.unique(rows)) != len(rows):
            raise BadInput(f"{name} returned {shown(hands)}: {expected}")
        if len(rows) and (rows.min() < 0 or rows.max() >= len(y)):
            raise BadInput(f"{name} returned a row that is not there: {expected}")
        return hands

    @abstractmethod
    def deal(self, y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the row numbers of each client; y holds the samples' targets."""


@final
@dataclass(frozen=True)
class IID(Split):
    """A random deal of equally many samples each (to within one): the paper's.

    >>> [len(rows) for rows in IID().deal(np.zeros(7), 3, np.random.default_rng(0))]
    [3, 2, 2]
    """

    def deal(self, y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the row numbers of each client."""
        return np.array_split(rng.permutation(len(y)), clients)


@final
@dataclass(frozen=True)
class Dirichlet(Split):
    """Each label's samples are dealt out in proportions drawn from Dirichlet(alpha).

    A small alpha gives clients with few labels and unequal sample counts. A client that
    would get nothing gets one sample of the client with the most.
    """

    alpha: Annotated[float, Within(1e-3, 1e6)] = 0.5

    def deal(self, y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the row numbers of each client."""
        rows, owners = [], []
        for label in _labels(y):
            mine = rng.permutation(np.flatnonzero(y == label))
            cuts = np.cumsum(rng.dirichlet(np.full(clients, self.alpha)))[:-1]
            ends = (cuts * len(mine)).astype(int)
            rows.append(mine)
            owners.append(np.searchsorted(ends, np.arange(len(mine)), side="right"))
        row, owner = np.concatenate(rows), np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner, minlength=clients))[:-1]
        hands = [part.tolist() for part in np.split(row[order], ends)]
        for hand in hands:
            if not hand:
                hand.append(max(hands, key=len).pop())
        return [np.array(hand) for hand in hands]


@final
@dataclass(frozen=True)
class ByLabel(Split):
    """Each client holds about `labels` labels: the samples sorted by label, cut in shards, dealt.

    Reference: McMahan et al., AISTATS 2017, section 3 ("pathological" split).
    """

    labels: Annotated[int, Within(1, 1_000_000)] = 2

    def deal(self, y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the row numbers of each client."""
        _labels(y)
        shards = clients * self.labels
        if shards > len(y):
            raise BadInput(
                f"(clients, labels) = {(clients, self.labels)}: their product, the number of "
                f"shards, is more than the {len(y)} samples: lower one of the two"
            )
        order = rng.permutation(len(y))
        pieces = np.array_split(order[np.argsort(y[order], kind="stable")], shards)
        dealt = rng.permutation(shards).reshape(clients, self.labels)
        return [np.concatenate([pieces[j] for j in hand]) for hand in dealt]


@final
@dataclass(frozen=True)
class Unequal(Split):
    """A random deal of unequally many samples: in proportion to exp(sigma times a normal number).

    Each client gets one sample or more.
    """

    sigma: Annotated[float, Within(0, 5)] = 1.0

    def deal(self, y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the row numbers of each client."""
        parts = np.exp(self.sigma * rng.standard_normal(clients))
        spare = len(y) - clients
        ends = np.arange(1, clients) + np.rint(spare * np.cumsum(parts / parts.sum())[:-1])
        return np.split(rng.permutation(len(y)), ends.astype(int))


@final
@dataclass(frozen=True)
class Apart(Split):
    """The last clients hold the last labels, which nobody else has.

    With speeds that are `in_order` these are the slow ones: who trains on the fast alone never
    sees those labels.
    """

    share: Annotated[float, Within(0.01, 0.99)] = 0.3
    """Of the clients that are apart."""
    labels: Annotated[int, Within(1, 1_000_000)] = 3
    """How many labels they have for themselves."""

    def deal(self, y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the row numbers of each client."""
        known = _labels(y)
        if self.labels >= len(known) or clients < 2:
            raise BadInput(
                f"(labels, clients) = {(self.labels, clients)}: there must be fewer than the "
                f"{len(known)} labels of the data, and two clients or more"
            )
        apart = min(max(1, round(self.share * clients)), clients - 1)
        theirs = np.isin(y, known[-self.labels :])
        hands = []
        for rows, number in ((~theirs, clients - apart), (theirs, apart)):
            hands += np.array_split(rng.permutation(np.flatnonzero(rows)), number)
        return hands


def _labels(y: np.ndarray) -> np.ndarray:
    if not np.issubdtype(y.dtype, np.integer) or y.ndim != 1:
        raise BadInput("this split needs whole-number labels as targets; use the IID split")
    return np.unique(y)
