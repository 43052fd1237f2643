"""Models made with Equinox."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import jax

from flanp.checks import BadInput, require
from flanp.data.federated import FederatedData
from flanp.problems.base import Params
from flanp.problems.networks import Network, Outputs, library, untrained
from flanp.streams import takes_key


@final
@dataclass(frozen=True, eq=False)
class Equinox(Network):
    """An Equinox module of a single row, or a function of a `key` that makes one.

    Its floating-point arrays are trained. In looks it is in `inference_mode`; in local steps its
    `__call__` gets a `key`, if it takes one. A module that is given as it is starts from its own
    parameters, whatever the seed; one that a function makes starts from new ones.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require(callable(self.model), "model", self.model, "an Equinox module, or what makes one")
        library("equinox")

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Return the module without all that is not trained."""
        del data
        eqx = library("equinox")
        _ = self._rest  # refuses what cannot be trained
        return eqx.filter(self._make(key), eqx.is_inexact_array)

    def outputs(self, params: Params, x: jax.Array, key: jax.Array | None = None) -> Outputs:
        """Return what the module makes of each row: with dropout where there is a key."""
        eqx = library("equinox")
        model = eqx.combine(params, self._rest)
        if key is None:
            model = eqx.nn.inference_mode(model)
            return jax.vmap(lambda row: model(row, key=None) if self.draws else model(row))(x)
        keys = jax.random.split(key, len(x))
        return jax.vmap(lambda row, key: model(row, key=key))(x, keys)

    @property
    def draws(self) -> bool:
        """Whether the module's `__call__` takes a key."""
        return takes_key(type(self._rest).__call__)

    def _make(self, key: jax.Array) -> Any:
        is_module = isinstance(self.model, library("equinox").Module)
        return self.model if is_module else self.model(key=key)

    @cached_property
    def _rest(self) -> Any:
        """The module without its parameters."""
        eqx = library("equinox")
        model = eqx.filter_eval_shape(self._make, jax.random.key(0))
        require(isinstance(model, eqx.Module), "model", model, "what makes an Equinox module")
        found = jax.tree.leaves(model, is_leaf=lambda leaf: isinstance(leaf, eqx.nn.StateIndex))
        if any(isinstance(leaf, eqx.nn.StateIndex) for leaf in found):
            raise untrained("a state (eqx.nn.StateIndex)")
        shapes, rest = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        for shape in jax.tree.leaves(shapes):
            if not jax.numpy.issubdtype(shape.dtype, jax.numpy.inexact):
                raise BadInput(
                    f"the model holds an array of type {shape.dtype}, which cannot be trained: "
                    "make it where it is used, in __call__"
                )
        return rest
