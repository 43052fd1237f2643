"""Holding rounds with compiled programs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flanp.simulator import rounds
from flanp.simulator.kept import Model
from flanp.simulator.machine import CompiledMachine
from flanp.solvers import Solver, Step
from flanp.solvers.base import step_of
from flanp.tasks import Tasks
from flanp.trees import Tree


class CompiledRounds:
    """Holds rounds; whose, and when, is for its user to say.

    How many clients take part is data to the compiled program, not part of it: one compilation
    serves all stages.
    """

    def __init__(self, machine: CompiledMachine, solver: Solver):
        self.machine, self.solver = machine, solver

    def start(self) -> Model:
        """Return the start model."""
        w, remembers = self.machine.start_w, self.solver.remembers_absent
        with self.machine.running():
            clients, inbox = jax.eval_shape(self._first_posts, w)
            clients, inbox = self._for_each_client(clients), self._for_each_client(inbox)
            heard = np.zeros(self.machine.place.N * remembers, bool)
            model = Model(w, (), clients, inbox, w[: w.size * remembers], heard=heard)
            return self._afresh(model)

    def restart(self, model: Model) -> Model:
        """Keep w and start the solver afresh, unless it remembers."""
        return model if self.solver.remembers_absent else self._afresh(model)

    def _afresh(self, model: Model) -> Model:
        with self.machine.running():
            server, clients = rounds.restart(
                self.machine.program, self.machine.numbers, model.w, model.clients
            )
            return model._replace(server=server, clients=clients)

    def round(
        self,
        model: Model,
        number: int,
        answered: np.ndarray,
        tau: np.ndarray,
        eta: float,
        gamma: float,
        pool: float,
    ) -> Model:
        """Run a round with those who answered, tau_i local steps each, of a pool of samples."""
        with self.machine.running():
            seats, step = self.machine.on_devices(self._seating, answered, tau, eta, gamma, pool)
            arrays = rounds.round_(
                self.machine.program,
                self.machine.numbers,
                model.w,
                model.server,
                model.clients,
                model.inbox,
                self.machine.shard,
                seats,
                step,
                self.machine.key,
                np.int32(number),
            )
            # XLA's reductions between CPU devices can deadlock when programs queue up.
            w, server, clients, inbox, m_1 = jax.block_until_ready(arrays)
            return model._replace(w=w, server=server, clients=clients, inbox=inbox, m_1=m_1)

    def recall(self, model: Model, tasks: Tasks, eta: float, gamma: float) -> Model:
        """Return the model after the messages of clients that took no part in its rounds.

        Each starts from the model of the round that it was asked for in.
        """
        machine, place, clients = self.machine, self.machine.place, tasks.client
        chunk, s = machine.program.chunk, machine.s[clients]
        past = [model.past[number] for number in tasks.number.tolist()]

        def at_seats(*values: Any) -> np.ndarray:
            return place.at_seats(clients, np.stack(values), chunk)

        with machine.running():
            seats = place.seats(clients, tasks.tau, tasks.tau, s / machine.s.sum(), chunk)
            step = step_of(eta, gamma, s, tasks.tau, machine.s.sum())
            recalled = rounds.Recalled(
                at_seats(*(each.w for each in past)),
                jax.tree.map(at_seats, *(each.server for each in past)),
                at_seats(*(each.m_1 for each in past)),
                at_seats(*tasks.eta.astype(machine.precision)),
                at_seats(*tasks.number.astype(np.int32)),
            )
            server, states = rounds.recall(
                machine.program,
                machine.numbers,
                model.server,
                model.clients,
                machine.shard,
                seats,
                recalled,
                Step(*np.array(step, machine.precision)),
                machine.key,
            )
            return model._replace(server=server, clients=jax.block_until_ready(states))

    def _first_posts(self, w: jax.Array) -> tuple[Tree, Tree]:
        """Return what clients keep at the start, and what of a round until its mean is known."""
        client, told = self.solver.join(w), self.solver.tell(self.solver.server_start(w))
        return client, self.solver.post(w, 1, client, told, w)[1]

    def _for_each_client(self, tree: Tree) -> Tree:
        place = self.machine.place

        def room(a: jax.ShapeDtypeStruct) -> jax.Array:
            return jnp.zeros((place.rows, *a.shape), a.dtype, device=place.on_clients)

        return jax.tree.map(room, tree)

    def _seating(
        self, answered: np.ndarray, tau: np.ndarray, eta: float, gamma: float, pool: float
    ) -> Tree:
        machine, place = self.machine, self.machine.place
        s, length = machine.s[answered], self.solver.local.length(tau)
        step = step_of(eta, gamma, s, length, pool)
        seats = place.seats(answered, tau, length, s / s.sum(), machine.program.chunk)
        return (
            jax.device_put(seats, place.on_clients),
            jax.device_put(Step(*np.array(step, machine.precision)), place.everywhere),
        )
