"""The compiled program of arrivals: local work, and the server's step, one after the other."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from flanp.simulator.kept import Traffic
from flanp.simulator.program import Numbers, Program, Shard
from flanp.simulator.rounds import USES, Chunk, local_work, rows
from flanp.simulator.sampling import round_keys
from flanp.solvers import ClientState
from flanp.solvers.asynchronous import Arrival, AsyncSolver
from flanp.trees import Number, Tree


class Line(NamedTuple):
    """Events in order; entries past `count` are padding."""

    slot: Number
    arrives: Number
    departs: Number
    number: Number
    tau: Number
    length: Number
    """How many plain steps the tau local steps come to."""
    weight: Number
    """The client's samples, in units of the mean over all clients."""
    count: Number


class Fleet(NamedTuple):
    """Who is at work, and with what step sizes."""

    clients: Number
    total: Number
    """Their weights, added up."""
    eta: Number
    gamma: Number


@partial(jax.jit, static_argnums=0)
def arrivals(
    program: Program,
    numbers: Numbers,
    traffic: Traffic,
    shard: Shard,
    line: Line,
    fleet: Fleet,
    key: jax.Array,
) -> tuple[Traffic, jax.Array]:
    """Go through events; return what they lead to, and whether each message was used."""
    solver = program.solver(numbers)
    assert isinstance(solver, AsyncSolver)
    single = replace(program, chunk=1)

    def event(e: jax.Array, carry: tuple[Traffic, jax.Array]) -> tuple[Traffic, jax.Array]:
        t, used = carry
        i = line.slot[e]
        client, told, noted = (rows(table, i) for table in (t.clients, t.told, t.noted))
        start = t.start[i]

        def arrive() -> tuple[jax.Array, Tree, ClientState, jax.Array, jax.Array]:
            keys = [round_keys(key, use, line.number[e][None]) for use in USES]
            steps = line.tau[e][None], line.length[e][None]
            chunk = Chunk(i[None], *steps, start[None], fleet.eta, *keys)
            alone, heard = jax.tree.map(lambda a: a[None], (client, told))
            done = local_work(single, solver, alone, heard, shard, chunk, server_axis=0)
            arrival = Arrival(
                start,
                told,
                noted,
                (t.steps - t.sent_at[i]).astype(t.w.dtype),
                line.weight[e],
                fleet.total,
                fleet.clients,
                line.length[e],
                fleet.eta,
                fleet.gamma,
            )
            after = solver.arrive(t.w, t.server, client.own, done.m_i[0], arrival)
            kept = ClientState(after.own, jax.tree.map(lambda a: a[0], done.posted.error))
            numbers = (jnp.asarray(x, t.w.dtype) for x in (after.used, after.stepped))
            return after.w, after.server, kept, *numbers

        def skip() -> tuple[jax.Array, Tree, ClientState, jax.Array, jax.Array]:
            none = jnp.zeros((), t.w.dtype)
            return t.w, t.server, client, none, none

        w, server, kept, was_used, stepped = lax.cond(line.arrives[e], arrive, skip)
        steps = t.steps + stepped.astype(jnp.int32)
        now = (w, solver.tell(server), solver.note(server), steps)
        before = (start, told, noted, t.sent_at[i])
        start, told, noted, sent_at = jax.tree.map(partial(jnp.where, line.departs[e]), now, before)

        def put(table: Tree, row: Tree) -> Tree:
            return jax.tree.map(lambda a, b: a.at[i].set(b), table, row)

        after = Traffic(
            w,
            server,
            steps,
            put(t.clients, kept),
            put(t.start, start),
            put(t.told, told),
            put(t.noted, noted),
            put(t.sent_at, sent_at),
        )
        return after, used.at[e].set(was_used)

    none = jnp.zeros(line.slot.shape, traffic.w.dtype)
    return lax.fori_loop(0, line.count, event, (traffic, none))
