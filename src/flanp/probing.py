"""A look at a problem before its functions are compiled, so that faults are told in words."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from flanp.checks import BadInput, calling
from flanp.data.federated import FederatedData
from flanp.kernels import summed_loss
from flanp.parts import check_is
from flanp.problems import Custom, Problem

TRACEABLE = "It is traced by JAX: no float(), int() or `if` on values that it computes"


def check_problem(problem: Problem, params: Any, data: FederatedData) -> None:
    """Refuse a problem that the compiled programs could not use."""
    kind = type(problem).__name__
    with calling(f"hash({kind})", f"{kind} must be hashable: freeze its dataclass"):
        hash(problem)
    check_is(f"{kind}.l2", problem.l2, float)
    rows = tuple(jax.ShapeDtypeStruct((1, *a.shape[2:]), a.dtype) for a in data.batch)
    given = f"the model and a batch of shapes {[list(a.shape) for a in rows]}"
    _check(problem, "loss", params, rows, given)
    expected = f"JAX must be able to map and differentiate it at {given}"
    clients = tuple(jax.ShapeDtypeStruct((2, 3, *a.shape[2:]), a.dtype) for a in data.batch)
    weights = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    gradient = jax.vmap(jax.grad(partial(summed_loss, problem)), in_axes=(None, 0, 0))
    with calling(f"the gradient of {name_of(problem, 'loss')}", expected):
        jax.eval_shape(gradient, params, clients, weights)
    if problem.metric_name is not None and data.test is not None:
        rows = tuple(jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype) for a in data.test)
        _check(problem, "metric", params, rows, given)


@contextmanager
def callbacks_in_words() -> Iterator[None]:
    """Turn what a callback in a user's loss or metric raises into BadInput."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "CpuCallback" not in str(error):
            raise
        reason = str(error).strip().splitlines()[-1].strip()
        raise BadInput(f"a callback in the loss or the metric failed: {reason}") from error


def name_of(problem: Problem, method: str) -> str:
    """Return what a user calls a function of a problem."""
    if isinstance(problem, Custom) and method in ("init", "loss", "metric"):
        function = getattr(problem, f"{method}_fn")
        return f"{method}_fn ({getattr(function, '__qualname__', type(function).__name__)})"
    return f"{type(problem).__name__}.{method}"


def _check(problem: Problem, method: str, params: Any, rows: Any, given: str) -> None:
    name = name_of(problem, method)
    with calling(name, f"it must take {given}, and return one number. {TRACEABLE}"):
        value = jax.eval_shape(getattr(problem, method), params, rows)
    leaves = jax.tree.leaves(value)
    one = len(leaves) == 1 and leaves[0] is value and jnp.shape(value) == ()
    if not one or (method == "loss" and not jnp.issubdtype(value.dtype, jnp.floating)):
        got = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "nothing"
        raise BadInput(
            f"{name} returns {got}: it must be one {'float' if method == 'loss' else 'number'}, "
            "the mean over the rows of the batch"
        )
