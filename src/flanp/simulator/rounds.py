"""The compiled program of a round: local work, then the steps of the server and the clients."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from flanp.simulator.program import CLIENTS, Numbers, Program, Shard, mean_loss
from flanp.simulator.sampling import no_order, round_keys, sampler, step_keys, uniforms
from flanp.solvers import ClientState, Step
from flanp.solvers.training import Posted, Training
from flanp.streams import DROPOUT, NOISE, ORDER
from flanp.trees import Tree, Vector


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
    loss_keys: jax.Array


USES = ORDER, NOISE, DROPOUT
"""What the keys of a chunk are for, in order."""

Arrays = tuple[jax.Array, Tree, Tree, Tree, jax.Array]
"""w, the states at the server and at the clients, room for what is posted, the mean first
direction of the participants where absent clients need it."""


@partial(jax.jit, static_argnums=0)
def restart(program: Program, numbers: Numbers, w: jax.Array, clients: Tree) -> tuple[Tree, Tree]:
    """Return the solver's start states, the clients' in the shape of those given."""
    solver = program.solver(numbers)

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
    numbers: Numbers,
    w: jax.Array,
    server: Tree,
    clients: Tree,
    inbox: Tree,
    shard: Shard,
    seats: Seats,
    step: Step,
    key: jax.Array,
    number: jax.Array,
) -> Arrays:
    """Run one round; return the new w, server state, client states, message room and m_1."""
    solver, C = program.solver(numbers), program.chunk
    keys = [jnp.broadcast_to(round_keys(key, use, number[None]), (C,)) for use in USES]

    def on_device(
        w: jax.Array,
        server: Tree,
        clients: Tree,
        inbox: Tree,
        shard: Shard,
        seats: Seats,
        step: Step,
        keys: list[jax.Array],
    ) -> Arrays:
        seats = Seats(*(a[0] for a in seats))
        chunks, told = -(-seats.clients // C), solver.tell(server)
        starts = jnp.broadcast_to(w, (C, w.size))

        def work(j: jax.Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            means, inbox = carry
            i, tau, length, p = (lax.dynamic_slice_in_dim(a, j * C, C) for a in seats[:4])
            chunk = Chunk(i, tau, length, starts, step.eta, *keys)
            done = local_work(program, solver, rows(clients, i), told, shard, chunk)
            means = jax.tree.map(lambda m, m_i: m + p @ m_i, means, (done.m_i, done.first))
            return means, jax.tree.map(lambda a, b: a.at[i].set(b), inbox, done.posted)

        zeros = jnp.zeros_like(w), jnp.zeros(w.size * solver.remembers_absent, w.dtype)
        means, inbox = lax.fori_loop(0, chunks, work, (zeros, inbox))
        m, m_1 = lax.psum(means, CLIENTS)
        settle = jax.vmap(solver.settle, in_axes=(0, None, 0, None, None), axis_size=C)

        def finish(j: jax.Array, clients: Tree) -> Tree:
            i = lax.dynamic_slice_in_dim(seats.slot, j * C, C)
            after = settle(rows(clients, i), told, rows(inbox, i), m, step)
            return jax.tree.map(lambda a, b: a.at[i].set(b), clients, after)

        clients = lax.fori_loop(0, chunks, finish, clients)
        w, server = solver.server_step(w, server, m, step)
        return w, server, clients, inbox, m_1

    on_clients, everywhere = P(CLIENTS), P()
    return program.on_devices(
        on_device,
        (everywhere, everywhere, *[on_clients] * 4, everywhere, everywhere),
        (everywhere, everywhere, on_clients, on_clients, everywhere),
    )(w, server, clients, inbox, shard, seats, step, keys)


class Recalled(NamedTuple):
    """What absent clients work on: of each array a row for each seat."""

    w: Vector
    """The model that it was sent."""
    server: Tree
    """What it was told of the server's state."""
    m_1: Vector
    """The participants' mean first direction from that model."""
    eta: Vector
    number: Vector
    """The round that it works for."""


