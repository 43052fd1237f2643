"""All clients' arrays on this machine's devices, and the compiled programs that work on them."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from flanp.data.federated import FederatedData
from flanp.engine import Late
from flanp.measurement import Look, Seen
from flanp.memory import require_room
from flanp.metrics import Metric
from flanp.parts import with_values
from flanp.problems import Problem
from flanp.simulator import measuring, rounds
from flanp.simulator.layout import layout_of
from flanp.simulator.placement import Placement, chunk_size
from flanp.simulator.probing import (
    Computing,
    check_problem,
    check_range,
    check_traceable,
    condensed,
    first_params,
    minimiser,
)
from flanp.simulator.program import Evaluation, Program, Sight, StepSizes
from flanp.solvers import Solver, Step
from flanp.solvers.base import step_of
from flanp.solvers.checking import check_solver
from flanp.trees import Tree

KEPT = 8
"""How many rounds' seats are kept on the devices: in a stage each round asks for the same."""


class Model(NamedTuple):
    """What the simulator keeps of a run."""

    w: jax.Array
    """The global model, as one vector."""
    server: Tree
    """The solver's state at the server."""
    clients: Tree
    """All that clients keep: arrays with a row for each."""
    inbox: Tree
    """Room for what clients keep of a round until its mean message is known."""
    under_way: tuple[Late, ...] = ()
    """Work that was asked for in earlier rounds and is not done."""
    past: dict[int, tuple[jax.Array, Tree]] = {}  # noqa: RUF012  never changed
    """By number of the round, the models and the server's states that it is done from."""


