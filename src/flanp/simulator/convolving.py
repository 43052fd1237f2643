"""Convolutions and pooling as slices and matrix products, which are quick in loops on CPUs.

XLA's CPU backend runs convolutions inside a loop body without its fast kernels (jax issue 12868),
and local steps are a loop. So what a user's loss computes is traced, and its convolutions and
pooling are replaced by what has the same value and the same gradient; the rest stays as it is.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun, jaxprs_in_params

Params = dict[str, Any]
MOST_TAPS = 128
"""Each place in a window is a slice: beyond so many, compiling them takes longer than they save."""
INLINED = ("jit", "pjit", "closed_call", "core_call")
"""Calls whose insides are evaluated in their place."""


def by_matrices(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return f with its convolutions and pooling rewritten, on CPUs; else f itself.

    >>> x, k = jnp.arange(5.0), jnp.array([1.0, -1.0])
    >>> difference = lambda x: jnp.convolve(x, k, "valid")
    >>> by_matrices(difference)(x).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    if jax.default_backend() != "cpu":
        return f

    def rewritten(*args: Any) -> Any:
        closed, shape = jax.make_jaxpr(f, return_shape=True)(*args)
        if not _holds_any(closed.jaxpr):
            return f(*args)
        values = _evaluated(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), values)

    return rewritten


def count(f: Callable[..., Any], *args: Any) -> int:
    """Return how many convolutions and poolings are left in what a function computes."""

    def held(jaxpr: Jaxpr) -> int:
        inside = sum(held(sub) for eqn in jaxpr.eqns for sub in jaxprs_in_params(eqn.params))
        return inside + sum(eqn.primitive.name in RULES for eqn in jaxpr.eqns)

    return held(jax.make_jaxpr(f)(*args).jaxpr)


def size_of(jaxpr: Jaxpr) -> int:
    """Return how many numbers a computation brings about."""
    inside = sum(
        eqn.params.get("length", 1) * size_of(sub)
        for eqn in jaxpr.eqns
        for sub in jaxprs_in_params(eqn.params)
    )
    shapes = [getattr(v.aval, "shape", ()) for eqn in jaxpr.eqns for v in eqn.outvars]
    return inside + sum(map(math.prod, shapes))


def _holds_any(jaxpr: Jaxpr) -> bool:
    return any(
        eqn.primitive.name in RULES or any(map(_holds_any, jaxprs_in_params(eqn.params)))
        for eqn in jaxpr.eqns
    )


def _evaluated(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Evaluate what was traced, equation by equation."""
    known: dict[Any, Any] = dict(
        zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True)
    )
    for eqn in jaxpr.eqns:
        inputs = [v.val if isinstance(v, Literal) else known[v] for v in eqn.invars]
        known |= zip(eqn.outvars, _outputs(eqn, inputs), strict=True)
    return [v.val if isinstance(v, Literal) else known[v] for v in jaxpr.outvars]


def _outputs(eqn: JaxprEqn, inputs: list[Any]) -> list[Any]:
    name, params = eqn.primitive.name, eqn.params
    inner = [sub for sub in jaxprs_in_params(params) if _holds_any(sub)]
    if name in RULES:
        value = RULES[name](params, *inputs)
        if value is not None:
            return [value]
        _warn(f"{name} with {_unusual(name, params, inputs)}")
    elif inner and name in INLINED:
        (inside,) = (v for v in params.values() if isinstance(v, ClosedJaxpr | Jaxpr))
        closed = inside if isinstance(inside, ClosedJaxpr) else ClosedJaxpr(inside, ())
        return _evaluated(closed.jaxpr, closed.consts, inputs)
    elif inner and name.startswith("remat"):
        body = by_matrices(jaxpr_as_fun(ClosedJaxpr(params["jaxpr"], ())))
        options = {key: params[key] for key in ("prevent_cse", "policy")}
        return list(jax.checkpoint(body, **options)(*inputs))
    elif inner and name == "scan":
        return _scanned(params, by_matrices(jaxpr_as_fun(params["jaxpr"])), inputs)
    elif inner and name == "cond":
        branches = [by_matrices(jaxpr_as_fun(branch)) for branch in params["branches"]]
        return list(lax.switch(inputs[0], branches, *inputs[1:]))
    elif inner:
        _warn(f"a convolution, or pooling, inside {name}")
    outputs = eqn.primitive.bind(*inputs, **eqn.primitive.get_bind_params(params))
    return list(outputs) if eqn.primitive.multiple_results else [outputs]


