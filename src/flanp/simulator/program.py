"""What the compiled programs of the simulator share: what decides them, and where the data lies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from flanp.metrics import Metric
from flanp.parts import with_values
from flanp.problems import Batch, Params, Problem
from flanp.simulator.convolving import by_matrices
from flanp.simulator.layout import Layout
from flanp.solvers import Solver
from flanp.solvers.asynchronous import AsyncSolver
from flanp.trees import Tree

CLIENTS = "clients"
"""Name of the mesh axis that the clients are dealt along."""


Numbers = dict[str, jax.Array]
"""A solver's own eta, gamma and others of its numbers (`Training.traced`)."""


@dataclass(frozen=True)
class Code:
    """What decides compiled code; equal ones share one compilation."""

    layout: Layout
    mesh: Mesh

    def on_devices(self, f: Callable[..., Tree], inputs: Tree, outputs: Tree) -> Callable[..., Any]:
        """Return f on each device's part of its arguments."""
        # Unchecked: the check refuses a user's loss with a scan or a cond that starts from a
        # constant.
        return jax.shard_map(f, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)


@dataclass(frozen=True)
class Evaluation(Code):
    """All that decides the compiled code of an evaluation."""

    metrics: tuple[Metric, ...]
    block: int
    """How many rows are looked at side by side, which bounds the memory."""


@dataclass(frozen=True)
class Sight(Code):
    """All that decides the compiled code of a look."""

    problem: Problem
    chunk: int
    """C, how many clients a device works on side by side."""
    block: int
    """How many rows of a client are looked at side by side, which bounds the memory."""


@dataclass(frozen=True)
class Program(Sight):
    """All that decides the compiled code of a round."""

    form: Solver | AsyncSolver
    """The solver, but for its numbers: one program serves a grid of them."""
    batch: int | None

    def solver(self, numbers: Numbers) -> Any:
        """Return the solver with its own numbers."""
        return with_values(self.form, **numbers)


class Shard(NamedTuple):
    """The clients' data on one device."""

    batch: tuple[jax.Array, ...]
    """Arrays (slots, S, ...)."""
    weights: jax.Array
    """(slots, S): how many samples a row stands for."""
    rows: jax.Array
    """(slots,): how many rows are not padding."""
    number: jax.Array
    """(slots,): which client it is."""


def summed_loss(
    problem: Problem,
    params: Params,
    batch: Batch,
    weights: jax.Array,
    key: jax.Array | None = None,
) -> jax.Array:
    """Return the weighted sum of the loss over the rows of a batch."""
    if key is None:
        return weights @ of_each_row(problem.loss, params, batch)
    return weights @ drawn_of_each_row(problem.loss, params, batch, key)


def drawn_of_each_row(
    f: Callable[..., jax.Array], params: Params, batch: Batch, key: jax.Array
) -> jax.Array:
    """Return f of each row by itself, each with a key of its own."""
    quick = by_matrices(lambda row, key: f(params, row, key=key))

    def of_row(row: Batch, place: jax.Array) -> jax.Array:
        return quick(jax.tree.map(lambda a: a[None], row), jax.random.fold_in(key, place))

    return jax.vmap(of_row)(batch, jnp.arange(len(batch[0])))


def of_each_row(
    f: Callable[..., jax.Array], params: Params, batch: Batch, block: int | None = None
) -> jax.Array:
    """Return f of each row by itself, so that rows can be weighted; of a block at a time."""
    quick = by_matrices(f)

    def of_row(row: Batch) -> jax.Array:
        return quick(params, jax.tree.map(lambda a: a[None], row))

    if block is None or len(batch[0]) <= block:
        return jax.vmap(of_row)(batch)
    values: jax.Array = jax.lax.map(of_row, batch, batch_size=block)
    return values


def mean_loss(
    problem: Problem,
    params: Params,
    batch: Batch,
    weights: jax.Array,
    key: jax.Array | None = None,
) -> jax.Array:
    """Return the weighted mean of the loss over the rows of a batch."""
    return summed_loss(problem, params, batch, weights, key) / jnp.maximum(weights.sum(), 1)
