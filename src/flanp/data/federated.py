"""The clients' data in the form that the engines use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flanp.checks import BadInput, require
from flanp.data.splits import Split
from flanp.streams import Stream, generator

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class FederatedData:
    """The samples of N clients, padded to the same number S of rows each.

    The clients are kept in the order of their ids, so that the order in which they were given
    does not matter.
    """

    batch: Arrays
    """Arrays of shape (N, S, ...), for instance the inputs x and the targets y."""
    weights: np.ndarray
    """Shape (N, S): how many samples a row stands for; 0 is padding."""
    ids: tuple[str, ...]
    """The clients' names."""
    test: Arrays | None = None
    """Held-out arrays of shape (M, ...)."""
    classes: int | None = None
    """How many classes the targets have, if they are labels."""

    @property
    def N(self) -> int:
        """How many clients there are."""
        return len(self.ids)

    @property
    def s(self) -> np.ndarray:
        """How many samples each client holds."""
        return self.weights.sum(axis=1, dtype=np.float64)

    def samples(self) -> Arrays:
        """Return all clients' rows in one list, without the padding."""
        return tuple(a[self.weights > 0] for a in self.batch)


def from_clients(
    clients: Sequence[Any],
    ids: Sequence[Any] | None = None,
    test: Sequence[Any] | None = None,
    classes: int | None = None,
) -> FederatedData:
    """Build federated data from each client's own arrays.

    Args:
        clients: for each client a tuple of arrays with equally many rows, such as (x_i, y_i).
        ids: the clients' names; 0, 1, 2, ... if left out.
        test: a tuple of held-out arrays.
        classes: the number of classes, if the targets are labels.

    >>> data = from_clients([(np.ones((3, 2)), np.ones(3)), (np.ones((1, 2)), np.ones(1))])
    >>> data.N, data.s.tolist(), data.batch[0].shape
    (2, [3.0, 1.0], (2, 3, 2))
    """
    if not clients:
        raise BadInput("there are no clients: give at least one")
    names = [str(i) for i in (range(len(clients)) if ids is None else ids)]
    if len(set(names)) != len(clients):
        raise BadInput(f"{len(clients)} clients need as many different ids, got {names[:5]} ...")
    parts = [tuple(np.asarray(a) for a in client) for client in clients]
    for name, part in zip(names, parts, strict=True):
        rows = {len(a) for a in part}
        if rows == {0}:
            raise BadInput(f"client {name!r} has no samples: leave it out")
        if len(rows) != 1:
            raise BadInput(f"client {name!r}: its arrays differ in rows: {sorted(rows)}")
        if [a.shape[1:] for a in part] != [a.shape[1:] for a in parts[0]]:
            raise BadInput(f"client {name!r}: its rows differ in shape from client {names[0]!r}'s")
        for a in part:
            if not np.isfinite(a).all():
                raise BadInput(f"client {name!r}: its data holds NaN or Inf; clean it first")
    for a in test or ():
        if not np.isfinite(a).all():
            raise BadInput("the held-out data holds NaN or Inf; clean it first")
    if classes is not None:
        for name, part in zip(names, parts, strict=True):
            if part[-1].min() < 0 or part[-1].max() >= classes:
                raise BadInput(f"client {name!r}: its labels must be 0 to {classes - 1}")
    order = sorted(range(len(clients)), key=lambda i: _by_number(names[i]))
    sizes = np.array([len(parts[i][0]) for i in order])
    S = sizes.max()
    batch = tuple(np.stack([pad_rows(parts[i][j], S) for i in order]) for j in range(len(parts[0])))
    return FederatedData(
        batch=batch,
        weights=(np.arange(S) < sizes[:, None]).astype(np.float32),
        ids=tuple(names[i] for i in order),
        test=None if test is None else tuple(np.asarray(a) for a in test),
        classes=classes,
    )


def from_arrays(
    x: Any,
    y: Any,
    split: Split,
    clients: int,
    samples: int | None = None,
    test: Sequence[Any] | None = None,
    classes: int | None = None,
    seed: int = 0,
) -> FederatedData:
    """Deal the rows of (x, y) out to clients.

    Args:
        x: inputs, one row a sample.
        y: targets, one row a sample.
        split: how to deal them out.
        clients: N.
        samples: s, the samples per client that are used (of N s drawn at random); all if left out.
        test: a tuple of held-out arrays.
        classes: the number of classes, if the targets are labels.
        seed: of the split.

    >>> from flanp.data import IID
    >>> from_arrays(np.ones((10, 2)), np.ones(10), IID(), clients=3).s.tolist()
    [4.0, 3.0, 3.0]
    """
    x, y = np.asarray(x), np.asarray(y)
    require(clients >= 1, "clients", clients, "1 or more")
    rng = generator(seed, Stream.SPLIT)
    rows = np.arange(len(x))
    if samples is not None:
        require(samples >= 1, "samples", samples, "1 or more")
        if clients * samples > len(x):
            raise BadInput(
                f"{clients} clients x {samples} samples are more than the {len(x)} samples there "
                "are: lower one of the two"
            )
        rows = rng.permutation(len(x))[: clients * samples]
    if clients > len(rows):
        raise BadInput(
            f"{clients} clients are more than the {len(rows)} samples: use fewer clients"
        )
    parts = split.deal(y[rows], clients, rng)
    return from_clients([(x[rows[p]], y[rows[p]]) for p in parts], test=test, classes=classes)


def pad_rows(a: np.ndarray, rows: int) -> np.ndarray:
    """Repeat the last row: padding has weight 0, but a loss may not be defined at 0."""
    return np.concatenate([a, np.repeat(a[-1:], rows - len(a), axis=0)]) if len(a) < rows else a


def _by_number(name: str) -> tuple[int, int, str]:
    """Sort 2 before 10, and numbers before words."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)
