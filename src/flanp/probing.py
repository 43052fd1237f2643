"""A look at a problem before its functions are compiled, so that faults are told in words."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from flanp.checks import BadInput, calling
from flanp.data.federated import FederatedData
from flanp.problems import Custom, Problem

TRACEABLE = "It is traced by JAX: no float(), int() or `if` on values that it computes"


def check_problem(problem: Problem, params: Any, data: FederatedData) -> None:
    """Refuse a problem that the compiled programs could not use."""
    try:
        hash(problem)
    except TypeError as error:
        raise BadInput(
            f"{type(problem).__name__} must be hashable: freeze its dataclass"
        ) from error
    rows = tuple(jax.ShapeDtypeStruct((1, *a.shape[2:]), a.dtype) for a in data.batch)
    given = f"the model and a batch of shapes {[list(a.shape) for a in rows]}"
    _check(problem, "loss", params, rows, given)
    expected = f"it must be differentiable by JAX at {given}"
    with calling(f"the gradient of {name_of(problem, 'loss')}", expected):
        jax.eval_shape(jax.grad(partial(_scalar, problem.loss)), params, rows)
    if problem.metric_name is not None and data.test is not None:
        rows = tuple(jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype) for a in data.test)
        _check(problem, "metric", params, rows, given)


def name_of(problem: Problem, method: str) -> str:
    """Return what a user calls a function of a problem."""
    if isinstance(problem, Custom):
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


def _scalar(loss: Any, params: Any, rows: Any) -> jax.Array:
    return jnp.asarray(loss(params, rows))
