"""The compiled programs that look at a model: loss and gradient over clients, metrics."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from flanp.measurement import Measurement, noise
from flanp.problems import Batch, Params
from flanp.simulator.program import (
    CLIENTS,
    Evaluation,
    Numbers,
    Program,
    Shard,
    Sight,
    of_each_row,
    summed_loss,
)
from flanp.trees import Tree


class Covered(NamedTuple):
    """Which slots of a device a measurement covers; entries past `clients` are padding."""

    slot: jax.Array
    active: jax.Array
    """1 for the participants, 0 for the others."""
    s: jax.Array
    """Samples."""
    clients: jax.Array


@partial(jax.jit, static_argnums=0)
def measure(
    sight: Sight, w: jax.Array, shard: Shard, covered: Covered, tilt: jax.Array | None = None
) -> jax.Array:
    """Return seven numbers for the participants, and for all clients that are covered.

    They are: how many clients and samples; the mean loss; the squared norm of the mean gradient
    g; the mean of ||g_i||^2; the mean of ||g_h - g_i||^2 over the halves h of the clients; the
    squared norm of g with a tilt, which is what is known of the gradients of others.
    """
    C = sight.chunk

    def on_device(w: jax.Array, shard: Shard, covered: Covered) -> jax.Array:
        covered = Covered(*(a[0] for a in covered))
        params = sight.layout.unravel(w)

        def work(j: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            sums, gradient = carry
            i, active, s = (lax.dynamic_slice_in_dim(a, j * C, C) for a in covered[:3])
            s_h, loss_h, g_h = lax.map(partial(_half, sight, params, shard, i), jnp.arange(2))
            g = g_h.sum(axis=0) / jnp.maximum(s, 1)[:, None]
            apart = g_h / jnp.maximum(s_h, 1)[..., None] - g
            within = (s_h * (apart**2).sum(axis=-1)).sum(axis=0)
            exists = (s > 0).astype(s.dtype)
            columns = (exists, s, loss_h.sum(axis=0), s * (g**2).sum(axis=-1), within)
            inside = jnp.stack([active * exists, exists])
            return sums + inside @ jnp.stack(columns, axis=1), gradient + (inside * s) @ g

        zero = jnp.zeros((2, 5), w.dtype), jnp.zeros((2, w.size), w.dtype)
        sums, gradient = lax.fori_loop(0, -(-covered.clients // C), work, zero)
        sums, gradient = lax.psum((sums, gradient), CLIENTS)
        clients, S, loss, squares, within = sums.T
        mean = gradient / S[:, None]
        norm_sq = (mean**2).sum(axis=1)
        tilted = norm_sq if tilt is None else ((mean.at[0].add(tilt)) ** 2).sum(axis=1)
        columns = (clients, S, loss / S, norm_sq, squares / S, within / S, tilted)
        return jnp.stack(columns, axis=1)

    specs = (P(), P(CLIENTS), P(CLIENTS))
    return sight.on_devices(on_device, specs, P())(w, shard, covered)


def _half(
    sight: Sight, params: Params, shard: Shard, i: jax.Array, half: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return samples, summed loss and summed gradient of every second row of the clients i."""
    C = sight.chunk
    rows = -(-shard.weights.shape[1] // 2)
    block = min(rows, sight.block)
    Sums = tuple[jax.Array, jax.Array, jax.Array]

    def add(k: jax.Array, carry: Sums) -> Sums:
        row = 2 * (k * block + jnp.arange(block)) + half
        at = (i[:, None], row[None, :])
        weights = shard.weights.at[at].get(mode="fill", fill_value=0)
        batch = tuple(a.at[at].get(mode="clip") for a in shard.batch)
        value_and_grad = jax.value_and_grad(partial(summed_loss, sight.problem))
        loss, g = jax.vmap(value_and_grad, in_axes=(None, 0, 0))(params, batch, weights)
        s_h, loss_h, g_h = carry
        return s_h + weights.sum(axis=1), loss_h + loss, g_h + jax.vmap(sight.layout.ravel)(g)

    dtype = shard.weights.dtype
    zero = jnp.zeros(C, dtype), jnp.zeros(C, dtype), jnp.zeros((C, sight.layout.size), dtype)
    return lax.fori_loop(0, -(-rows // block), add, zero)


@partial(jax.jit, static_argnums=0)
def mean_drift(
    program: Program, numbers: Numbers, server: Tree, clients: Tree, covered: Covered
) -> jax.Array:
    """Return the mean correction of the participants' directions, weighted by their samples."""
    solver, C = program.solver(numbers), program.chunk

    def on_device(server: Tree, clients: Tree, covered: Covered) -> jax.Array:
        covered = Covered(*(a[0] for a in covered))
        told = solver.tell(server)

        def add(j: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            i, active, s = (lax.dynamic_slice_in_dim(a, j * C, C) for a in covered[:3])
            own = jax.tree.map(lambda a: a[i], clients.own)
            drift = jax.vmap(solver.drift, in_axes=(0, None))(own, told)
            return carry[0] + (active * s) @ drift, carry[1] + (active * s).sum()

        zero = jnp.zeros(program.layout.size, covered.s.dtype), jnp.zeros((), covered.s.dtype)
        total, S = lax.fori_loop(0, -(-covered.clients // C), add, zero)
        total, S = lax.psum((total, S), CLIENTS)
        return total / S

    specs = (P(), P(CLIENTS), P(CLIENTS))
    return program.on_devices(on_device, specs, P())(server, clients, covered)


@partial(jax.jit, static_argnums=0)
def losses(sight: Sight, w: jax.Array, shard: Shard, covered: Covered) -> jax.Array:
    """Return for each seat the mean of the client's losses, and the mean of their squares."""
    C = sight.chunk

    def on_device(w: jax.Array, shard: Shard, covered: Covered) -> jax.Array:
        covered = Covered(*(a[0] for a in covered))
        params = sight.layout.unravel(w)

        def of(j: jax.Array, means: jax.Array) -> jax.Array:
            i = lax.dynamic_slice_in_dim(covered.slot, j * C, C)
            batch, weights = tuple(a[i] for a in shard.batch), shard.weights[i]
            of_rows = partial(of_each_row, sight.problem.loss, params, block=sight.block)
            values = jax.vmap(of_rows)(batch)
            both = jnp.stack([values, values**2], axis=2)
            sums = jnp.einsum("cr,crk->ck", weights, both)
            mean = sums / jnp.maximum(weights.sum(axis=1), 1)[:, None]
            return lax.dynamic_update_slice_in_dim(means, mean, j * C, axis=0)

        room = jnp.zeros((covered.slot.shape[0], 2), w.dtype)
        return lax.fori_loop(0, -(-covered.clients // C), of, room)[None]

    specs = (P(), P(CLIENTS), P(CLIENTS))
    return sight.on_devices(on_device, specs, P(CLIENTS))(w, shard, covered)


@partial(jax.jit, static_argnums=0)
def evaluate(evaluation: Evaluation, w: jax.Array, batch: Batch, weights: jax.Array) -> jax.Array:
    """Return the mean of each metric over held-out rows."""

    def on_device(w: jax.Array, batch: Batch, weights: jax.Array) -> jax.Array:
        params = evaluation.layout.unravel(w)
        of_rows = [
            of_each_row(m.function, params, batch, evaluation.block) for m in evaluation.metrics
        ]
        totals = jnp.stack([weights @ values.astype(weights.dtype) for values in of_rows])
        total, count = lax.psum((totals, weights.sum()), CLIENTS)
        return total / count

    specs = (P(), P(CLIENTS), P(CLIENTS))
    return evaluation.on_devices(on_device, specs, P())(w, batch, weights)


def measurement(sums: np.ndarray) -> Measurement:
    """Return what seven numbers of `measure` say."""
    clients, samples, loss, norm_sq, mean_sq, within, tilted = sums.tolist()
    return Measurement(
        clients=round(clients),
        samples=samples,
        loss=loss,
        grad_norm_sq=tilted,
        noise=noise(round(clients), samples, norm_sq, mean_sq, within),
    )