@partial(jax.jit, static_argnums=0, donate_argnums=3)
def recall(
    program: Program,
    numbers: Numbers,
    server: Tree,
    clients: Tree,
    shard: Shard,
    seats: Seats,
    recalled: Recalled,
    step: Step,
    key: jax.Array,
) -> tuple[Tree, Tree]:
    """Return the states of the server and of the clients after the messages of absent clients."""
    solver, C = program.solver(numbers), program.chunk

    def on_device(
        server: Tree,
        clients: Tree,
        shard: Shard,
        seats: Seats,
        recalled: Recalled,
        step: Step,
        key: jax.Array,
    ) -> tuple[Tree, Tree]:
        seats, recalled = jax.tree.map(lambda a: a[0], (seats, recalled))
        settle = jax.vmap(solver.settle, in_axes=(0, 0, 0, 0, None), axis_size=C)

        def some(j: jax.Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            clients, change = carry
            here = partial(lax.dynamic_slice_in_dim, start_index=j * C, slice_size=C)
            i, tau, length, p = map(here, seats[:4])
            at: Recalled = jax.tree.map(here, recalled)
            keys = [round_keys(key, use, at.number) for use in USES]
            eta = jnp.where(at.eta > 0, at.eta, 1)  # it is 0 at empty seats
            chunk = Chunk(i, tau, length, at.w, eta[:, None], *keys)
            before = rows(clients, i)
            done = local_work(program, solver, before, at.server, shard, chunk, server_axis=0)
            after = settle(before, at.server, done.posted, at.m_1, step)
            change = jax.tree.map(
                lambda sum_, a, b: sum_ + jnp.tensordot(p, b - a, 1), change, before.own, after.own
            )
            return jax.tree.map(lambda a, b: a.at[i].set(b), clients, after), change

        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape[1:], a.dtype), clients.own)
        clients, change = lax.fori_loop(0, -(-seats.clients // C), some, (clients, nothing))
        return solver.recall(server, lax.psum(change, CLIENTS)), clients

    on_clients, everywhere = P(CLIENTS), P()
    return program.on_devices(
        on_device,
        (everywhere, *[on_clients] * 4, everywhere, everywhere),
        (everywhere, on_clients),
    )(server, clients, shard, seats, recalled, step, key)


Walk = tuple[Tree, Tree, jax.Array, list[jax.Array]]
"""Local models, the local steps' memories, the order of samples, the first directions."""


class Done(NamedTuple):
    """What comes of local work."""

    m_i: jax.Array
    """The messages."""
    posted: Posted
    """What the clients keep."""
    first: jax.Array
    """The first directions, where they are needed."""


def rows(tree: Tree, i: jax.Array) -> Tree:
    """Return some rows of each array."""
    return jax.tree.map(lambda a: a[i], tree)


def local_work(
    program: Program,
    solver: Training,
    client: ClientState,
    server: Tree,
    shard: Shard,
    chunk: Chunk,
    server_axis: int | None = None,
) -> Done:
    """Return what comes of the local steps of a chunk of clients."""
    C = program.chunk
    drift = jax.vmap(solver.drift, in_axes=(0, server_axis), axis_size=C)(client.own, server)
    Delta_i, first = local_steps(program, solver, drift, shard, chunk)
    u = jnp.zeros((C, 0), chunk.w.dtype)
    if solver.compression.random:
        u = jax.vmap(uniforms)(chunk.noise_keys, shard.number[chunk.i], Delta_i)
    post = jax.vmap(solver.post, in_axes=(0, 0, 0, server_axis, 0))
    m_i, posted = post(Delta_i, jnp.maximum(chunk.length, 1), client, server, u)
    return Done(m_i, posted, first)


def local_steps(
    program: Program, solver: Training, drift: jax.Array, shard: Shard, chunk: Chunk
) -> tuple[jax.Array, jax.Array]:
    """Return Delta_i = (w - w_i) / eta of a chunk of clients after tau_i steps each.

    Their first directions come with it, where the solver needs them to set absent clients against.
    """
    gradient = jax.vmap(jax.grad(partial(mean_loss, program.problem)))
    parts = jax.tree.leaves(jax.vmap(program.layout.unravel)(chunk.w))
    sample = sampler(program, shard, chunk.i, chunk.order_keys)
    if drift.ndim == 2:
        drifts = jax.tree.leaves(jax.vmap(program.layout.unravel)(drift))
    else:
        drifts = [beside(drift, part) for part in parts]

    def step(t: jax.Array, carry: Walk) -> Walk:
        w_i, memory, order, first = carry
        batch, weights, order = sample(t, order)
        keys = None
        if program.problem.draws:
            keys = step_keys(chunk.loss_keys, shard.number[chunk.i], t)
        g = jax.tree.leaves(gradient(program.layout.tree(w_i), batch, weights, keys))
        length = jnp.where(t < chunk.tau, chunk.eta.reshape(-1), 0.0)
        after, directions = [], []
        for part in zip(w_i, g, drifts, parts, memory, strict=True):
            w_i_part, g_part, drift_part, w_part, memory_part = part
            d_i = solver.direction(g_part, drift_part, w_i_part, w_part)
            directions.append(d_i)
            d_i, memory_part = solver.local.step(d_i, memory_part)
            after.append((w_i_part - beside(length, d_i) * d_i, memory_part))
        first = [jnp.where(t == 0, *pair) for pair in zip(directions, first, strict=False)]
        return [w for w, _ in after], [memory for _, memory in after], order, first

    memory = [solver.local.start(part) for part in parts]
    room = [jnp.zeros_like(part) for part in parts] if solver.remembers_absent else []
    start = (parts, memory, no_order(program, shard), room)
    w_i, _, _, first = lax.fori_loop(0, chunk.tau.max(), step, start)
    flat = jax.vmap(program.layout.ravel)
    Delta_i = (chunk.w - flat(program.layout.tree(w_i))) / chunk.eta
    return Delta_i, flat(program.layout.tree(first)) if first else jnp.zeros((program.chunk, 0))


def beside(per_client: jax.Array, array: jax.Array) -> jax.Array:
    """Return one number for each client in the shape that multiplies an array of clients."""
    return per_client.reshape(-1, *[1] * (array.ndim - 1))
