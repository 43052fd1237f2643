"""What models of other libraries share: outputs, and a loss of outputs and targets."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp

from flanp.checks import BadInput
from flanp.metrics import Metric
from flanp.problems.base import Batch, Params, Problem

Outputs = Any
"""What a model makes of its inputs, one row for each of theirs."""


@dataclass(frozen=True, eq=False)
class Network(Problem):
    """A model, and a loss of its outputs. Equal to itself alone, for models need not be hashable.

    Rows of data are (inputs, targets). No two rows may share what is computed of them, as with
    BatchNorm, for rows are weighted one by one.
    """

    model: Any
    loss_fn: Callable[..., Any]
    """(outputs, targets) -> the mean loss, or one number a row, such as optax's losses."""

    @abstractmethod
    def outputs(self, params: Params, x: jax.Array, key: jax.Array | None = None) -> Outputs:
        """Return what the model makes of the inputs: with dropout where there is a key."""

    def loss(self, params: Params, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Return the mean of `loss_fn` over the rows of a batch."""
        if len(batch) != 2:
            raise BadInput(
                f"{type(self).__name__} needs inputs and targets; the data has {len(batch)} arrays"
            )
        x, y = batch
        return jnp.mean(self.loss_fn(self.outputs(params, x, key), y))

    def metric(
        self, name: str, function: Callable[..., Any], higher_is_better: bool | None = None
    ) -> Metric:
        """Return the mean of a function of (outputs, targets) as a metric of runs."""

        def of_batch(params: Params, batch: Batch) -> jax.Array:
            x, y = batch
            return jnp.mean(function(self.outputs(params, x), y))

        return Metric(name, of_batch, higher_is_better)


def library(name: str) -> Any:
    """Return a module of an optional library, or say how to install it."""
    extra = name.partition(".")[0]
    try:
        return import_module(name)
    except ImportError as error:
        raise BadInput(
            f"{extra.capitalize()} is not installed: pip install 'flanp[{extra}]'"
        ) from error


def untrained(what: str) -> BadInput:
    """Return the refusal of a model with a state that no gradient trains."""
    return BadInput(
        f"the model keeps {what}, which no gradient trains (BatchNorm does so): use GroupNorm or "
        "LayerNorm in its place"
    )
