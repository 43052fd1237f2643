"""Which samples a local step uses, and random numbers for losses and for compression."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from flanp.problems import Batch
from flanp.simulator.program import Program, Shard

Sampler = Callable[[jax.Array, jax.Array], tuple[Batch, jax.Array, jax.Array]]
"""(step number, order) -> (batch, weights, order)."""


def round_keys(key: jax.Array, use: int, numbers: jax.Array) -> jax.Array:
    """Return the keys of some rounds."""
    return jax.vmap(partial(jax.random.fold_in, jax.random.fold_in(key, use)))(numbers)


def sampler(program: Program, shard: Shard, i: jax.Array, keys: jax.Array) -> Sampler:
    """Return how the clients i draw their mini-batches.

    Each epoch goes through a client's samples in a fresh random order, which depends on
    nothing but the seed, the round, the client and the epoch.
    """
    b = program.batch
    rows, S = shard.rows[i], shard.weights.shape[1]

    if b is None:
        batch = tuple(a[i] for a in shard.batch)
        return lambda t, order: (batch, shard.weights[i], order)

    steps_per_epoch = jnp.maximum(1, -(-rows // b))

    def sample(t: jax.Array, order: jax.Array) -> tuple[Batch, jax.Array, jax.Array]:
        epoch, place = t // steps_per_epoch, t % steps_per_epoch

        def shuffle(order: jax.Array) -> jax.Array:
            fresh = jax.vmap(partial(sample_order, room=order.shape[1]))
            drawn = fresh(keys, shard.number[i], epoch, rows)
            return jnp.where((place == 0)[:, None], drawn, order)

        order = lax.cond((place == 0).any(), shuffle, lambda order: order, order)
        position = place[:, None] * b + jnp.arange(b)
        row = jnp.minimum(jnp.take_along_axis(order, position, axis=1), S - 1)
        batch = tuple(a[i[:, None], row] for a in shard.batch)
        return batch, (position < rows[:, None]).astype(shard.weights.dtype), order

    return sample


def no_order(program: Program, shard: Shard) -> jax.Array:
    """Return room for the orders of a chunk of clients."""
    room = 0
    if program.batch is not None:
        room = -(-shard.weights.shape[1] // program.batch) * program.batch
    return jnp.zeros((program.chunk, room), jnp.int32)


def sample_order(
    key: jax.Array, client: jax.Array, epoch: jax.Array, rows: jax.Array, *, room: int
) -> jax.Array:
    """Return a random order of a client's first `rows` rows, then the rest of `room` places.

    Args:
        key: the round's key.
        client: number of the client.
        epoch: which pass of this round over the client's data.
        rows: how many rows there are to order.
        room: length of the result.
    """
    key = jax.random.fold_in(jax.random.fold_in(key, client), epoch)
    bits = jax.random.bits(key, (room,), jnp.uint32) >> 1
    bits = jnp.where(jnp.arange(room) < rows, bits, jnp.uint32(2**32 - 1))
    return jnp.argsort(bits).astype(jnp.int32)


def step_keys(keys: jax.Array, clients: jax.Array, t: jax.Array) -> jax.Array:
    """Return what each client's loss draws with in its local step t, of the round's keys."""
    fold_in = jax.random.fold_in
    return jax.vmap(lambda key, client: fold_in(fold_in(key, client), t))(keys, clients)


def uniforms(key: jax.Array, client: jax.Array, like: jax.Array) -> jax.Array:
    """Return numbers on [0, 1) for a client's message: the first 24 of 32 random bits each."""
    bits = jax.random.bits(jax.random.fold_in(key, client), like.shape, jnp.uint32)
    return (bits >> 8).astype(like.dtype) * 2.0**-24
