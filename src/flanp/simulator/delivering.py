"""Going through arrivals with a compiled program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flanp.engine import Round
from flanp.simulator.arriving import Fleet, Line, arrivals
from flanp.simulator.flights import Events
from flanp.simulator.kept import Traffic
from flanp.simulator.machine import CompiledMachine
from flanp.solvers.asynchronous import AsyncSolver
from flanp.trees import Tree


class CompiledArrivals:
    """All the work between two looks at the model is one program, event by event, on one device."""

    def __init__(self, machine: CompiledMachine, solver: AsyncSolver):
        self.machine, self.solver = machine, solver

    def start(self) -> Traffic:
        """Return the arrays at the start, when nobody has been sent a model."""
        machine, solver = self.machine, self.solver
        with machine.running():
            w = machine.start_w
            server = jax.tree.map(jnp.asarray, solver.server_start(w))
            steps = jnp.zeros((), jnp.int32)

            def for_each(tree: Tree) -> Tree:
                rows = machine.place.rows
                return jax.tree.map(lambda a: jnp.broadcast_to(a, (rows, *jnp.shape(a))), tree)

            told, noted = jax.tree.map(jnp.asarray, (solver.tell(server), solver.note(server)))
            kept = jax.tree.map(jnp.asarray, solver.join(w))
            tables = (for_each(a) for a in (kept, w, told, noted, steps))
            return jax.device_put(Traffic(w, server, steps, *tables), machine.place.everywhere)

    def arrive(self, traffic: Traffic, events: Events, round_: Round) -> tuple[Traffic, np.ndarray]:
        """Go through events; return what they lead to, and whether each message was used."""
        machine, count = self.machine, len(events.client)
        room = 1 << (count - 1).bit_length()
        weight = machine.s / machine.s.mean()

        def padded(a: np.ndarray, dtype: Any) -> np.ndarray:
            return np.concatenate([a, np.zeros(room - count)]).astype(dtype)

        length = self.solver.local.length(np.maximum(events.tau, 1))
        line = Line(
            padded(machine.place.row_of_client[events.client], np.int32),
            padded(events.arrives, bool),
            padded(events.departs, bool),
            padded(events.number, np.int32),
            padded(events.tau, np.int32),
            padded(length, machine.precision),
            padded(weight[events.client], machine.precision),
            np.int32(count),
        )
        total = float(weight[round_.active].sum())
        numbers = (len(round_.active), total, round_.eta, round_.gamma)
        fleet = Fleet(*np.array(numbers, machine.precision))
        with machine.running():
            traffic, used = arrivals(
                machine.program, machine.numbers, traffic, machine.shard, line, fleet, machine.key
            )
            return traffic, np.asarray(used)[:count] > 0
