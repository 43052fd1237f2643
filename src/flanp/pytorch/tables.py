"""What clients keep, as arrays with a row for each of them."""

from typing import Any

import numpy as np

from flanp.trees import Tree, leaves, transform


def for_each(tree: Tree, N: int) -> Tree:
    """Return arrays with N rows, each a copy of those of a tree."""
    return transform(lambda a: np.repeat(np.asarray(a)[None], N, axis=0), tree)


def row(table: Tree, i: int) -> Tree:
    """Return the tree of one client."""
    return transform(lambda a: a[i], table)


def put(table: Tree, i: int, tree: Tree) -> None:
    """Write the tree of one client."""
    for a, value in zip(leaves(table).values(), leaves(tree).values(), strict=True):
        a[i] = value


class Rows:
    """Arrays in NumPy, with the clients in their own order."""

    def __init__(self, N: int):
        self.row_of_client = np.arange(N)

    def put(self, a: np.ndarray) -> Any:
        """Return an array of one's own."""
        return np.array(a)

    def put_rows(self, a: np.ndarray) -> Any:
        """Return an array of one's own."""
        return np.array(a)