class Machine:
    """Does rounds and measurements; whose, and when, is for its user to say.

    How many clients take part is data to the compiled program, not part of it: one compilation
    serves all stages.
    """

    def __init__(
        self,
        problem: Problem,
        data: FederatedData,
        solver: Solver,
        ranking: np.ndarray,
        batch: int | None = None,
        seed: int = 0,
        precision: Literal["float32", "float64"] = "float32",
        chunk: int | None = None,
        metrics: tuple[Metric, ...] = (),
    ):
        """Put the data on the devices.

        Args:
            problem: what is minimised.
            data: the clients' samples.
            solver: the federated solver.
            ranking: all clients, fastest first.
            batch: samples in a mini-batch; None: full local gradients.
            seed: of the start model and of the order of the samples.
            precision: of all arithmetic.
            chunk: clients that a core works on side by side; chosen by the model's size if None.
            metrics: what is measured on held-out data.
        """
        self.s, self.precision, self.solver = data.s, precision, solver
        self._kept: dict[Tree, Tree] = {}
        check_range(data, precision)
        check_solver(solver)
        self.place = place = Placement(ranking, precision)
        self._key = jax.random.key(seed)
        with self.running():
            params = first_params(problem, jax.random.fold_in(self._key, 0), data)
            self.layout = layout_of(params)
            check_problem(problem, metrics, params, data)
            w_star = minimiser(problem, data, self.layout)
            test = data.test
            if batch is None:
                problem, data = condensed(problem, data)
            rows = data.weights.shape[1]
            if batch is not None:
                batch = min(batch, rows)  # a larger one would hold the same samples, and padding
            chunk = chunk or chunk_size(self.layout.size, batch or rows, place.slots)
            self._sight = Sight(self.layout, place.mesh, problem, chunk)
            form = with_values(solver, eta=1.0, gamma=1.0)
            self.program = Program(self.layout, place.mesh, problem, chunk, form, batch)
            sizes = StepSizes(*np.array([solver.eta, solver.gamma], precision))
            self._sizes = jax.device_put(sizes, place.everywhere)
            check_traceable(solver, self.layout.size, precision)
            self._require_room(data.N)
            self._shard = place.deal(data)
            self._evaluation = Evaluation(self.layout, place.mesh, metrics)
            self._test = None if test is None or not metrics else place.deal_rows(test)
            w = self.layout.ravel(params).astype(precision)
            self.start_w = jax.device_put(w, place.everywhere)
            self._w_star = None if w_star is None else np.asarray(w_star, precision)
        self.everyone = np.arange(place.N)

    @property
    def metrics(self) -> dict[str, bool | None]:
        """The names of what `evaluate` returns; whether higher is better, if that is known."""
        measured = self._evaluation.metrics if self._test is not None else ()
        names = {metric.name: metric.higher_is_better for metric in measured}
        return names if self._w_star is None else names | {"distance": False}

    def start(self) -> Model:
        """Return the start model."""
        with self.running():
            clients, inbox = jax.eval_shape(self._first_posts, self.start_w)
            clients, inbox = self._for_each_client(clients), self._for_each_client(inbox)
            return self.restart(Model(self.start_w, (), clients, inbox))

    def restart(self, model: Model) -> Model:
        """Keep w and start the solver afresh."""
        with self.running():
            server, clients = rounds.restart(self.program, self._sizes, model.w, model.clients)
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
        with self.running():
            seats, step = self._on_devices(self._seating, answered, tau, eta, gamma, pool)
            arrays = rounds.round_(
                self.program,
                self._sizes,
                model.w,
                model.server,
                model.clients,
                model.inbox,
                self._shard,
                seats,
                step,
                self._key,
                np.int32(number),
            )
            # XLA's reductions between CPU devices can deadlock when programs queue up.
            return Model(*jax.block_until_ready(arrays))

    def work(self, model: Model, tasks: tuple[Late, ...]) -> np.ndarray:
        """Return the messages of clients that each start from a model of their own.

        They are those of the rounds that the tasks were asked for in, as far as `model` still
        has them. A client's own state is the one it has now.
        """
        clients = np.array([task.client for task in tasks])
        past, chunk = model.past, self.program.chunk

        def at_seats(values: list[Any], dtype: Any) -> jax.Array:
            rows = np.stack([np.asarray(v, dtype) for v in values])
            return jax.device_put(self.place.at_seats(clients, rows, chunk), self.place.on_clients)

        with self.running():
            tau = np.array([task.tau for task in tasks])
            length, ones = self.solver.local.length(tau), np.ones(len(tasks))
            seats = jax.device_put(
                self.place.seats(clients, tau, length, ones, chunk), self.place.on_clients
            )
            servers = [self.solver.tell(past[task.number][1]) for task in tasks]
            messages = rounds.work(
                self.program,
                self._sizes,
                at_seats([past[task.number][0] for task in tasks], self.precision),
                jax.tree.map(lambda *a: at_seats(list(a), a[0].dtype), *servers),
                model.clients,
                self._shard,
                seats,
                at_seats([task.eta for task in tasks], self.precision),
                self._key,
                at_seats([task.number for task in tasks], np.int32),
            )
            return self.place.from_seats(clients, np.asarray(messages))

    def look(self, model: Model, active: np.ndarray, look: Look) -> Seen:
        """Return loss and gradient of w over the active clients and over all, as asked."""
        if not look:
            return Seen()
        whole = Look.WHOLE in look
        if not len(active):
            active = self.everyone
        with self.running():
            covered = self._on_devices(self._covering, active, whole)
            sums = measuring.measure(self._sight, model.w, self._shard, covered)
            of_active, of_all = np.asarray(sums, float)
        return Seen(
            measuring.measurement(of_active), measuring.measurement(of_all) if whole else None
        )

    def evaluate(self, model: Model) -> dict[str, float]:
        """Return the metrics on held-out data and the distance to w*, where there are any."""
        values: list[float] = []
        with self.running():
            if self._test is not None:
                means = measuring.evaluate(self._evaluation, model.w, *self._test)
                values += np.asarray(means, float).tolist()
            if self._w_star is not None:
                with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges
                    values.append(float(np.linalg.norm(np.asarray(model.w) - self._w_star)))
        return dict(zip(self.metrics, values, strict=True))

    def params(self, model: Model) -> Tree:
        """Return the global model as the problem's own pytree."""
        with self.running():
            return self.layout.unravel(model.w)

    def named(self, model: Model) -> dict[str, np.ndarray]:
        """Return the arrays of the global model by name."""
        parts = jax.tree.leaves(self.params(model))
        return dict(zip(self.layout.names, map(np.asarray, parts), strict=True))

    def _first_posts(self, w: jax.Array) -> tuple[Tree, Tree]:
        """Return what clients keep at the start, and what of a round until its mean is known."""
        client, told = self.solver.join(w), self.solver.tell(self.solver.server_start(w))
        return client, self.solver.post(w, 1, client, told, w)[1]

    def _for_each_client(self, tree: Tree) -> Tree:
        return jax.tree.map(
            lambda a: jnp.zeros((self.place.rows, *a.shape), a.dtype, device=self.place.on_clients),
            tree,
        )

    def _seating(
        self, answered: np.ndarray, tau: np.ndarray, eta: float, gamma: float, pool: float
    ) -> Tree:
        s, length = self.s[answered], self.solver.local.length(tau)
        step = step_of(eta, gamma, s, length, pool)
        seats = self.place.seats(answered, tau, length, s / s.sum(), self.program.chunk)
        return (
            jax.device_put(seats, self.place.on_clients),
            jax.device_put(Step(*np.array(step, self.precision)), self.place.everywhere),
        )

    def _covering(self, active: np.ndarray, whole: bool) -> Tree:
        clients = self.everyone if whole else active
        inside = np.isin(clients, active)
        covered = self.place.covered(clients, inside, self.s[clients], self.program.chunk)
        return jax.device_put(covered, self.place.on_clients)

    def _on_devices(self, make: Callable[..., Tree], *args: Any) -> Tree:
        """Return make(*args), kept for the next round that asks for the same."""
        key = (make.__name__, *(a.tobytes() if isinstance(a, np.ndarray) else a for a in args))
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = make(*args)
        return self._kept[key]

    def _require_room(self, N: int) -> None:
        """Refuse a model whose states at the clients this machine cannot hold."""
        w = jax.ShapeDtypeStruct((self.layout.size,), self.precision)
        numbers = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(self.solver.join, w)))
        # States, messages, and what XLA copies of both (benchmarks/round.py: 2.7 in all).
        needed = np.dtype(self.precision).itemsize * (4.0 * N * numbers + 10.0 * self.layout.size)
        what = f"clients = {N} of a model with {self.layout.size:,} parameters (see dim or widths)"
        require_room(needed, what, N, "clients")

    def running(self) -> Computing:
        """Compute in the precision that was asked for, and tell a callback's faults in words."""
        return Computing(self.precision == "float64")
