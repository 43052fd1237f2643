"""The client's part of the full method, around a loss and data of your own."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp

from flanp.checks import BadInput
from flanp.flower.models import (
    Batch,
    LossAndGradient,
    jax_model,
    numpy_model,
    over_all,
    torch_model,
)
from flanp.flower.order import batches, round_key
from flanp.flower.vectors import Names, names_of
from flanp.flower.wire import (
    BUSY,
    SAMPLES,
    SECONDS,
    Task,
    answer_content,
    number,
    read_task,
    solver_of,
)
from flanp.solvers import Solver

PROBE_STEPS = 3
"""Local steps that a probe of the speed takes; the first, which may compile, is not timed."""
STATE, NUMBERS = "flanp", "flanp.numbers"


def client(
    *,
    data: Callable[[Context], tuple[Any, ...]],
    loss: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    model: Callable[[], Any] | None = None,
) -> ClientApp:
    """Return a ClientApp that takes part in FLANP with any solver.

    Args:
        data: Context -> this client's samples, a tuple of arrays of equal length;
            `context.node_config` says which client it is.
        loss: JAX: (params, batch) -> the mean loss, params being the server's arrays as a tree.
            PyTorch, with `model`: (module, batch of tensors) -> the mean loss, a tensor.
        gradient: NumPy, in place of `loss`: (params by name, batch) -> (mean loss, gradients
            by name).
        model: PyTorch: () -> an nn.Module.

    A node whose configuration has `slow=S` takes S seconds longer in each round: for trying out.
    """
    if (loss is None) == (gradient is None) or (model is not None and loss is None):
        raise BadInput("give a client a `loss` (JAX), `model` and `loss` (PyTorch) or `gradient`")

    def build(names: Names) -> LossAndGradient:
        if gradient is not None:
            return numpy_model(gradient, names)
        assert loss is not None
        return jax_model(loss, names) if model is None else torch_model(model, loss, names)

    built: dict[Names, LossAndGradient] = {}
    app = ClientApp()

    def prepare(msg: Message, context: Context) -> tuple[Names, np.ndarray, Any, Batch]:
        arrays = msg.content.array_records["arrays"]
        names = names_of(arrays)
        if names not in built:
            built[names] = build(names)
        return names, names.ravel(arrays), built[names], _samples(data(context))

    @app.query("profile")
    def profile(msg: Message, context: Context) -> Message:
        names, w, f, samples = prepare(msg, context)
        task, _, _ = read_task(msg.content)
        solver = solver_of(task.solver)
        drift = solver.drift(solver.start(w)[1], solver.start(w)[0])
        _, seconds = local_steps(solver, f, w, drift, samples, task, context, PROBE_STEPS)
        numbers = {
            SAMPLES: float(len(samples[0])),
            SECONDS: float(np.median(seconds[1:])),
            "client": float(client_number(context)),
        }
        return Message(answer_content(np.zeros(0, w.dtype), None, numbers), reply_to=msg)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        start = time.perf_counter()
        names, w, f, samples = prepare(msg, context)
        task, server, mean = read_task(msg.content)
        solver = solver_of(task.solver)
        state, applied = _restore(context, task, solver, w, mean)
        g, numbers = None, {}
        if task.measure:
            numbers["loss"], g, numbers["within"] = over_all(f, w, samples)
        drift = solver.drift(state, server)
        w_i, seconds = local_steps(solver, f, w, drift, samples, task, context, task.tau)
        m_i = np.asarray(solver.message((w - w_i) / task.eta, task.tau), w.dtype)
        numbers |= {
            SAMPLES: float(len(samples[0])),
            SECONDS: float(np.median(seconds)),
            BUSY: time.perf_counter() - start,
            "applied": float(applied),
        }
        _keep(context, task, state, applied, m_i, server)
        return Message(answer_content(m_i, g, numbers), reply_to=msg)

    return app


def local_steps(
    solver: Solver,
    f: LossAndGradient,
    w: np.ndarray,
    drift: Any,
    samples: Batch,
    task: Task,
    context: Context,
    steps: int,
) -> tuple[np.ndarray, list[float]]:
    """Return w_i after some local steps from w, and the seconds that each took."""
    pause = float(context.node_config.get("slow", 0.0)) / task.tau
    key = round_key(task.seed, task.number)
    w_i, seconds = w, []
    for rows in batches(key, client_number(context), len(samples[0]), task.batch, steps):
        start = time.perf_counter()
        _, g = f(w_i, tuple(a[rows] for a in samples))
        w_i = w_i - task.eta * solver.direction(g, drift, w_i, w)
        time.sleep(pause)
        seconds.append(time.perf_counter() - start)
    return w_i, seconds


def client_number(context: Context) -> int:
    """Return the number that decides the order of a client's samples."""
    return int(context.node_config.get("partition-id", context.node_id)) % 2**32


def _samples(arrays: tuple[Any, ...]) -> Batch:
    samples = tuple(np.asarray(a) for a in arrays)
    lengths = {len(a) for a in samples}
    if len(lengths) != 1 or 0 in lengths:
        raise BadInput(f"a client's arrays have {sorted(lengths)} rows: equally many, not none")
    return samples


def _restore(
    context: Context, task: Task, solver: Solver, w: np.ndarray, mean: np.ndarray | None
) -> tuple[Any, int]:
    """Return the solver's state at this client, and how many means it has seen.

    The state of another epoch is void. Whoever was counted in an earlier round finishes it now
    that its mean is known; a message that was not counted is forgotten.
    """
    numbers = context.state.metric_records.get(NUMBERS)
    if numbers is None or numbers["epoch"] != task.epoch:
        return solver.start(w)[1], 0
    vectors = {name: array.numpy() for name, array in context.state.array_records[STATE].items()}
    state, server = vectors.get("client", ()), vectors.get("server", ())
    applied = int(number(numbers, "applied", None))
    if mean is not None and numbers["number"] == task.mean_of:
        return solver.client_step(state, server, vectors["m"], mean), applied + 1
    return state, applied


def _keep(
    context: Context, task: Task, state: Any, applied: int, m_i: np.ndarray, server: Any
) -> None:
    if isinstance(state, tuple):
        return
    vectors = {"client": state, "m": m_i, "server": server}
    context.state[STATE] = ArrayRecord(
        {name: Array(v) for name, v in vectors.items() if isinstance(v, np.ndarray)}
    )
    context.state[NUMBERS] = MetricRecord(
        {"epoch": task.epoch, "number": task.number, "applied": applied}
    )
