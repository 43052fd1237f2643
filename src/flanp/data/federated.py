"""The clients' data in the form that the engines use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flanp.checks import MOST_WHOLE, BadInput, require, shown
from flanp.data.splits import Split
from flanp.memory import require_room
from flanp.parts import Count, Many, check_is
from flanp.streams import Stream, generator

Arrays = tuple[np.ndarray, ...]

MOST = 1e100
"""The largest number in data: sums of its squares still fit into float64."""
COPIES = 3
"""How often a run holds the data at its peak: a million clients took 10.2 GB for 3.4 GB of it."""


@dataclass(frozen=True)
class FederatedData:
    """The samples of N clients, padded to the same number S of rows each.

    The clients are kept in the order of their ids, so that the order in which they were given
    does not matter. Make it with `from_clients` or `from_arrays`, which check what they are given.
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

    def __post_init__(self) -> None:
        N = len(self.ids)
        fits = isinstance(self.weights, np.ndarray) and self.weights.ndim == 2
        fits = fits and all(a.shape[:2] == self.weights.shape for a in self.batch)
        if not fits or self.weights.shape[0] != N or len(set(self.ids)) != N or not self.batch:
            raise BadInput(
                "FederatedData: its arrays do not fit together; see flanp.data.from_clients"
            )
        if isinstance(self.ids, str) or not (self.weights.sum(axis=1) > 0).all():
            raise BadInput("FederatedData: each client needs a name and samples")

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
    if isinstance(clients, dict):
        raise BadInput("clients is a dict: give list(clients.values()), and ids=list(clients)")
    check_is("clients", clients, list | tuple, ", with a tuple of arrays for each client")
    if not clients:
        raise BadInput("there are no clients: give at least one")
    ids = range(len(clients)) if ids is None else ids
    check_is("ids", ids, list | tuple | range | np.ndarray, ", with a name for each client")
    names = [str(i) for i in ids]
    if len(names) != len(clients) or len(set(names)) != len(clients):
        raise BadInput(f"{len(clients)} clients need as many different ids, got {shown(names)}")
    classes = check_is("classes", classes, Count | None)
    parts = [
        _checked(client, f"client {name!r}", classes)
        for name, client in zip(names, clients, strict=True)
    ]
    for name, part in zip(names, parts, strict=True):
        _compare(part, f"client {name!r}", parts[0], f"client {names[0]!r}")
    held_out = None
    if test is not None:
        held_out = _checked(test, "the held-out data", classes)
        _compare(held_out, "the held-out data", parts[0], f"client {names[0]!r}")
    order = sorted(range(len(clients)), key=lambda i: _by_number(names[i]))
    sizes = np.array([len(parts[i][0]) for i in order])
    S = int(sizes.max())
    row_bytes = sum(a.nbytes // len(a) for a in parts[0])
    require_room(
        COPIES * len(parts) * S * row_bytes,
        f"clients = {len(parts)}, padded to the {S} samples of the largest",
        len(parts) * S,
        "rows",
    )
    batch = tuple(np.stack([pad_rows(parts[i][j], S) for i in order]) for j in range(len(parts[0])))
    return FederatedData(
        batch=batch,
        weights=(np.arange(S) < sizes[:, None]).astype(np.float32),
        ids=tuple(names[i] for i in order),
        test=held_out,
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
    classes = check_is("classes", classes, Count | None)
    x, y = _checked((x, y), "the data", classes)
    check_is("split", split, Split)
    clients = check_is("clients", clients, Many)
    samples = check_is("samples", samples, Many | None)
    rng = generator(seed, Stream.SPLIT)
    rows = np.arange(len(x))
    if samples is not None:
        require(
            clients * samples <= len(x),
            "(clients, samples)",
            (clients, samples),
            f"at most {len(x)} in all, the samples there are: lower one of the two",
        )
        rows = rng.permutation(len(x))[: clients * samples]
    allowed = f"at most {len(rows)}, the number of samples: use fewer clients"
    require(clients <= len(rows), "clients", clients, allowed)
    parts = split.hands(y[rows], clients, rng)
    return from_clients([(x[rows[p]], y[rows[p]]) for p in parts], test=test, classes=classes)


def pad_rows(a: np.ndarray, rows: int) -> np.ndarray:
    """Repeat the last row: padding has weight 0, but a loss may not be defined at 0."""
    return np.concatenate([a, np.repeat(a[-1:], rows - len(a), axis=0)]) if len(a) < rows else a


def largest(a: np.ndarray) -> float:
    """Return the largest absolute value in an array."""
    return max(float(a.max()), -float(a.min())) if a.size else 0.0


def _checked(given: Any, owner: str, classes: int | None) -> Arrays:
    """Return what someone holds as arrays of numbers with equally many rows."""
    if not isinstance(given, list | tuple):
        raise BadInput(f"{owner} is {shown(type(given))}: give a tuple of arrays, such as (x, y)")
    arrays = tuple(_numbers(a, f"{owner}, array {j + 1}") for j, a in enumerate(given))
    rows = {len(a) for a in arrays}
    if rows in (set(), {0}):
        raise BadInput(f"{owner} has no samples: leave it out")
    if len(rows) != 1:
        raise BadInput(f"{owner}: its arrays differ in rows: {sorted(rows)}")
    return arrays if classes is None else (*arrays[:-1], _labels(arrays[-1], owner, classes))


def _numbers(given: Any, where: str) -> np.ndarray:
    if isinstance(given, np.ma.MaskedArray) and given.mask.any():
        raise BadInput(f"{where} has masked values: fill them in, or leave their rows out")
    try:
        a = np.asarray(given)
    except ValueError as error:
        raise BadInput(f"{where}: its rows differ in shape: {error}") from error
    if a.dtype.kind not in "fiub":
        kind = "text" if a.dtype.kind in "US" else f"values of type {a.dtype}"
        raise BadInput(f"{where} holds {kind}: give numbers, for labels 0, 1, 2, ...")
    if 0 in a.shape[1:]:
        raise BadInput(f"{where} has rows of shape {a.shape[1:]}, which hold nothing")
    if a.ndim == 0:
        raise BadInput(f"{where} is a single number: give one row for each sample")
    if a.dtype.kind == "f" and not np.isfinite(a).all():
        raise BadInput(f"{where} holds NaN or Inf; clean it first")
    if largest(a) > (MOST if a.dtype.kind == "f" else MOST_WHOLE):
        raise BadInput(f"{where} holds {largest(a):g}, too large to count with: scale it")
    return a


def _labels(y: np.ndarray, owner: str, classes: int) -> np.ndarray:
    whole = y.ndim == 1 and (y.dtype.kind in "iub" or np.array_equal(y, np.rint(y)))
    if not whole or y.min() < 0 or y.max() >= classes:
        raise BadInput(f"{owner}: its labels must be 0 to {classes - 1}, one for each row")
    return y.astype(np.int32)


def _compare(part: Arrays, owner: str, other: Arrays, whose: str) -> None:
    if [a.shape[1:] for a in part] != [a.shape[1:] for a in other]:
        raise BadInput(f"{owner}: its rows differ in shape from {whose}'s")


def _by_number(name: str) -> tuple[int, int, str]:
    """Sort 2 before 10, and numbers before words."""
    small = name.isascii() and name.isdecimal() and len(name) < 40
    return (0, int(name), name) if small else (1, 0, name)
