"""All clients' arrays on this machine's devices, and the compiled programs that work on them."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np

from flanp.data.federated import FederatedData
from flanp.measurement import Look, Seen
from flanp.memory import require_room
from flanp.metrics import Metric
from flanp.parts import with_values
from flanp.problems import Problem
from flanp.simulator import measuring
from flanp.simulator.backend import Remembered
from flanp.simulator.layout import layout_of
from flanp.simulator.placement import Placement, chunk_size
from flanp.simulator.probing import (
    MOST_ROWS,
    Computing,
    Shapes,
    check_problem,
    check_range,
    check_traceable,
    condensed,
    first_params,
    minimiser,
    rows_at_a_time,
    rows_of,
)
from flanp.simulator.program import Evaluation, Program, Sight
from flanp.solvers import Solver
from flanp.solvers.asynchronous import AsyncSolver
from flanp.solvers.checking import check_solver
from flanp.trees import Tree

KEPT = 8
"""How many rounds' seats are kept on the devices: in a stage each round asks for the same."""


class CompiledMachine:
    """Holds the clients' data, and looks at models; whose, and when, is for its user to say."""

    def __init__(
        self,
        problem: Problem,
        data: FederatedData,
        solver: Solver | AsyncSolver,
        ranking: np.ndarray,
        batch: int | None = None,
        seed: int = 0,
        precision: Literal["float32", "float64"] = "float32",
        chunk: int | None = None,
        metrics: tuple[Metric, ...] = (),
        row_by_row: bool = False,
        devices: int | None = None,
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
            row_by_row: whether each row's loss is asked for.
            devices: how many to use; all, if left out.
        """
        self.s, self.precision, self.solver = data.s, precision, solver
        self._kept: dict[Tree, Tree] = {}
        check_range(data, precision)
        check_solver(solver)
        if isinstance(solver, AsyncSolver):
            devices = 1  # events come one after the other
        self.place = place = Placement(ranking, precision, devices)
        self.key = jax.random.key(seed)
        with self.running():
            params = first_params(problem, jax.random.fold_in(self.key, 0), data)
            self.layout = layout_of(params)
            check_problem(problem, metrics, params, data)
            w_star = minimiser(problem, data, self.layout)
            test = data.test
            if batch is None and not row_by_row:
                problem, data = condensed(problem, data)
            rows = data.weights.shape[1]
            if batch is not None:
                batch = min(batch, rows)  # a larger one would hold the same samples, and padding
            chunk = chunk or chunk_size(self.layout.size, batch or rows, place.slots)
            shapes = Shapes.of(params)
            block = rows_at_a_time(problem, shapes, rows_of(data.batch, 2))
            self._sight = Sight(self.layout, place.mesh, problem, chunk, block)
            form = with_values(solver, **dict.fromkeys(solver.traced, 1.0))
            if isinstance(form, AsyncSolver):
                form = with_values(form, cap=None)  # it says when clients are asked
            self.program = Program(self.layout, place.mesh, problem, chunk, block, form, batch)
            numbers = {name: np.array(getattr(solver, name), precision) for name in solver.traced}
            self.numbers = jax.device_put(numbers, place.everywhere)
            check_traceable(solver, self.layout.size, precision)
            self._require_room(data.N)
            self.shard = place.deal(data)
            self._test = None if test is None or not metrics else place.deal_rows(test)
            blocks = [rows_at_a_time(m, shapes, rows_of(test, 1)) for m in metrics if test]
            least = min(blocks, default=MOST_ROWS)
            self._evaluation = Evaluation(self.layout, place.mesh, metrics, least)
            w = self.layout.ravel(params).astype(precision)
            self.start_w = jax.device_put(w, place.everywhere)
            self._w_star = None if w_star is None else np.asarray(w_star, precision)
        self.everyone = np.arange(place.N)

    @property
    def size(self) -> int:
        """How many numbers are trained: all of them."""
        return self.layout.size

    @property
    def carried(self) -> int:
        """How many numbers of a model are not trained: none."""
        return 0

    @property
    def metrics(self) -> dict[str, bool | None]:
        """The names of what `evaluate` returns; whether higher is better, if that is known."""
        measured = self._evaluation.metrics if self._test is not None else ()
        names = {metric.name: metric.higher_is_better for metric in measured}
        return names if self._w_star is None else names | {"distance": False}

    def look(
        self, w: jax.Array, active: np.ndarray, look: Look, remembered: Remembered | None = None
    ) -> Seen:
        """Return loss and gradient of w over the active clients and over all, as asked.

        Where absent clients are remembered, what is known of their gradients counts as well.
        """
        if not look:
            return Seen()
        seen = Seen()
        if look & (Look.ACTIVE | Look.WHOLE):
            at = active if len(active) else self.everyone
            seen = self._seen(w, at, Look.WHOLE in look, remembered)
        if Look.EACH in look:
            seen = seen._replace(each=self._losses(w, active))
        return seen

    def _seen(
        self, w: jax.Array, active: np.ndarray, whole: bool, remembered: Remembered | None
    ) -> Seen:
        tilt = None
        with self.running():
            covered = self.on_devices(self._covering, active, whole)
            if remembered is not None:
                tilt = -measuring.mean_drift(self.program, self.numbers, *remembered[:2], covered)
            sums = measuring.measure(self._sight, w, self.shard, covered, tilt)
            of_active, of_all = np.asarray(sums, float)
        seen = measuring.measurement(of_active)
        if remembered is not None:
            heard = remembered[2].copy()
            heard[active] = True
            samples = float(self.s[heard].sum())
            noise = seen.noise * seen.samples / samples
            seen = seen._replace(clients=int(heard.sum()), samples=samples, noise=noise)
        return Seen(seen, measuring.measurement(of_all) if whole else None)

    def _losses(self, w: jax.Array, clients: np.ndarray) -> np.ndarray:
        """Return the mean loss of each client, and the root mean square of its samples' losses."""
        with self.running():
            covered = self.on_devices(self._covering, clients, False)
            rows = np.asarray(measuring.losses(self._sight, w, self.shard, covered), float)
        mean, squares = self.place.from_seats(clients, rows).T
        return np.stack([mean, np.sqrt(squares)], axis=1)

    def evaluate(self, w: jax.Array) -> dict[str, float]:
        """Return the metrics on held-out data and the distance to w*, where there are any."""
        values: list[float] = []
        with self.running():
            if self._test is not None:
                means = measuring.evaluate(self._evaluation, w, *self._test)
                values += np.asarray(means, float).tolist()
            if self._w_star is not None:
                with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges
                    values.append(float(np.linalg.norm(np.asarray(w) - self._w_star)))
        return dict(zip(self.metrics, values, strict=True))

    def params(self, w: jax.Array) -> Tree:
        """Return the global model as the problem's own pytree."""
        with self.running():
            return self.layout.unravel(w)

    def named(self, w: jax.Array) -> dict[str, np.ndarray]:
        """Return the arrays of the global model by name."""
        parts = jax.tree.leaves(self.params(w))
        return dict(zip(self.layout.names, map(np.asarray, parts), strict=True))

    def _covering(self, active: np.ndarray, whole: bool) -> Tree:
        clients = self.everyone if whole else active
        inside = np.isin(clients, active)
        covered = self.place.covered(clients, inside, self.s[clients], self.program.chunk)
        return jax.device_put(covered, self.place.on_clients)

    def on_devices(self, make: Callable[..., Tree], *args: Any) -> Tree:
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
