"""Where data comes from: each source loads federated data for a seed."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np
from sklearn.datasets import load_digits

from flanp.checks import BadInput, nearest, require
from flanp.data.federated import FederatedData, from_arrays, from_clients
from flanp.data.images import load_cifar10, load_mnist
from flanp.data.splits import IID, Split
from flanp.files import read_csv
from flanp.streams import Stream, generator


class Source(ABC):
    """Loads the clients' data."""

    @abstractmethod
    def load(self, seed: int = 0) -> FederatedData:
        """Return the data; the seed decides the draw of samples and the split."""


@final
@dataclass(frozen=True)
class Synthetic(Source):
    """Linear data: y = x.w + noise, x normal with eigenvalues from 1/condition to 1.

    >>> Synthetic(clients=3, samples=5, dim=2).load(seed=0).batch[0].shape
    (3, 5, 2)
    """

    clients: int = 100
    samples: int = 100
    """s, the samples of each client."""
    dim: int = 20
    """d."""
    condition: float = 20.0
    """Condition number of the inputs' covariance, kappa."""
    noise: float = 1.0
    """Standard deviation of the noise."""

    def __post_init__(self) -> None:
        require(self.clients >= 1, "clients", self.clients, "1 or more")
        require(self.samples >= 1, "samples", self.samples, "1 or more")
        require(self.dim >= 1, "dim", self.dim, "1 or more")
        require(1 <= self.condition < np.inf, "condition", self.condition, "1 or more")
        require(0 <= self.noise < np.inf, "noise", self.noise, "zero or a positive number")

    def load(self, seed: int = 0) -> FederatedData:
        """Draw the samples."""
        rng = generator(seed, Stream.SYNTHETIC)
        scale = np.sqrt(np.geomspace(1 / self.condition, 1, self.dim))
        w = rng.standard_normal(self.dim)
        x = scale * rng.standard_normal((self.clients, self.samples, self.dim))
        y = x @ w + self.noise * rng.standard_normal((self.clients, self.samples))
        return from_clients(list(zip(x, y, strict=True)))


@final
@dataclass(frozen=True)
class Digits(Source):
    """scikit-learn's bundled 8x8 digits: 1,797 real images that need no download.

    >>> data = Digits(clients=10).load(seed=0)
    >>> data.N, data.classes, int(data.s.sum()), len(data.test[0])
    (10, 10, 1438, 359)
    """

    clients: int = 20
    samples: int | None = None
    split: Split = field(default_factory=IID)

    def load(self, seed: int = 0) -> FederatedData:
        """Hold out a fifth for testing, and deal out the rest."""
        x, y = load_digits(return_X_y=True)
        x, y = (x / 8 - 1).astype(np.float32), y.astype(np.int32)
        order = generator(seed, Stream.DIGITS).permutation(len(x))
        train, test = np.split(order, [round(0.8 * len(x))])
        return from_arrays(
            x[train],
            y[train],
            self.split,
            self.clients,
            self.samples,
            test=(x[test], y[test]),
            classes=10,
            seed=seed,
        )


@final
@dataclass(frozen=True)
class MNIST(Source):
    """MNIST, 60,000 training and 10,000 test images of 28x28, scaled to [-1, 1]."""

    clients: int = 20
    samples: int | None = None
    split: Split = field(default_factory=IID)
    folder: Path | None = None
    """A folder with the four files; without it they are downloaded once into the cache."""

    def load(self, seed: int = 0) -> FederatedData:
        """Read the images and deal them out."""
        (x, y), test = load_mnist(self.folder)
        return from_arrays(
            x, y, self.split, self.clients, self.samples, test=test, classes=10, seed=seed
        )


@final
@dataclass(frozen=True)
class CIFAR10(Source):
    """CIFAR-10, 50,000 training and 10,000 test images of 32x32x3, scaled to [-1, 1]."""

    clients: int = 20
    samples: int | None = None
    split: Split = field(default_factory=IID)
    folder: Path | None = None
    """A folder with the archive; without it the archive is downloaded once into the cache."""

    def load(self, seed: int = 0) -> FederatedData:
        """Read the images and deal them out."""
        (x, y), test = load_cifar10(self.folder)
        return from_arrays(
            x, y, self.split, self.clients, self.samples, test=test, classes=10, seed=seed
        )


