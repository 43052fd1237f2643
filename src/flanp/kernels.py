"""The compiled programs of the simulator: a round, a measurement, an evaluation."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from flanp.layout import Layout
from flanp.problems import Problem
from flanp.solvers import Solver, Step

CLIENTS = "clients"
"""Name of the mesh axis that the clients are dealt along."""
BLOCK = 512
"""Rows that a measurement takes at a time, which bounds its memory."""


@dataclass(frozen=True)
class Program:
    """All that decides the compiled code; equal programs share one compilation."""

    problem: Problem
    metric: Problem
    """The problem whose metric is evaluated (`problem` itself unless that was condensed)."""
    solver: Solver
    layout: Layout
    batch: int | None
    chunk: int
    """C, how many clients a device works on side by side."""
    mesh: Mesh


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


class Plan(NamedTuple):
    """Which slots of a device work, in order; entries past `count` are padding."""

    slot: Any
    tau: Any
    """Local steps; in a measurement 1 for the active clients and 0 for the others."""
    p: Any
    """Weight in the mean."""
    count: Any


@partial(jax.jit, static_argnums=0)
def restart(program: Program, w: jax.Array, clients: Any) -> tuple[Any, Any]:
    """Return the solver's start states, the clients' in the shape of those given."""

    def on_device(w: jax.Array, clients: Any) -> tuple[Any, Any]:
        server, client = program.solver.start(w)
        spread = jax.tree.map(lambda room, a: jnp.broadcast_to(a, room.shape), clients, client)
        return server, spread

    specs = (P(), P(CLIENTS))
    return _on_devices(program, on_device, specs, specs)(w, clients)


@partial(jax.jit, static_argnums=0, donate_argnums=(3, 4))
def round_(
    program: Program,
    w: jax.Array,
    server: Any,
    clients: Any,
    inbox: Any,
    shard: Shard,
    plan: Plan,
    step: Step,
    key: jax.Array,
    number: jax.Array,
) -> tuple[jax.Array, Any, Any, Any]:
    """Run one round and return the new w, server state, client states and message room."""
    solver, C = program.solver, program.chunk
    key = jax.random.fold_in(jax.random.fold_in(key, 1), number)

    def on_device(
        w: jax.Array,
        server: Any,
        clients: Any,
        inbox: Any,
        shard: Shard,
        plan: Plan,
        step: Step,
        key: jax.Array,
    ) -> tuple[jax.Array, Any, Any, Any]:
        plan = Plan(*(a[0] for a in plan))
        chunks = -(-plan.count // C)

        def work(j: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            m, inbox = carry
            i, tau, p = (lax.dynamic_slice_in_dim(a, j * C, C) for a in plan[:3])
            client = jax.tree.map(lambda a: a[i], clients)
            drift = solver.drift(client, server)
            Delta_i = _local_steps(program, w, drift, shard, i, tau, step.eta, key)
            m_i = solver.message(Delta_i, jnp.maximum(tau, 1)[:, None])
            return m + p @ m_i, jax.tree.map(lambda a: a.at[i].set(m_i), inbox)

        m, inbox = lax.fori_loop(0, chunks, work, (jnp.zeros_like(w), inbox))
        m = lax.psum(m, CLIENTS)

        def finish(j: jax.Array, clients: Any) -> Any:
            i = lax.dynamic_slice_in_dim(plan.slot, j * C, C)
            client, m_i = (jax.tree.map(lambda a: a[i], x) for x in (clients, inbox))
            client = solver.client_step(client, server, m_i, m)
            return jax.tree.map(lambda a, b: a.at[i].set(b), clients, client)

        clients = lax.fori_loop(0, chunks, finish, clients)
        w, server = solver.server_step(w, server, m, step)
        return w, server, clients, inbox

    return _on_devices(
        program,
        on_device,
        (P(), P(), P(CLIENTS), P(CLIENTS), P(CLIENTS), P(CLIENTS), P(), P()),
        (P(), P(), P(CLIENTS), P(CLIENTS)),
    )(w, server, clients, inbox, shard, plan, step, key)


def _local_steps(
    program: Program,
    w: jax.Array,
    drift: Any,
    shard: Shard,
    i: jax.Array,
    tau: jax.Array,
    eta: jax.Array,
    key: jax.Array,
) -> jax.Array:
    """Return Delta_i = (w - w_i) / eta of the chunk of clients in slots i after tau_i steps."""
    layout, direction = program.layout, program.solver.direction
    gradient = jax.vmap(jax.grad(partial(_mean_loss, program.problem)))
    w_tree = layout.unravel(w)
    drift_tree = jax.vmap(layout.unravel)(drift) if jnp.ndim(drift) else layout.fill(drift)
    sampler = _sampler(program, shard, i, key)

    def step(t: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        w_i, order = carry
        batch, weights, order = sampler(t, order)
        g = gradient(w_i, batch, weights)
        length = jnp.where(t < tau, eta, 0.0)

        def descend(w_i: jax.Array, g: jax.Array, drift: jax.Array, w: jax.Array) -> jax.Array:
            d_i = direction(g, drift, w_i, w)
            return w_i - length.reshape(-1, *[1] * (w_i.ndim - 1)) * d_i

        return jax.tree.map(descend, w_i, g, drift_tree, w_tree), order

    C = program.chunk
    start = jax.tree.map(lambda a: jnp.broadcast_to(a, (C, *a.shape)), w_tree)
    order = jnp.zeros((C, _epoch_room(program, shard)), jnp.int32)
    w_i, _ = lax.fori_loop(0, tau.max(), step, (start, order))
    return (w - jax.vmap(layout.ravel)(w_i)) / eta


def _sampler(program: Program, shard: Shard, i: jax.Array, key: jax.Array) -> Callable[..., Any]:
    """Return a function (step number, order) -> (batch, weights, order) for the clients i.

    Each epoch goes through a client's samples in a fresh random order, which depends on
    nothing but the seed, the round, the client and the epoch.
    """
    b = program.batch
    rows, S = shard.rows[i], shard.weights.shape[1]

    if b is None:
        batch = tuple(a[i] for a in shard.batch)
        return lambda t, order: (batch, shard.weights[i], order)

    steps_per_epoch = jnp.maximum(1, -(-rows // b))

    def sample(t: jax.Array, order: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        epoch, place = t // steps_per_epoch, t % steps_per_epoch

        def shuffle(order: jax.Array) -> jax.Array:
            fresh = jax.vmap(partial(sample_order, key, room=order.shape[1]))
            return jnp.where((place == 0)[:, None], fresh(shard.number[i], epoch, rows), order)

        order = lax.cond((place == 0).any(), shuffle, lambda order: order, order)
        position = place[:, None] * b + jnp.arange(b)
        row = jnp.minimum(jnp.take_along_axis(order, position, axis=1), S - 1)
        batch = tuple(a[i[:, None], row] for a in shard.batch)
        return batch, (position < rows[:, None]).astype(shard.weights.dtype), order

    return sample


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


def _epoch_room(program: Program, shard: Shard) -> int:
    if program.batch is None:
        return 0
    return -(-shard.weights.shape[1] // program.batch) * program.batch


@partial(jax.jit, static_argnums=0)
def measure(program: Program, w: jax.Array, shard: Shard, plan: Plan) -> jax.Array:
    """Return, for the active and for all clients of the plan, six numbers.

    They are: how many clients and samples; the mean loss; the squared norm of the mean gradient
    g; the mean of ||g_i||^2; the mean of ||g_h - g_i||^2 over the halves h of the clients.
    """
    C = program.chunk

    def on_device(w: jax.Array, shard: Shard, plan: Plan) -> jax.Array:
        plan = Plan(*(a[0] for a in plan))
        params = program.layout.unravel(w)

        def work(j: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            sums, gradient = carry
            i, active, s = (lax.dynamic_slice_in_dim(a, j * C, C) for a in plan[:3])
            s_h, loss_h, g_h = lax.map(partial(_half, program, params, shard, i), jnp.arange(2))
            g = g_h.sum(axis=0) / jnp.maximum(s, 1)[:, None]
            apart = g_h / jnp.maximum(s_h, 1)[..., None] - g
            within = (s_h * (apart**2).sum(axis=-1)).sum(axis=0)
            exists = (s > 0).astype(s.dtype)
            columns = (exists, s, loss_h.sum(axis=0), s * (g**2).sum(axis=-1), within)
            inside = jnp.stack([active * exists, exists])
            return sums + inside @ jnp.stack(columns, axis=1), gradient + (inside * s) @ g

        zero = jnp.zeros((2, 5), w.dtype), jnp.zeros((2, w.size), w.dtype)
        sums, gradient = lax.fori_loop(0, -(-plan.count // C), work, zero)
        sums, gradient = lax.psum((sums, gradient), CLIENTS)
        clients, S, loss, squares, within = sums.T
        norm_sq = ((gradient / S[:, None]) ** 2).sum(axis=1)
        return jnp.stack([clients, S, loss / S, norm_sq, squares / S, within / S], axis=1)

    return _on_devices(program, on_device, (P(), P(CLIENTS), P(CLIENTS)), P())(w, shard, plan)


def _half(
    program: Program, params: Any, shard: Shard, i: jax.Array, half: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return samples, summed loss and summed gradient of every second row of the clients i."""
    C = program.chunk
    rows = -(-shard.weights.shape[1] // 2)
    block = min(rows, BLOCK)

    def add(k: jax.Array, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        row = 2 * (k * block + jnp.arange(block)) + half
        at = (i[:, None], row[None, :])
        weights = shard.weights.at[at].get(mode="fill", fill_value=0)
        batch = tuple(a.at[at].get(mode="clip") for a in shard.batch)
        value_and_grad = jax.value_and_grad(partial(summed_loss, program.problem))
        loss, g = jax.vmap(value_and_grad, in_axes=(None, 0, 0))(params, batch, weights)
        s_h, loss_h, g_h = carry
        return s_h + weights.sum(axis=1), loss_h + loss, g_h + jax.vmap(program.layout.ravel)(g)

    dtype = shard.weights.dtype
    zero = jnp.zeros(C, dtype), jnp.zeros(C, dtype), jnp.zeros((C, program.layout.size), dtype)
    return lax.fori_loop(0, -(-rows // block), add, zero)


@partial(jax.jit, static_argnums=0)
def evaluate(
    program: Program, w: jax.Array, test: tuple[Any, jax.Array] | None, w_star: jax.Array | None
) -> dict[str, jax.Array]:
    """Return the mean metric over held-out rows and the distance to w*, where there are any."""

    def metric(w: jax.Array, test: tuple[Any, jax.Array]) -> jax.Array:
        batch, weights = test
        of_row = _of_each_row(program.metric.metric, program.layout.unravel(w), batch)
        total, count = lax.psum((weights @ of_row.astype(weights.dtype), weights.sum()), CLIENTS)
        return total / count

    values = {}
    if test is not None:
        values["metric"] = _on_devices(program, metric, (P(), P(CLIENTS)), P())(w, test)
    if w_star is not None:
        values["distance"] = jnp.linalg.norm(w - w_star)
    return values


def _mean_loss(problem: Problem, params: Any, batch: Any, weights: jax.Array) -> jax.Array:
    return summed_loss(problem, params, batch, weights) / jnp.maximum(weights.sum(), 1)


def summed_loss(problem: Problem, params: Any, batch: Any, weights: jax.Array) -> jax.Array:
    """Return the weighted sum of the loss over the rows of a batch."""
    return weights @ _of_each_row(problem.loss, params, batch)


def _of_each_row(f: Callable[..., jax.Array], params: Any, batch: Any) -> jax.Array:
    """Return f of each row by itself, so that rows can be weighted."""
    return jax.vmap(lambda row: f(params, jax.tree.map(lambda a: a[None], row)))(batch)


def _on_devices(program: Program, f: Callable[..., Any], inputs: Any, outputs: Any) -> Any:
    # Unchecked: the check refuses a user's loss with a scan or a cond that starts from a constant.
    return jax.shard_map(f, mesh=program.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
