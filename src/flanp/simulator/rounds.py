"""The compiled program of a round: local work, then the steps of the server and the clients."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from flanp.simulator.program import CLIENTS, Program, Shard, StepSizes, mean_loss
from flanp.simulator.sampling import no_order, round_keys, sampler, uniforms
from flanp.solvers import ClientState, Solver, Step
from flanp.solvers.base import Posted
from flanp.streams import NOISE, ORDER
from flanp.trees import Tree


class Seats(NamedTuple):
    """Which slots of a device work, in order; entries past `clients` are padding."""

    slot: jax.Array
    tau: jax.Array
    """Local steps."""
    length: jax.Array
    """How many plain steps they come to."""
    p: jax.Array
    """Weight in the mean."""
    clients: jax.Array


class Chunk(NamedTuple):
    """Some clients of a device that work side by side."""

    i: jax.Array
    """(C,): their slots."""
    tau: jax.Array
    length: jax.Array
    w: jax.Array
    """(C, P): the models that they start from."""
    eta: jax.Array
    order_keys: jax.Array
    noise_keys: jax.Array


@partial(jax.jit, static_argnums=0)
def restart(program: Program, sizes: StepSizes, w: jax.Array, clients: Tree) -> tuple[Tree, Tree]:
    """Return the solver's start states, the clients' in the shape of those given."""
    solver = program.solver(sizes)

    def on_device(w: jax.Array, clients: Tree) -> tuple[Tree, Tree]:
        spread = jax.tree.map(
            lambda room, a: jnp.broadcast_to(a, room.shape), clients, solver.join(w)
        )
        return solver.server_start(w), spread

    specs = (P(), P(CLIENTS))
    return program.on_devices(on_device, specs, specs)(w, clients)


@partial(jax.jit, static_argnums=0, donate_argnums=(4, 5))
def round_(
    program: Program,
    sizes: StepSizes,
    w: jax.Array,
    server: Tree,
    clients: Tree,
    inbox: Tree,
    shard: Shard,
    seats: Seats,
    step: Step,
    key: jax.Array,
    number: jax.Array,
) -> tuple[jax.Array, Tree, Tree, Tree]:
    """Run one round and return the new w, server state, client states and message room."""
    solver, C = program.solver(sizes), program.chunk
    keys = [jnp.broadcast_to(round_keys(key, use, number[None]), (C,)) for use in (ORDER, NOISE)]

    def on_device(
        w: jax.Array,
        server: Tree,
        clients: Tree,
        inbox: Tree,
        shard: Shard,
        seats: Seats,
        step: Step,
        keys: list[jax.Array],
    ) -> tuple[jax.Array, Tree, Tree, Tree]:
        seats = Seats(*(a[0] for a in seats))
        chunks, told = -(-seats.clients // C), solver.tell(server)
        starts = jnp.broadcast_to(w, (C, w.size))

        def work(j: jax.Array, carry: tuple[jax.Array, Tree]) -> tuple[jax.Array, Tree]:
            m, inbox = carry
            i, tau, length, p = (lax.dynamic_slice_in_dim(a, j * C, C) for a in seats[:4])
            chunk = Chunk(i, tau, length, starts, step.eta, *keys)
            m_i, posted = local_work(program, solver, rows(clients, i), told, shard, chunk)
            return m + p @ m_i, jax.tree.map(lambda a, b: a.at[i].set(b), inbox, posted)

        m, inbox = lax.fori_loop(0, chunks, work, (jnp.zeros_like(w), inbox))
        m = lax.psum(m, CLIENTS)
        settle = jax.vmap(solver.settle, in_axes=(0, None, 0, None, None), axis_size=C)

        def finish(j: jax.Array, clients: Tree) -> Tree:
            i = lax.dynamic_slice_in_dim(seats.slot, j * C, C)
            after = settle(rows(clients, i), told, rows(inbox, i), m, step)
            return jax.tree.map(lambda a, b: a.at[i].set(b), clients, after)

        clients = lax.fori_loop(0, chunks, finish, clients)
        w, server = solver.server_step(w, server, m, step)
        return w, server, clients, inbox

    on_clients, everywhere = P(CLIENTS), P()
    return program.on_devices(
        on_device,
        (everywhere, everywhere, *[on_clients] * 4, everywhere, everywhere),
        (everywhere, everywhere, on_clients, on_clients),
    )(w, server, clients, inbox, shard, seats, step, keys)


@partial(jax.jit, static_argnums=0)
def work(
    program: Program,
    sizes: StepSizes,
    starts: jax.Array,
    servers: Tree,
    clients: Tree,
    shard: Shard,
    seats: Seats,
    eta: jax.Array,
    key: jax.Array,
    numbers: jax.Array,
) -> jax.Array:
    """Return the messages of clients that each start from a model of their own.

    `starts`, `servers`, `eta` and `numbers` have a row for each seat: the model and the server's
    state that a client was sent, its step size and the round that it works for.
    """
    solver, C = program.solver(sizes), program.chunk

    def on_device(
        starts: jax.Array,
        servers: Tree,
        clients: Tree,
        shard: Shard,
        seats: Seats,
        eta: jax.Array,
        key: jax.Array,
        numbers: jax.Array,
    ) -> jax.Array:
        seats = Seats(*(a[0] for a in seats))
        starts, servers, eta, numbers = jax.tree.map(
            lambda a: a[0], (starts, servers, eta, numbers)
        )

        def some(j: jax.Array, messages: jax.Array) -> jax.Array:
            here = partial(lax.dynamic_slice_in_dim, start_index=j * C, slice_size=C)
            i, tau, length, w, server, eta_i, number = jax.tree.map(
                here, (seats.slot, seats.tau, seats.length, starts, servers, eta, numbers)
            )
            keys = [round_keys(key, use, number) for use in (ORDER, NOISE)]
            chunk = Chunk(i, tau, length, w, eta_i[:, None], *keys)
            m_i, _ = local_work(
                program, solver, rows(clients, i), server, shard, chunk, server_axis=0
            )
            return lax.dynamic_update_slice_in_dim(messages, m_i, j * C, axis=0)

        return lax.fori_loop(0, -(-seats.clients // C), some, jnp.zeros_like(starts))[None]

    on_clients = P(CLIENTS)
    return program.on_devices(on_device, (*[on_clients] * 6, P(), on_clients), on_clients)(
        starts, servers, clients, shard, seats, eta, key, numbers
    )


def rows(tree: Tree, i: jax.Array) -> Tree:
    """Return some rows of each array."""
    return jax.tree.map(lambda a: a[i], tree)


def local_work(
    program: Program,
    solver: Solver,
    client: ClientState,
    server: Tree,
    shard: Shard,
    chunk: Chunk,
    server_axis: int | None = None,
) -> tuple[jax.Array, Posted]:
    """Return the messages of a chunk of clients after their local steps, and what they keep."""
    C = program.chunk
    drift = jax.vmap(solver.drift, in_axes=(0, server_axis), axis_size=C)(client.own, server)
    Delta_i = local_steps(program, solver, drift, shard, chunk)
    u = jnp.zeros((C, 0), chunk.w.dtype)
    if solver.compression.random:
        u = jax.vmap(uniforms)(chunk.noise_keys, shard.number[chunk.i], Delta_i)
    post = jax.vmap(solver.post, in_axes=(0, 0, 0, server_axis, 0))
    return post(Delta_i, jnp.maximum(chunk.length, 1), client, server, u)


def local_steps(
    program: Program, solver: Solver, drift: jax.Array, shard: Shard, chunk: Chunk
) -> jax.Array:
    """Return Delta_i = (w - w_i) / eta of a chunk of clients after tau_i steps each."""
    gradient = jax.vmap(jax.grad(partial(mean_loss, program.problem)))
    parts = jax.tree.leaves(jax.vmap(program.layout.unravel)(chunk.w))
    sample = sampler(program, shard, chunk.i, chunk.order_keys)
    if drift.ndim == 2:
        drifts = jax.tree.leaves(jax.vmap(program.layout.unravel)(drift))
    else:
        drifts = [beside(drift, part) for part in parts]

    def step(t: jax.Array, carry: tuple[Tree, Tree, jax.Array]) -> tuple[Tree, Tree, jax.Array]:
        w_i, memory, order = carry
        batch, weights, order = sample(t, order)
        g = jax.tree.leaves(gradient(program.layout.tree(w_i), batch, weights))
        length = jnp.where(t < chunk.tau, chunk.eta.reshape(-1), 0.0)
        after = []
        for part in zip(w_i, g, drifts, parts, memory, strict=True):
            w_i_part, g_part, drift_part, w_part, memory_part = part
            d_i = solver.direction(g_part, drift_part, w_i_part, w_part)
            d_i, memory_part = solver.local.step(d_i, memory_part)
            after.append((w_i_part - beside(length, d_i) * d_i, memory_part))
        return [w for w, _ in after], [memory for _, memory in after], order

    start = (parts, [solver.local.start(part) for part in parts], no_order(program, shard))
    w_i, _, _ = lax.fori_loop(0, chunk.tau.max(), step, start)
    return (chunk.w - jax.vmap(program.layout.ravel)(program.layout.tree(w_i))) / chunk.eta


def beside(per_client: jax.Array, array: jax.Array) -> jax.Array:
    """Return one number for each client in the shape that multiplies an array of clients."""
    return per_client.reshape(-1, *[1] * (array.ndim - 1))
