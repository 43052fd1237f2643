"""A client's loss and gradient as functions of one flat vector: NumPy, JAX or PyTorch."""

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from flanp.checks import BadInput
from flanp.flower.vectors import Names
from flanp.order import Key
from flanp.streams import takes_key

Batch = tuple[np.ndarray, ...]
LossAndGradient = Callable[[np.ndarray, Batch, Key | None], tuple[float, np.ndarray]]
"""(w, batch, what a local step draws with) -> the mean loss over the batch and its gradient."""
BLOCK = 4096
"""Rows that a gradient over all samples takes at a time, which bounds its memory."""


def numpy_model(gradient: Callable[..., Any], names: Names) -> LossAndGradient:
    """Wrap gradient(params, batch) -> (loss, gradients by name); params are arrays by name."""

    def loss_and_gradient(w: np.ndarray, batch: Batch, key: Key | None) -> tuple[float, np.ndarray]:
        del key
        loss, gradients = gradient(names.split(w), batch)
        parts = []
        for name, shape in zip(names.names, names.shapes, strict=True):
            if name not in gradients or np.shape(gradients[name]) != shape:
                raise BadInput(f"the gradient of {name!r} is missing or not of shape {shape}")
            parts.append(np.ravel(gradients[name]))
        return float(loss), np.concatenate(parts).astype(w.dtype, copy=False)

    return loss_and_gradient


def jax_model(loss: Callable[..., Any], names: Names) -> LossAndGradient:
    """Wrap loss(params, batch) -> scalar, a JAX function; dotted names make nested params.

    One that takes a key gets one for each row, as in the simulator, and None in a look at w.
    """
    import jax
    import jax.numpy as jnp

    if np.float64 in names.dtypes:
        jax.config.update("jax_enable_x64", True)

    draws = takes_key(loss)

    def mean_loss(w: Any, batch: Batch, key: jax.Array | None) -> jax.Array:
        params = nested(names.split(w))
        if key is None:
            return loss(params, batch)

        def of_row(row: Batch, place: jax.Array) -> jax.Array:
            one = tuple(a[None] for a in row)
            return loss(params, one, key=jax.random.fold_in(key, place))

        return jax.vmap(of_row)(batch, jnp.arange(len(batch[0]))).mean()

    value_and_grad = jax.jit(jax.value_and_grad(mean_loss))

    def loss_and_gradient(w: np.ndarray, batch: Batch, key: Key | None) -> tuple[float, np.ndarray]:
        own = jax.random.wrap_key_data(jnp.array(key)) if draws and key is not None else None
        value, g = value_and_grad(w, batch, own)
        return float(value), np.asarray(g)

    return loss_and_gradient


def torch_model(
    model: Callable[[], Any], loss: Callable[..., Any], names: Names
) -> LossAndGradient:
    """Wrap loss(model, batch) -> scalar tensor, with model() an nn.Module of these parameters."""
    import torch

    module = model()
    check_buffers(module)
    parameters = dict(module.named_parameters())
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    if shapes != dict(zip(names.names, names.shapes, strict=True)):
        raise BadInput("the model's parameters are not those that the server sent")
    ordered = [parameters[name] for name in names.names]

    def loss_and_gradient(w: np.ndarray, batch: Batch, key: Key | None) -> tuple[float, np.ndarray]:
        del key
        with torch.no_grad():
            for p, part in zip(ordered, names.split(w).values(), strict=True):
                p.copy_(torch.from_numpy(np.asarray(part, order="C")))
        value = loss(module, tuple(torch.from_numpy(a) for a in batch))
        gradients = torch.autograd.grad(value, ordered)
        g = torch.cat([g.reshape(-1) for g in gradients])
        return float(value.detach()), g.numpy().astype(w.dtype, copy=False)

    return loss_and_gradient


def check_buffers(module: Any) -> None:
    """Refuse a PyTorch model with state that no gradient trains."""
    buffers = [name for name, b in module.named_buffers() if b.is_floating_point()]
    if buffers:
        raise BadInput(
            f"the model keeps {buffers[0]!r}, which no gradient trains (BatchNorm does so): "
            "use GroupNorm or LayerNorm in its place"
        )


def arrays_of(model: Any) -> ArrayRecord:
    """Return a start model for `Flanp.start`: of an nn.Module, or of any tree of arrays.

    >>> list(arrays_of({"W": np.zeros((2, 3)), "b": [np.zeros(3), np.zeros(1)]}))
    ['W', 'b.0', 'b.1']
    """
    from flwr.app import Array

    if hasattr(model, "named_parameters"):
        check_buffers(model)
        parts = {name: p.detach().cpu().numpy() for name, p in model.named_parameters()}
    else:
        parts = dict(_flat(model, ""))
    return ArrayRecord({name: Array(np.asarray(a, order="C")) for name, a in parts.items()})


def nested(parts: dict[str, Any]) -> Any:
    """Return arrays by dotted name as a tree; numbers make lists, and a single 'w' is itself.

    >>> nested({"0.W": 1, "0.b": 2, "1.W": 3})
    [{'W': 1, 'b': 2}, {'W': 3}]
    """
    if list(parts) == ["w"]:
        return parts["w"]
    if list(parts) == [""]:
        return parts[""]
    groups: dict[str, dict[str, Any]] = {}
    for name, part in parts.items():
        first, _, rest = name.partition(".")
        groups.setdefault(first, {})[rest] = part
    tree = {first: nested(group) for first, group in groups.items()}
    if all(first.isdigit() for first in tree):
        return [tree[first] for first in sorted(tree, key=int)]
    return tree


def _flat(tree: Any, name: str) -> list[tuple[str, np.ndarray]]:
    if isinstance(tree, dict):
        items = [(str(key), tree[key]) for key in sorted(tree)]
    elif isinstance(tree, list | tuple):
        items = [(str(i), part) for i, part in enumerate(tree)]
    else:
        return [(name or "w", np.asarray(tree))]
    return [leaf for key, part in items for leaf in _flat(part, f"{name}.{key}".lstrip("."))]


def over_all(f: LossAndGradient, w: np.ndarray, samples: Batch) -> tuple[float, np.ndarray, float]:
    """Return loss and gradient g_i over all samples, and how far its halves are apart.

    The third number is sum over the two halves h of s_h ||g_h - g_i||^2.
    """
    s = len(samples[0])
    halves = []
    for half in range(2):
        rows = np.arange(half, s, 2)
        loss, g = 0.0, np.zeros(len(w))
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            value, gradient = f(w, tuple(a[block] for a in samples), None)
            loss, g = loss + len(block) * value, g + len(block) * gradient.astype(float)
        halves.append((len(rows), loss, g))
    g_i = np.sum([g for _, _, g in halves], axis=0) / s
    within = sum(s_h * float(((g / s_h - g_i) ** 2).sum()) for s_h, _, g in halves if s_h)
    return sum(loss for _, loss, _ in halves) / s, g_i.astype(w.dtype), within
