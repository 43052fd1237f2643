"""What a worker does: local steps of a client, and looks at a model, in PyTorch."""

import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch

from flanp.checks import BadInput, calling, is_ours, qualified
from flanp.metrics import Metric
from flanp.order import batches, fold_in, round_key
from flanp.pytorch.flat import FlatModule
from flanp.solvers.training import Training
from flanp.streams import DROPOUT

BLOCK = 128
"""Rows that are looked at side by side, which bounds the memory."""
Made = tuple[list[np.ndarray], tuple[Any, ...]]
"""Vectors and numbers."""


class Setup(NamedTuple):
    """All that a worker needs to know before its first job."""

    module: torch.nn.Module
    loss: Callable[..., Any]
    metrics: tuple[Metric, ...]
    solver: Training
    clients: tuple[np.ndarray, ...]
    """Arrays (N, S, ...): the inputs, and the targets last."""
    rows: np.ndarray
    """(N,): how many of a client's rows are not padding; these come first."""
    test: tuple[np.ndarray, ...]
    batch: int | None
    seed: int


class Working:
    """Does jobs; each is called with vectors first, then numbers."""

    def __init__(self, setup: Setup):
        self.setup = setup
        # A copy of its own: PyTorch shares the tensors that spawned processes are given.
        self.flat = FlatModule(deepcopy(setup.module))
        self.test = tuple(torch.from_numpy(a) for a in setup.test)
        # A user's own parts may keep the gradient that they are shown, which is overwritten.
        self._ours = is_ours(setup.solver) and is_ours(setup.solver.local)

    def probe(self, model: np.ndarray) -> Made:
        """Refuse a loss that cannot be used; return the shape of the outputs of some rows."""
        self._look_at(model)
        *inputs, y = (a[:BLOCK] for a in self._samples(0))
        outputs = self._outputs(inputs)
        value, name = self._loss(outputs, y), qualified(self.setup.loss)
        if not isinstance(value, torch.Tensor) or value.ndim or not value.is_floating_point():
            shape = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise BadInput(
                f"the loss ({name}) returns {shape}: it must be one float, the mean over the rows"
            )
        if not value.requires_grad:
            raise BadInput(f"the loss ({name}) does not depend on the module's parameters")
        if not value.isfinite():
            raise BadInput(f"the loss ({name}) of the start model is {float(value.detach())}")
        self._try_smallest_batch()
        return [], tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else ()

    def train(
        self, model: np.ndarray, drift: np.ndarray, client: int, number: int, tau: int, eta: float
    ) -> Made:
        """Do tau local steps; return the model after them and, where needed, the first direction.

        What the module draws depends on the seed, the round and the client alone.
        """
        setup, flat, solver = self.setup, self.flat, self.setup.solver
        flat.load(model)
        flat.module.train()
        _seed(_number(fold_in(round_key(setup.seed, number, DROPOUT), client)))
        samples, w, w_i = self._samples(client), model[: flat.size], flat.w
        memory, step_size, rows = solver.local.start(w), w.dtype.type(eta), len(samples[0])
        first: list[np.ndarray] = []
        for chosen in batches(round_key(setup.seed, number), client, rows, setup.batch, tau):
            whole = len(chosen) == rows and setup.batch is None
            batch = samples if whole else [a[torch.from_numpy(chosen)] for a in samples]
            self._gradient(batch)
            d_i = solver.direction(flat.g if self._ours else flat.g.copy(), drift, w_i, w)
            if solver.remembers_absent and not first:
                first = [np.array(d_i)]
            d_i, memory = solver.local.step(d_i, memory)
            np.subtract(w_i, step_size * d_i, out=w_i)
        return [flat.read(), *first], ()

    def look(self, model: np.ndarray, client: int) -> Made:
        """Return a client's gradient g_i; its samples, summed loss, and s_i ||g_i||^2.

        The last number is sum_h s_h ||g_h - g_i||^2 over the halves h of its samples.
        """
        self._look_at(model)
        samples = self._samples(client)
        total, halves = 0.0, []
        for half in range(2):
            part = [a[half::2] for a in samples]
            self.flat.g[:] = 0
            for block in _blocks(part):
                total += self._gradient(block, times=len(block[0]))
            halves.append((len(part[0]), self.flat.g.copy()))
        s = len(samples[0])
        g = (halves[0][1] + halves[1][1]) / s
        within = sum(n * float(((g_h / n - g) ** 2).sum()) for n, g_h in halves if n)
        return [g], (s, total, s * float((g**2).sum()), within)

    def losses(self, model: np.ndarray, client: int) -> Made:
        """Return the mean of the losses of a client's rows, and the mean of their squares."""
        self._look_at(model)
        values = []
        with torch.no_grad():
            for *inputs, y in _blocks(self._samples(client)):
                outputs = self._outputs(inputs)
                if not isinstance(outputs, torch.Tensor):
                    raise BadInput("each row's loss is asked for: let the module return one tensor")
                rows = zip(outputs.split(1), y.split(1), strict=True)
                values += [float(self._loss(*row)) for row in rows]
        return [], (float(np.mean(values)), float(np.mean(np.square(values))))

    def evaluate(self, model: np.ndarray, which: tuple[int, ...], first: int, last: int) -> Made:
        """Return the sum of some metrics over some held-out rows."""
        self._look_at(model)
        *inputs, y = (a[first:last] for a in self.test)
        with torch.no_grad():
            outputs = self._outputs(inputs)
            sums = []
            for metric in (self.setup.metrics[k] for k in which):
                name = f"the metric {metric.name} ({qualified(metric.function)})"
                with calling(name, "it must take (outputs, y) and return one number"):
                    sums.append(len(y) * float(metric.function(outputs, y)))
        return [], tuple(sums)

    def _try_smallest_batch(self) -> None:
        """Do a step as in training now, for BatchNorm refuses a batch of one row."""
        rows, most = self.setup.rows, self.setup.batch
        sizes = rows if most is None else np.where(rows % most, rows % most, np.minimum(rows, most))
        client = int(np.argmin(sizes))
        self.flat.module.train()
        self._gradient([a[: sizes[client]] for a in self._samples(client)])

    def _look_at(self, model: np.ndarray) -> None:
        self.flat.load(model)
        self.flat.module.eval()
        _seed(self.setup.seed)

    def _samples(self, client: int) -> list[torch.Tensor]:
        rows = self.setup.rows[client]
        return [torch.from_numpy(a[client, :rows]) for a in self.setup.clients]

    def _gradient(self, batch: list[torch.Tensor], times: int | None = None) -> float:
        """Put the gradient of the loss into g or, with `times`, add so many times it; return it."""
        if times is None:
            self.flat.g[:] = 0
        *inputs, y = batch
        value = self._loss(self._outputs(inputs), y) * (times or 1)
        name = f"the gradient of the loss ({qualified(self.setup.loss)})"
        with calling(name, "it must have one"):
            value.backward()
        return float(value.detach())

    def _outputs(self, inputs: list[torch.Tensor]) -> Any:
        shapes = ", ".join(str(list(a.shape)) for a in inputs)
        module = self.flat.module
        with calling(type(module).__name__, f"it must take inputs of shape {shapes}"):
            return module(*inputs)

    def _loss(self, outputs: Any, y: torch.Tensor) -> torch.Tensor:
        name = f"the loss ({qualified(self.setup.loss)})"
        with calling(name, f"it must take the outputs and targets of shape {list(y.shape)}"):
            value: torch.Tensor = self.setup.loss(outputs, y)
            return value


def _blocks(samples: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    for start in range(0, len(samples[0]), BLOCK):
        yield [a[start : start + BLOCK] for a in samples]


def _seed(number: int) -> None:
    """Seed all that a module may draw from; this process is its own."""
    torch.manual_seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002
    random.seed(number)


def _number(key: tuple[np.uint32, np.uint32]) -> int:
    """Return a key as the seed that PyTorch takes."""
    return int(key[0]) << 31 | int(key[1]) >> 1
