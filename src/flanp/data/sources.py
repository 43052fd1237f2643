"""Where data comes from: each source loads federated data for a seed."""

from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, final

import numpy as np

from flanp.checks import BadInput, calling, require
from flanp.data.federated import COPIES, FederatedData, from_arrays, from_clients
from flanp.data.images import load_cifar10, load_mnist
from flanp.data.splits import IID, Split, Unequal
from flanp.data.tables import read_table
from flanp.memory import require_room
from flanp.parts import Many, Part, Within, check_is
from flanp.streams import Stream, generator

MOST_LABELS = 100_000
"""A label above this is hardly one."""


class Source(Part):
    """Loads the clients' data."""

    @abstractmethod
    def load(self, seed: int = 0) -> FederatedData:
        """Return the data; the seed decides the draw of samples and the split."""

    def loaded(self, seed: int) -> FederatedData:
        """Return `load(seed)`, after a look at whether a run can use it."""
        name = f"{type(self).__name__}.load"
        with calling(name, "it must take a seed and return a FederatedData"):
            data = self.load(seed)
        check_is(name, data, FederatedData)
        return data


@final
@dataclass(frozen=True)
class Synthetic(Source):
    """Linear data: y = x.w + noise, x normal with eigenvalues from 1/condition to 1.

    >>> Synthetic(clients=3, samples=5, dim=2).load(seed=0).batch[0].shape
    (3, 5, 2)
    """

    clients: Many = 100
    samples: Many = 100
    """s, the samples of each client."""
    dim: Many = 20
    """d."""
    condition: Annotated[float, Within(1, 1e12)] = 20.0
    """Condition number of the inputs' covariance, kappa."""
    noise: Annotated[float, Within(0, 1e9)] = 1.0
    """Standard deviation of the noise."""
    spread: Annotated[float, Within(0, 5)] = 0.0
    """Above 0, clients hold unequally many samples: in proportion to exp(spread * normal)."""
    shift: Annotated[float, Within(0, 1e3)] = 0.0
    """How much each client's own w differs from the common one, in each direction."""
    apart: Annotated[float, Within(0, 0.99)] = 0.0
    """Above 0, only this share of the clients, the last ones, differ, and all in the same way."""

    def load(self, seed: int = 0) -> FederatedData:
        """Draw the samples."""
        N, s, d = self.clients, self.samples, self.dim
        row_bytes = 8.0 * (d + 2)
        what = f"(clients, samples, dim) = {(N, s, d)}"
        require_room(COPIES * N * s * row_bytes, what, N * s, "samples in all")
        rng = generator(seed, Stream.SYNTHETIC)
        scale = np.sqrt(np.geomspace(1 / self.condition, 1, d))
        w = rng.standard_normal(d)
        x = rng.standard_normal((N, s, d))
        x *= scale
        y = x @ w + self.noise * rng.standard_normal((N, s))
        if self.shift:
            own = self.shift * self._shifts(rng)
            y += np.einsum("nsd,nd->ns", x, own)
        ids = tuple(str(i) for i in range(N))
        if not self.spread:
            return FederatedData((x, y), np.ones((N, s), np.float32), ids)
        if self.shift:
            raise BadInput("(spread, shift): samples are dealt anew where sizes differ; give one")
        hands = Unequal(self.spread).deal(np.zeros(N * s), N, rng)
        ends = np.cumsum([len(hand) for hand in hands])[:-1]
        flat = np.split(x.reshape(N * s, d), ends), np.split(y.reshape(N * s), ends)
        return from_clients([*zip(*flat, strict=True)], ids)

    def _shifts(self, rng: np.random.Generator) -> np.ndarray:
        """Return how each client's w differs."""
        N, d = self.clients, self.dim
        if not self.apart:
            return rng.standard_normal((N, d))
        theirs = np.arange(N) >= N - max(1, round(self.apart * N))
        return np.where(theirs[:, None], rng.standard_normal(d), 0.0)


@final
@dataclass(frozen=True)
class Digits(Source):
    """scikit-learn's bundled 8x8 digits: 1,797 real images that need no download.

    >>> data = Digits(clients=10).load(seed=0)
    >>> data.N, data.classes, int(data.s.sum()), len(data.test[0])
    (10, 10, 1438, 359)
    """

    clients: Many = 20
    samples: Many | None = None
    split: Split = field(default_factory=IID)

    def load(self, seed: int = 0) -> FederatedData:
        """Hold out a fifth for testing, and deal out the rest."""
        from sklearn.datasets import load_digits  # most runs do not need scikit-learn

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

    clients: Many = 20
    samples: Many | None = None
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

    clients: Many = 20
    samples: Many | None = None
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
    dealt out. All other columns are inputs, but a column that only counts the rows is refused: say
    with `ignore` or `inputs` what it is. Labels must be whole numbers from 0.
    """

    path: Path
    target: str
    """Name of the target's column."""
    client: str | None = None
    """Name of the column with the client's id."""
    clients: Many | None = None
    """How many clients to deal the rows out to, where no column says."""
    labels: bool = False
    """Whether the target is a class label rather than a number."""
    inputs: tuple[str, ...] | None = None
    """Names of the inputs' columns; all that are left over if left out."""
    ignore: tuple[str, ...] = ()
    """Names of columns that are not used."""
    split: Split = field(default_factory=IID)
    test_fraction: Annotated[float, Within(0, 0.999)] = 0.0
    """Share of the rows that is held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            (self.client is None) != (self.clients is None),
            "(client, clients)",
            (self.client, self.clients),
            "either the name of the client column or the number of clients",
        )
        ok = self.client is None or self.split == IID()
        require(ok, "split", self.split, "left out where a column says which client holds a row")

    def load(self, seed: int = 0) -> FederatedData:
        """Read the file."""
        x, y, owners = read_table(self.path, self.target, self.client, self.inputs, self.ignore)
        classes = None
        if self.labels:
            if not np.array_equal(y, np.rint(y)) or y.min() < 0 or y.max() > MOST_LABELS:
                raise BadInput(f"{self.path}: labels in {self.target!r} must be 0, 1, 2, ...")
            y, classes = y.astype(np.int32), int(y.max()) + 1
        rng = generator(seed, Stream.CSV)
        names = sorted(set(owners or [""]))
        number = {name: i for i, name in enumerate(names)}
        owner = np.array([number[name] for name in owners or [""] * len(x)])
        held_out = np.concatenate([self._hold_out(owner, i, rng) for i in range(len(names))])
        kept = np.setdiff1d(np.arange(len(x)), held_out)
        test = (x[held_out], y[held_out]) if len(held_out) else None
        if self.clients is not None:
            require(
                self.clients <= len(kept),
                "(clients, test_fraction)",
                (self.clients, self.test_fraction),
                f"such that each client gets one of the {len(x)} rows of {self.path}",
            )
            return from_arrays(
                x[kept], y[kept], self.split, self.clients, test=test, classes=classes, seed=seed
            )
        rows = [kept[owner[kept] == i] for i in range(len(names))]
        return from_clients([(x[r], y[r]) for r in rows], names, test, classes)

    def _hold_out(self, owners: np.ndarray, owner: object, rng: np.random.Generator) -> np.ndarray:
        """Return the rows of an owner to hold out, leaving it at least one."""
        rows = rng.permutation(np.flatnonzero(owners == owner))
        return rows[: min(round(self.test_fraction * len(rows)), len(rows) - 1)]
