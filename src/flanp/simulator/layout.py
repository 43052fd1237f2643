"""A model as one flat vector, and back."""

from collections import Counter
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from flanp.checks import BadInput, calling
from flanp.trees import Tree, Vector


@dataclass(frozen=True)
class Layout:
    """How a pytree of arrays lies in one vector. Hashable, unlike jax's own unravel function."""

    treedef: jax.tree_util.PyTreeDef
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(self._lengths())

    @property
    def names(self) -> list[str]:
        """The dotted names of the leaves; the name of a single array is empty.

        >>> layout_of({"b": jnp.ones(2), "a": [jnp.zeros(3)]}).names
        ['a.0', 'b']
        """
        found = jax.tree_util.tree_leaves_with_path(self.tree([*range(len(self.shapes))]))
        return [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in found]

    def ravel(self, tree: Tree) -> jax.Array:
        """Return the vector of a tree.

        >>> layout = layout_of({"b": jnp.ones(2), "a": jnp.zeros((1, 3))})
        >>> layout.ravel({"b": jnp.ones(2), "a": jnp.zeros((1, 3))}).tolist()
        [0.0, 0.0, 0.0, 1.0, 1.0]
        """
        return jnp.concatenate([jnp.ravel(leaf) for leaf in self.treedef.flatten_up_to(tree)])

    def unravel(self, vector: Vector) -> Tree:
        """Return the tree of a vector."""
        ends = np.cumsum(self._lengths())
        parts = [
            vector[end - length : end].reshape(shape)
            for end, length, shape in zip(ends, self._lengths(), self.shapes, strict=True)
        ]
        return self.tree(parts)

    def tree(self, parts: list[Tree]) -> Tree:
        """Return the tree of its leaves."""
        return jax.tree.unflatten(self.treedef, parts)

    def _lengths(self) -> list[int]:
        return [int(np.prod(shape)) for shape in self.shapes]


def layout_of(params: Tree) -> Layout:
    """Return the layout of a model, whose leaves must be floating-point arrays."""
    with calling("the start model", "it must be made of lists, tuples, dicts and arrays"):
        leaves, treedef = jax.tree.flatten(params)
    if not sum(np.size(leaf) for leaf in leaves):
        raise BadInput("the start model has no parameters")
    for leaf in leaves:
        is_array = isinstance(leaf, np.ndarray | np.generic | jax.Array)
        kind = leaf.dtype if is_array else type(leaf).__name__
        if not isinstance(leaf, float) and not (is_array and jnp.issubdtype(kind, jnp.floating)):
            raise BadInput(f"the start model has a leaf of type {kind}: all must be floats")
        if not np.isfinite(np.asarray(jnp.asarray(leaf))).all():
            raise BadInput("the start model holds parameters that are NaN or infinite")
    layout = Layout(treedef, tuple(jnp.shape(leaf) for leaf in leaves))
    twice = [name for name, number in Counter(layout.names).items() if number > 1]
    if twice:
        raise BadInput(f"the start model has two arrays that are called {twice[0]!r}: rename one")
    return layout
