"""All clients' data, the workers that train on it, and looks at models."""

from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any, Literal

import numpy as np

from flanp.checks import BadInput
from flanp.cores import usable_cores
from flanp.data.federated import FederatedData
from flanp.measurement import Look, Seen
from flanp.memory import require_room
from flanp.metrics import Metric, check_names
from flanp.problems.pytorch import ERROR, Torch
from flanp.pytorch.tables import Rows, row
from flanp.pytorch.workers import Job, Workers
from flanp.simulator.backend import Remembered
from flanp.simulator.measuring import measurement
from flanp.simulator.probing import check_range
from flanp.solvers import Solver
from flanp.solvers.asynchronous import AsyncSolver
from flanp.solvers.checking import check_solver
from flanp.trees import Tree, leaves

ROWS = 500
"""Held-out rows that one job evaluates."""


class TorchMachine:
    """Holds the clients' data, and looks at models: vectors of the parameters, then the buffers."""

    def __init__(
        self,
        problem: Torch,
        data: FederatedData,
        solver: Solver | AsyncSolver,
        ranking: np.ndarray,
        batch: int | None = None,
        seed: int = 0,
        precision: Literal["float32", "float64"] = "float32",
        metrics: tuple[Metric, ...] = (),
        row_by_row: bool = False,
        devices: int | None = None,
    ):
        """Make the start model and start the workers.

        Args:
            problem: the module and its loss.
            data: the clients' samples.
            solver: the federated solver.
            ranking: all clients, fastest first.
            batch: samples in a mini-batch; None: full local gradients.
            seed: of the start model, of the order of the samples and of what the module draws.
            precision: of all arithmetic.
            metrics: what is measured on held-out data.
            row_by_row: whether each row's loss is asked for, which needs no preparation here.
            devices: how many workers; as many as cores, if left out.
        """
        del ranking, row_by_row
        self.s, self.precision, self.solver, self.seed = data.s, precision, solver, seed
        self.everyone, self.place = np.arange(data.N), Rows(data.N)
        check_range(data, precision)
        check_solver(solver)
        _check_data(data)
        check_names(metrics)
        try:
            from flanp.pytorch.flat import FlatModule, first_module
            from flanp.pytorch.working import Setup
        except ImportError as error:
            raise BadInput(
                "problems.Torch needs PyTorch, which is not installed: pip install 'flanp[torch]'"
            ) from error
        module = first_module(problem.module, seed, precision)
        self._flat = FlatModule(deepcopy(module))
        self.start_w = self._flat.read()
        self.size, self.carried = self._flat.size, self._flat.carried
        self._require_room()
        self._rows = 0 if data.test is None else len(data.test[0])
        setup = Setup(
            module,
            problem.loss,
            metrics,
            solver,
            tuple(_typed(a, precision) for a in data.batch),
            (data.weights > 0).sum(axis=1),
            tuple(_typed(a, precision) for a in data.test or ()),
            None if batch is None else min(batch, data.weights.shape[1]),
            seed,
        )
        count, length = min(data.N, devices or len(usable_cores())), len(self.start_w)
        self.workers = Workers(count, setup, length, np.dtype(precision))
        self._shape = next(self.workers.each([Job("probe", (self.start_w,))])).numbers
        fit = [metric != ERROR or self._classifies(data) for metric in metrics]
        self._measured = {k: m for k, m in enumerate(metrics) if fit[k] and self._rows}

    @property
    def metrics(self) -> dict[str, bool | None]:
        """The names of what `evaluate` returns; whether higher is better, if that is known."""
        return {metric.name: metric.higher_is_better for metric in self._measured.values()}

    def running(self) -> AbstractContextManager[None]:
        """Let a run that diverges do so in silence, as compiled programs do."""
        return np.errstate(all="ignore")

    def look(
        self,
        w: np.ndarray,
        active: np.ndarray,
        look: Look,
        remembered: Remembered | None = None,
    ) -> Seen:
        """Return loss and gradient of w over the active clients and over all, as asked.

        Where absent clients are remembered, what is known of their gradients counts as well.
        """
        seen = Seen()
        if look & (Look.ACTIVE | Look.WHOLE):
            at = active if len(active) else self.everyone
            with self.running():
                seen = self._seen(w, at, Look.WHOLE in look, remembered)
        if Look.EACH in look:
            jobs = (Job("losses", (w,), (int(i),)) for i in active)
            each = np.array([done.numbers for done in self.workers.each(jobs)]).reshape(-1, 2)
            seen = seen._replace(each=np.stack([each[:, 0], np.sqrt(each[:, 1])], axis=1))
        return seen

    def _seen(
        self, w: np.ndarray, active: np.ndarray, whole: bool, remembered: Remembered | None
    ) -> Seen:
        clients = self.everyone if whole else active
        inside = np.isin(clients, active)
        sums, gradient = np.zeros((2, 5)), np.zeros((2, self.size), w.dtype)
        jobs = (Job("look", (w,), (int(i),)) for i in clients)
        for counts, done in zip(inside, self.workers.each(jobs), strict=True):
            s = done.numbers[0]
            for k in (0, 1) if counts else (1,):
                sums[k] += (1, *done.numbers)
                gradient[k] += s * done.vectors[0]
        mean = gradient / sums[:, 1:2].astype(w.dtype)
        norm_sq = [float(g @ g) for g in mean]
        if remembered is not None:
            mean[0] -= self._mean_drift(active, *remembered[:2])
        tilted = float(mean[0] @ mean[0])
        of_active, of_all = (
            measurement(np.array([n, S, loss / S, norm, squares / S, within / S, last]))
            for (n, S, loss, squares, within), norm, last in zip(
                sums, norm_sq, (tilted, norm_sq[1]), strict=True
            )
        )
        if remembered is not None:
            heard = remembered[2].copy()
            heard[active] = True
            samples = float(self.s[heard].sum())
            noise = of_active.noise * of_active.samples / samples
            of_active = of_active._replace(clients=int(heard.sum()), samples=samples, noise=noise)
        return Seen(of_active, of_all if whole else None)

    def _mean_drift(self, active: np.ndarray, server: Tree, clients: Tree) -> np.ndarray:
        """Return the mean correction of the participants' directions, weighted by their samples."""
        told, total = self.solver.tell(server), np.zeros(self.size, self.precision)
        for i in active:
            drift = self.solver.drift(row(clients, i).own, told)
            total += np.asarray(self.s[i] * drift, total.dtype)
        return total / total.dtype.type(self.s[active].sum())

    def evaluate(self, w: np.ndarray) -> dict[str, float]:
        """Return the metrics on held-out data."""
        if not self.metrics:
            return {}
        blocks = ((tuple(self._measured), k, k + ROWS) for k in range(0, self._rows, ROWS))
        done = self.workers.each(Job("evaluate", (w,), block) for block in blocks)
        totals = np.sum([each.numbers for each in done], axis=0)
        return dict(zip(self.metrics, (totals / self._rows).tolist(), strict=True))

    def params(self, w: np.ndarray) -> dict[str, Any]:
        """Return the model as a state_dict: tensors by name, as `load_state_dict` takes them."""
        self._flat.load(w)
        state = self._flat.module.state_dict()
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def named(self, w: np.ndarray) -> dict[str, np.ndarray]:
        """Return the arrays of the model by name."""
        return {name: tensor.numpy() for name, tensor in self.params(w).items()}

    def _classifies(self, data: FederatedData) -> bool:
        """Whether the module's outputs are numbers for classes, of which the targets are labels."""
        y = data.batch[-1]
        fits = y.dtype.kind in "iu" and y.ndim == 2 and len(self._shape) == 2
        return fits and y.min() >= 0 and bool(y.max() < self._shape[1])

    def _require_room(self) -> None:
        """Refuse a model whose states at the clients this machine cannot hold."""
        N, w = len(self.s), np.zeros(self.size, self.precision)
        numbers = sum(np.size(a) for a in leaves(self.solver.join(w)).values())
        needed = w.itemsize * (2.0 * N * numbers + 10.0 * self.size)
        what = f"clients = {N} of a module with {self.size:,} parameters"
        require_room(needed, what, N, "clients")


def _check_data(data: FederatedData) -> None:
    if len(data.batch) < 2:
        raise BadInput("problems.Torch needs inputs and targets; the data has a single array")
    if not np.isin(data.weights, (0, 1)).all():
        raise BadInput("problems.Torch takes rows that stand for one sample each: see `weights`")
    if (np.diff(data.weights, axis=1) > 0).any():
        raise BadInput("problems.Torch takes padding after a client's rows: see data.from_clients")


def _typed(a: np.ndarray, precision: str) -> np.ndarray:
    """Return an array as PyTorch's losses and embeddings take it."""
    return np.ascontiguousarray(a, precision if a.dtype.kind == "f" else np.int64)