def _scanned(params: Params, body: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    consts, carries = params["num_consts"], params["num_carry"]
    fixed, rest = inputs[:consts], inputs[consts:]

    def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = body(*fixed, *carry, *x)
        return list(outputs[:carries]), list(outputs[carries:])

    options = {key: params[key] for key in ("length", "reverse", "unroll")}
    carry, ys = lax.scan(step, rest[:carries], rest[carries:], **options)
    return [*carry, *ys]


def _convolved(params: Params, x: jax.Array, kernel: jax.Array) -> jax.Array | None:
    """Return a convolution as a product of patches and a matrix."""
    if params["batch_group_count"] != 1 or jnp.issubdtype(x.dtype, jnp.complexfloating):
        return None
    if not 0 < _taps(params, kernel) <= MOST_TAPS:
        return None
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    x = x.transpose(numbers.lhs_spec[0], *numbers.lhs_spec[2:], numbers.lhs_spec[1])
    kernel = kernel.transpose(*numbers.rhs_spec[2:], *numbers.rhs_spec[1::-1])
    *window, features, outputs = kernel.shape
    padding = [(0, 0), *params["padding"], (0, 0)]
    x = _padded(x, padding, (1, *params["lhs_dilation"], 1), 0)
    x = x.reshape(*x.shape[:-1], groups, features)
    patches = x
    strides, dilation = params["window_strides"], params["rhs_dilation"]
    for k in reversed(range(len(window))):  # one dimension after the other takes fewer slices
        patches = jnp.concatenate(_shifted(patches, 1 + k, window[k], strides[k], dilation[k]), -1)
    if math.prod(window) > 1:
        # Without the barrier XLA would compute the patches anew inside of each product.
        patches = lax.optimization_barrier(patches)
    options = {key: params[key] for key in ("precision", "preferred_element_type")}
    matrix = kernel.reshape(math.prod(window) * features, groups, outputs // groups)
    if groups == 1:
        out = lax.dot_general(
            patches[..., 0, :], matrix[:, 0], (((patches.ndim - 2,), (0,)), ((), ())), **options
        )
    else:
        contract = ((patches.ndim - 1,), (0,)), ((patches.ndim - 2,), (1,))
        out = jnp.moveaxis(lax.dot_general(patches, matrix, contract, **options), 0, -2)
        out = out.reshape(*out.shape[:-2], outputs)
    order = numbers.out_spec[0], *numbers.out_spec[2:], numbers.out_spec[1]
    return out.transpose(np.argsort(order))


def _pooled(join: Callable[..., jax.Array], start: float) -> Callable[..., jax.Array | None]:
    def pooled(params: Params, x: jax.Array) -> jax.Array | None:
        """Return what a window holds, put together along one dimension after the other."""
        window, dtype = params["window_dimensions"], x.dtype
        if not jnp.issubdtype(dtype, jnp.floating) or sum(window) - x.ndim > MOST_TAPS:
            return None
        x = _padded(x, params["padding"], params["base_dilation"], start)
        for dim in reversed(range(x.ndim)):
            stride, dilation = params["window_strides"][dim], params["window_dilation"][dim]
            x = reduce(join, _shifted(x, dim, window[dim], stride, dilation))
        return x

    return pooled


def _first_largest(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the larger one; of equal ones the first, whose gradient it is."""
    return jnp.where((b > a) | jnp.isnan(b), b, a)


def _first_smallest(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where((b < a) | jnp.isnan(b), b, a)


def _padded(x: jax.Array, padding: Any, dilation: Sequence[int], value: float) -> jax.Array:
    config = [(low, high, every - 1) for (low, high), every in zip(padding, dilation, strict=True)]
    if not any(map(any, config)):
        return x
    return lax.pad(x, jnp.asarray(value, x.dtype), config)


def _shifted(x: jax.Array, dim: int, size: int, stride: int, dilation: int) -> list[jax.Array]:
    """Return for each offset in a window along a dimension what lies there in all windows."""
    places = max(0, (x.shape[dim] - (size - 1) * dilation - 1) // stride + 1)
    length = (places - 1) * stride + 1 if places else 0
    starts = [offset * dilation if places else 0 for offset in range(size)]
    return [lax.slice_in_dim(x, at, at + length, stride, dim) for at in starts]


RULES: dict[str, Callable[..., jax.Array | None]] = {
    "conv_general_dilated": _convolved,
    "reduce_window_max": _pooled(_first_largest, -math.inf),
    "reduce_window_min": _pooled(_first_smallest, math.inf),
    "reduce_window_sum": _pooled(jnp.add, 0.0),
    "reduce_window": lambda *_: None,
}
"""What replaces a primitive: from its parameters and inputs; None where it cannot."""


def _taps(params: Params, kernel: jax.Array) -> int:
    """Return how many places of its input a place of a convolution's output depends on."""
    return math.prod(kernel.shape[dim] for dim in params["dimension_numbers"].rhs_spec[2:])


def _unusual(name: str, params: Params, inputs: list[Any]) -> str:
    if name == "reduce_window":
        return "a function of its own"
    if params.get("batch_group_count", 1) != 1:
        return f"batch_group_count = {params['batch_group_count']}"
    if not jnp.issubdtype(inputs[0].dtype, jnp.floating):
        return f"{inputs[0].dtype} numbers"
    return "so large a window"


def _warn(what: str) -> None:
    warnings.warn(
        f"the loss, or a metric, has {what}: it cannot be rewritten as a matrix product, and on "
        "CPUs it is ten and more times slower inside the loop over local steps than outside",
        stacklevel=2,
    )
