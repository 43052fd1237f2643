"""Models made with Flax, in either of its ways: linen and nnx."""

import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import jax
import jax.numpy as jnp

from flanp.checks import require
from flanp.data.federated import FederatedData
from flanp.problems.base import Params
from flanp.problems.networks import Network, Outputs, library, untrained

IN_TRAINING = {"train": True, "training": True, "deterministic": False}
"""What a linen module's `__call__` may ask, and the answer in a local step."""


@final
@dataclass(frozen=True, eq=False)
class Flax(Network):
    """A linen module, an nnx module, or a function of `rngs` that makes an nnx module.

    With dropout, a linen module's `__call__` has a parameter `train`, `training` or
    `deterministic`, which says whether to drop; nnx modules are switched by `train()` and
    `eval()`. An nnx module that is given as it is starts from its own parameters, whatever the
    seed; one that a function makes starts from new ones.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require(callable(self.model), "model", self.model, "a Flax module, or what makes one")
        _ = self._way  # says now that Flax is missing

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Return the start parameters as nested dicts."""
        return self._way.start(key, jnp.asarray(data.batch[0][0, :1]))

    def outputs(self, params: Params, x: jax.Array, key: jax.Array | None = None) -> Outputs:
        """Return what the module makes of the inputs: with dropout where there is a key."""
        return self._way.outputs(params, x, key)

    @property
    def draws(self) -> bool:
        """Whether the module has something to draw for."""
        return self._way.draws

    @cached_property
    def _way(self) -> "_Linen | _NNX":
        is_linen = isinstance(self.model, library("flax.linen").Module)
        return _Linen(self.model) if is_linen else _NNX(self.model)


@dataclass(frozen=True, eq=False)
class _Linen:
    model: Any

    @property
    def draws(self) -> bool:
        return bool(self._asks())

    def start(self, key: jax.Array, x: jax.Array) -> Params:
        state = self.model.init({"params": key, "dropout": key}, x, **self._answers(False))
        for collection in state.keys() - {"params"}:
            raise untrained(f"{collection!r}")
        return state.get("params", {})

    def outputs(self, params: Params, x: jax.Array, key: jax.Array | None) -> Outputs:
        rngs = {} if key is None else {"dropout": key}
        answers = self._answers(key is not None)
        return self.model.apply({"params": params}, x, rngs=rngs, **answers)

    def _asks(self) -> list[str]:
        parameters = inspect.signature(self.model.__call__).parameters
        return [name for name in IN_TRAINING if name in parameters]

    def _answers(self, training: bool) -> dict[str, bool]:
        return {name: IN_TRAINING[name] == training for name in self._asks()}


@dataclass(frozen=True, eq=False)
class _NNX:
    model: Any

    @property
    def draws(self) -> bool:
        return bool(jax.tree.leaves(self._split[2]))

    def start(self, key: jax.Array, x: jax.Array) -> Params:
        del x
        nnx = library("flax.nnx")
        own = isinstance(self.model, nnx.Module)
        model = self.model if own else self.model(rngs=nnx.Rngs(key))
        _ = self._split  # refuses what cannot be trained
        return nnx.to_pure_dict(nnx.state(model, nnx.Param))

    def outputs(self, params: Params, x: jax.Array, key: jax.Array | None) -> Outputs:
        nnx = library("flax.nnx")
        graph, shapes, streams = self._split
        # By order, for on Flower the numbered parts of a model come back as lists.
        state = jax.tree.unflatten(jax.tree.structure(shapes), jax.tree.leaves(params))
        model = nnx.merge(graph, state, _streams(streams, key))
        if key is None:
            model.eval()
        else:
            model.train()
        return model(x)

    @cached_property
    def _split(self) -> tuple[Any, Any, Any]:
        """How the module is made of its parameters and its streams of random numbers."""
        nnx = library("flax.nnx")
        model = self.model
        if not isinstance(model, nnx.Module):
            model = nnx.eval_shape(lambda: self.model(rngs=nnx.Rngs(0)))
            require(isinstance(model, nnx.Module), "model", model, "what makes an nnx module")
        graph, params, streams, others = nnx.split(model, nnx.Param, nnx.RngState, ...)
        for path, _ in nnx.to_flat_state(others):
            raise untrained(repr(".".join(map(str, path))))
        return graph, params, streams


def _streams(shapes: Any, key: jax.Array | None) -> Any:
    """Return streams that start from a key, each from one of its own."""
    leaves, structure = jax.tree.flatten(shapes)
    key = jax.random.key(0) if key is None else key
    fresh = [
        jax.random.fold_in(key, place)
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else jnp.zeros(leaf.shape, leaf.dtype)
        for place, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, fresh)
