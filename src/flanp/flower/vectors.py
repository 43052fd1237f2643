"""A model on the wire, arrays with names, as one flat vector and back."""

from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord

from flanp.checks import BadInput


@dataclass(frozen=True)
class Names:
    """Which arrays a model is made of, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def ravel(self, arrays: ArrayRecord) -> np.ndarray:
        """Return the vector of a record, which must have these names and shapes."""
        found = {name: array.numpy() for name, array in arrays.items()}
        if {name: a.shape for name, a in found.items()} != dict(
            zip(self.names, self.shapes, strict=True)
        ):
            raise BadInput("the arrays have other names or shapes than the model")
        # Not the common type of all: a counter of 64-bit integers would make float32 float64.
        floats = [d for d in self.dtypes if np.issubdtype(d, np.floating)]
        dtype = np.result_type(np.float32, *floats)
        return np.concatenate([found[name].astype(dtype).ravel() for name in self.names])

    def split(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return a vector's parts by name, each in its own shape."""
        parts, end = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            start, end = end, end + int(np.prod(shape))
            parts[name] = vector[start:end].reshape(shape)
        return parts

    def record(self, vector: np.ndarray) -> ArrayRecord:
        """Return the record of a vector, each array of its own type."""
        return ArrayRecord(
            {
                name: Array(_as(part, dtype))
                for (name, part), dtype in zip(self.split(vector).items(), self.dtypes, strict=True)
            }
        )


def names_of(arrays: ArrayRecord) -> Names:
    """Return the names, shapes and types of a record's arrays."""
    if not arrays:
        raise BadInput("the start model has no arrays")
    parts = {name: array.numpy() for name, array in arrays.items()}
    return Names(
        tuple(parts),
        tuple(a.shape for a in parts.values()),
        tuple(a.dtype for a in parts.values()),
    )


def _as(part: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if np.issubdtype(dtype, np.integer):
        part = np.rint(part)
    return np.asarray(part, dtype, order="C")