@final
@dataclass(frozen=True)
class CSV(Source):
    """Your own table: a CSV file with a header, numeric columns, one row a sample.

    One column is the target; one may name the client that holds the row, else the rows are
    dealt out. Labels must be whole numbers from 0.
    """

    path: Path
    target: str
    """Name of the target's column."""
    client: str | None = None
    """Name of the column with the client's id."""
    clients: int | None = None
    """How many clients to deal the rows out to, where no column says."""
    labels: bool = False
    """Whether the target is a class label rather than a number."""
    split: Split = field(default_factory=IID)
    test_fraction: float = 0.0
    """Share of the rows that is held out."""

    def __post_init__(self) -> None:
        require(
            (self.client is None) != (self.clients is None),
            "(client, clients)",
            (self.client, self.clients),
            "either the name of the client column or the number of clients",
        )
        require(0 <= self.test_fraction < 1, "test_fraction", self.test_fraction, "in [0, 1)")

    def load(self, seed: int = 0) -> FederatedData:
        """Read the file."""
        columns = _read_table(self.path)
        for name in filter(None, (self.target, self.client)):
            if name not in columns:
                raise BadInput(f"{self.path}: no column {name!r}{nearest(name, columns)}")
        owners = columns.pop(self.client) if self.client else None
        numbers = {name: _numeric(self.path, name, column) for name, column in columns.items()}
        y = numbers.pop(self.target)
        if not numbers:
            raise BadInput(f"{self.path}: no column is left for the inputs")
        x = np.stack(list(numbers.values()), axis=1).astype(np.float64)
        classes = None
        if self.labels:
            if not np.array_equal(y, np.rint(y)) or y.min() < 0:
                raise BadInput(f"{self.path}: labels in {self.target!r} must be 0, 1, 2, ...")
            y, classes = y.astype(np.int32), int(y.max()) + 1
        rng = generator(seed, Stream.CSV)
        if owners is None:
            owners = np.zeros(len(x), int)
        held_out = np.concatenate([self._hold_out(owners, i, rng) for i in np.unique(owners)])
        kept = np.setdiff1d(np.arange(len(x)), held_out)
        test = (x[held_out], y[held_out]) if len(held_out) else None
        if self.clients is not None:
            return from_arrays(
                x[kept], y[kept], self.split, self.clients, test=test, classes=classes, seed=seed
            )
        ids = np.unique(owners).tolist()
        rows = [kept[owners[kept] == i] for i in ids]
        return from_clients([(x[r], y[r]) for r in rows], ids, test, classes)

    def _hold_out(self, owners: np.ndarray, owner: object, rng: np.random.Generator) -> np.ndarray:
        """Return the rows of an owner to hold out, leaving it at least one."""
        rows = rng.permutation(np.flatnonzero(owners == owner))
        return rows[: min(round(self.test_fraction * len(rows)), len(rows) - 1)]


def _read_table(path: Path) -> dict[str, np.ndarray]:
    path = Path(path)
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file")
    lines = list(read_csv(path))
    if len(lines) < 2:
        raise BadInput(f"{path}: it must hold a header and at least one row")
    (_, header), *rows = lines
    for line, cells in rows:
        if len(cells) != len(header):
            raise BadInput(f"{path}, line {line}: {len(cells)} cells; the header has {len(header)}")
    columns = zip(*(cells for _, cells in rows), strict=True)
    return {name: np.array(column) for name, column in zip(header, columns, strict=True)}


def _numeric(path: Path, name: str, column: np.ndarray) -> np.ndarray:
    for row, text in enumerate(column.tolist(), start=1):
        try:
            float(text)
        except ValueError:
            raise BadInput(
                f"{path}: column {name!r} is not numeric: {text!r} in data row {row}"
            ) from None
    return column.astype(float)
