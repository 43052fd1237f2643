"""The engine that simulates rounds on this machine, with a virtual clock."""

from typing import Any

import numpy as np

from flanp.clock import Clock
from flanp.data.federated import FederatedData
from flanp.engine import Reply, Round
from flanp.measurement import Look, Seen
from flanp.problems import Objective
from flanp.simulator.backend import Backend
from flanp.simulator.clients import SimulatedClients
from flanp.simulator.compiled import COMPILED
from flanp.simulator.kept import Model, Past
from flanp.simulator.outcomes import Outcome, outcome
from flanp.simulator.saving import load_arrays, save_arrays
from flanp.simulator.world import World
from flanp.solvers import Solver
from flanp.tasks import NO_TASKS
from flanp.trees import Tree, as_arrays, transform


class Simulator(SimulatedClients[Model]):
    """An engine (flanp.engine) that simulates all clients: their work, and how long it takes."""

    def __init__(
        self,
        problem: Objective,
        data: FederatedData,
        solver: Solver,
        world: World,
        first: int = 1,
        *,
        backend: Backend = COMPILED,
        **options: Any,
    ):
        """Set the clients up; see `SimulatedClients`."""
        super().__init__(problem, data, solver, world, first, backend=backend, **options)
        self.solver, self.rounds = solver, backend.rounds(self.machine, solver)

    def start(self) -> Model:
        """Return the start model."""
        return self.rounds.start()

    def restart(self, model: Model) -> Model:
        """Keep w and start the solver afresh, unless it remembers."""
        return self.rounds.restart(model)

    def ask(self, model: Model, round_: Round, look: Look) -> Reply:
        """See who answers in time; the work itself is done when the reply is applied."""
        two = self.solver.remembers_absent and round_.tau.max() > 1
        back = self._message_bytes * (2 if two else 1)
        what = outcome(
            self.world,
            round_,
            model.under_way,
            self._model_bytes,
            back,
            self._message_bytes if self.solver.remembers_absent else None,
        )
        late = np.where(what.came.tau > 1, back, self._message_bytes)
        seen = self.look(model, what.answered if len(what.answered) else round_.active, look)
        if not len(what.answered):
            seen = seen._replace(each=None)  # nobody has reported a loss
        return Reply(
            round=round_,
            answered=what.answered,
            seconds=what.seconds,
            spent=what.spent,
            seen=seen,
            sent=len(what.answered) * back + int(late.sum()),
            received=what.asked * self._model_bytes,
            heard=(*self._probed(round_.at, round_.at + what.seconds), *what.heard),
            late=what.done,
            content=what,
        )

    def apply(self, model: Model, reply: Reply) -> Model:
        """Do the work of those who answered, and the steps that end the round."""
        round_, what = reply.round, reply.content
        before = model
        # Of those who take part now, what they did before they joined comes first.
        joined = what.done[np.isin(what.done.client, what.answered)] if len(what.done) else NO_TASKS
        if len(joined):
            model = self.rounds.recall(model, joined, round_.eta, round_.gamma)
        recalled, model = model.server, model._replace(server=before.server)
        if len(reply.answered):
            model = self.rounds.round(
                model, round_.number, what.answered, what.tau, round_.eta, round_.gamma, round_.pool
            )
        if self.solver.remembers_absent:
            model = self._recall(before, model, recalled, round_, what)
        if not len(what.under_way) and not len(before.under_way) and not model.past:
            return model
        needed = {*what.under_way.number.tolist()}
        past = {q: past for q, past in model.past.items() if q in needed}
        return model._replace(under_way=what.under_way, past=past)

    def _recall(
        self, before: Model, after: Model, recalled: Tree, round_: Round, what: Outcome
    ) -> Model:
        """Return the model after what has come of absent clients; note what they work on.

        `recalled` is the server's state with what those had done who joined in this round.
        """
        # On the host, for messages of many rounds are put side by side there.
        told = as_arrays(self.solver.tell(before.server))
        here = Past(np.asarray(before.w), told, np.asarray(after.m_1))
        past = before.past | {round_.number: here}
        heard = before.heard.copy()
        heard[what.answered] = heard[what.done.client] = True
        server = transform(lambda a, b, c: a + (b - c), after.server, recalled, before.server)
        after = after._replace(server=server, past=past, heard=heard)
        absent = what.done[~np.isin(what.done.client, what.answered)]
        if not len(absent):
            return after
        return self.rounds.recall(after, absent, round_.eta, round_.gamma)

    def look(self, model: Model, active: np.ndarray, look: Look) -> Seen:
        """Return loss and gradient of w over the active clients and over all, as asked."""
        remembered = (model.server, model.clients, model.heard)
        remembers = self.solver.remembers_absent
        return self.machine.look(model.w, active, look, remembered if remembers else None)

    def save(self, model: Model, clock: Clock) -> dict[str, np.ndarray]:
        """Return w, the states by name, with a row for each client by id, and what is under way."""
        return save_arrays(model, clock, self.machine.place)

    def load(self, arrays: dict[str, np.ndarray], clock: Clock) -> tuple[Model, Clock]:
        """Return the model and the clock that `save` was given, bit for bit."""
        with self.machine.running():
            return load_arrays(arrays, self.start(), clock, self.machine.place)
