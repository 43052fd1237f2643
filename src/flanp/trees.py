"""Trees of arrays, such as a solver's state, without JAX: a client may be a small machine."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from flanp.checks import BadInput

Tree: TypeAlias = Any
"""Arrays in tuples, named tuples, lists and dicts, nested in any way; () is the empty one."""
Vector: TypeAlias = Any
"""A model, a gradient or a message as one flat array: NumPy's or JAX's, which count alike."""
Number: TypeAlias = Any
"""A number, or an array that holds one."""


def leaves(tree: Tree, name: str = "") -> dict[str, Tree]:
    """Return the arrays of a tree by dotted name.

    >>> leaves({"b": 1.0, "a": (2.0, ())}, "client")
    {'client.a.0': 2.0, 'client.b': 1.0}
    """
    found: dict[str, Tree] = {}
    children = _children(tree)
    if children is None:
        return {name: tree}
    for key, child in children.items():
        more = leaves(child, f"{name}.{key}" if name else key)
        twice = sorted(found.keys() & more.keys())
        if twice:
            raise BadInput(f"two arrays are called {twice[0]!r}: rename one of them")
        found |= more
    return found


def rebuild(like: Tree, arrays: dict[str, Tree], name: str = "") -> Tree:
    """Return a tree of the same form as another, with arrays by the names of `leaves`.

    >>> rebuild({"a": (0.0, ()), "b": 0.0}, {"a.0": 2.0, "b": 1.0})
    {'a': (2.0, ()), 'b': 1.0}
    """
    if like is None:
        return None
    children = _children(like)
    if children is None:
        if name not in arrays:
            raise BadInput(f"an array {name!r} is missing")
        return arrays[name]
    built = {
        key: rebuild(child, arrays, f"{name}.{key}" if name else key)
        for key, child in children.items()
    }
    if isinstance(like, dict):
        return {key: built[str(key)] for key in like}
    if isinstance(like, list):
        return [*built.values()]
    if hasattr(like, "_fields"):
        return type(like)(**built)
    return tuple(built.values())


def transform(function: Callable[..., Tree], tree: Tree, *more: Tree) -> Tree:
    """Return a tree of the same form with a function of each array, or of those of several trees.

    >>> transform(lambda a, b: a + b, {"a": 1.0, "b": ()}, {"a": 2.0, "b": ()})
    {'a': 3.0, 'b': ()}
    """
    arrays, others = leaves(tree), [leaves(each) for each in more]
    found = {name: function(a, *(each[name] for each in others)) for name, a in arrays.items()}
    return rebuild(tree, found)


def as_arrays(tree: Tree) -> Tree:
    """Return a tree whose leaves are NumPy arrays."""
    return transform(np.asarray, tree)


def _children(tree: Tree) -> dict[str, Tree] | None:
    """Return what a tree holds by name, or None for a leaf; dicts are sorted, as JAX does it."""
    if tree is None:
        return {}
    if isinstance(tree, dict):
        return {str(key): tree[key] for key in sorted(tree)}
    if hasattr(tree, "_fields"):
        return dict(zip(tree._fields, tree, strict=True))
    if isinstance(tree, list | tuple):
        return {str(i): child for i, child in enumerate(tree)}
    return None
