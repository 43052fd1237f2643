"""The client's part of the full method, around a loss and data of your own."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp

from flanp.checks import BadInput, shown
from flanp.flower.models import (
    Batch,
    LossAndGradient,
    jax_model,
    numpy_model,
    over_all,
    torch_model,
)
from flanp.flower.naming import solver_of
from flanp.flower.packing import DENSE, pack
from flanp.flower.vectors import Names, names_of
from flanp.flower.wire import (
    BUSY,
    CLIENT,
    MEAN,
    PROBE_STEPS,
    SAMPLES,
    SECONDS,
    SERVER,
    Task,
    answer_content,
    arrays_by_name,
    number,
    read_task,
)
from flanp.order import batches, fold_in, round_key, uniforms
from flanp.parts import Part
from flanp.solvers import ClientState, Solver, Step
from flanp.solvers.training import Posted
from flanp.streams import DROPOUT, NOISE
from flanp.trees import Tree, leaves, rebuild

STATE, NUMBERS = "flanp", "flanp.numbers"


def client(
    *,
    data: Callable[[Context], tuple[Any, ...]],
    loss: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    model: Callable[[], Any] | None = None,
    parts: Sequence[type[Part]] = (),
) -> ClientApp:
    """Return a ClientApp that takes part in FLANP with any solver.

    Args:
        data: Context -> this client's samples, a tuple of arrays of equal length;
            `context.node_config` says which client it is.
        loss: JAX: (params, batch) -> the mean loss, params being the server's arrays as a tree;
            one with dropout takes a `key`, too, as that of `flanp.problems.Custom` does.
            PyTorch, with `model`: (module, batch of tensors) -> the mean loss, a tensor.
        gradient: NumPy, in place of `loss`: (params by name, batch) -> (mean loss, gradients
            by name).
        model: PyTorch: () -> an nn.Module.
        parts: your own classes of solvers, local steps or compressions that this client may use
            when the server names them; flanp's own it knows.

    A node whose configuration has `slow=S` takes S seconds longer in each round: for trying out.
    """
    if (loss is None) == (gradient is None) or (model is not None and loss is None):
        raise BadInput("give a client a `loss` (JAX), `model` and `loss` (PyTorch) or `gradient`")
    if not isinstance(parts, list | tuple) or not all(
        isinstance(cls, type) and issubclass(cls, Part) for cls in parts
    ):
        raise BadInput(f"parts = {shown(parts)}: give a list of your classes, such as [MySolver]")

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
        task, arrays = read_task(msg.content)
        solver = solver_of(task.solver, parts)
        drift = np.asarray(solver.drift(solver.join(w).own, _told(solver, w, arrays)), w.dtype)
        _, _, seconds = local_steps(solver, f, w, drift, samples, task, context, PROBE_STEPS)
        numbers = {
            SAMPLES: float(len(samples[0])),
            SECONDS: float(np.median(seconds[1:])),
            "client": float(client_number(context)),
        }
        return Message(answer_content({}, None, numbers), reply_to=msg)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        start = time.perf_counter()
        names, w, f, samples = prepare(msg, context)
        task, arrays = read_task(msg.content)
        solver = solver_of(task.solver, parts)
        told = _told(solver, w, arrays)
        state, applied = _restore(context, task, solver, w, arrays)
        g, numbers = None, {}
        if task.measure:
            numbers["loss"], g, numbers["within"] = over_all(f, w, samples)
        drift = np.asarray(solver.drift(state.own, told), w.dtype)
        w_i, first, seconds = local_steps(solver, f, w, drift, samples, task, context, task.tau)
        u, length = np.zeros(0, w.dtype), float(solver.local.length(np.array(task.tau)))
        if solver.compression.random:
            key = round_key(task.seed, task.number, NOISE)
            u = uniforms(key, client_number(context), w)
        m_i, posted = solver.post((w - w_i) / task.eta, length, state, told, u)
        m_i = np.asarray(m_i, w.dtype)
        numbers |= {
            SAMPLES: float(len(samples[0])),
            SECONDS: float(np.median(seconds)),
            BUSY: time.perf_counter() - start,
            "applied": float(applied),
        }
        if not solver.remembers_absent:
            _keep(context, task, Kept(state, posted, told), applied)
        sent = pack(m_i) if solver.compression.shortens else {DENSE: m_i}
        content = answer_content(sent, g, numbers, first if task.first else None)
        return Message(content, reply_to=msg)

    return app


class Kept(NamedTuple):
    """What a client keeps between two messages."""

    client: ClientState
    posted: Posted
    """Of the last round, until its mean message is known."""
    server: Tree
    """What it was told of the server's state in that round."""


def local_steps(
    solver: Solver,
    f: LossAndGradient,
    w: np.ndarray,
    drift: Any,
    samples: Batch,
    task: Task,
    context: Context,
    steps: int,
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return w_i after some local steps from w, the first direction, and each one's seconds."""
    pause = float(context.node_config.get("slow", 0.0)) / task.tau
    client, key = client_number(context), round_key(task.seed, task.number)
    loss_key = fold_in(round_key(task.seed, task.number, DROPOUT), client)
    w_i, memory, seconds = w, solver.local.start(w), list[float]()
    first = w
    for t, rows in enumerate(batches(key, client, len(samples[0]), task.batch, steps)):
        start = time.perf_counter()
        _, g = f(w_i, tuple(a[rows] for a in samples), fold_in(loss_key, t))
        direction = solver.direction(g, drift, w_i, w)
        first = first if seconds else np.asarray(direction, w.dtype)
        d_i, memory = solver.local.step(direction, memory)
        w_i = w_i - task.eta * d_i
        time.sleep(pause)
        seconds.append(time.perf_counter() - start)
    return w_i, first, seconds


def client_number(context: Context) -> int:
    """Return the number that decides the order of a client's samples."""
    return int(context.node_config.get("partition-id", context.node_id)) % 2**32


def _samples(arrays: tuple[Any, ...]) -> Batch:
    samples = tuple(np.asarray(a) for a in arrays)
    lengths = {len(a) for a in samples}
    if len(lengths) != 1 or 0 in lengths:
        raise BadInput(f"a client's arrays have {sorted(lengths)} rows: equally many, not none")
    return samples


def _told(solver: Solver, w: np.ndarray, arrays: dict[str, np.ndarray]) -> Tree:
    """Return what came of the server's state."""
    if not any(name.split(".")[0] == SERVER for name in arrays):
        return ()
    return rebuild(solver.tell(solver.server_start(w)), arrays, SERVER)


def _restore(
    context: Context, task: Task, solver: Solver, w: np.ndarray, arrays: dict[str, np.ndarray]
) -> tuple[ClientState, int]:
    """Return all that this client keeps of the solver, and how many means it has seen.

    Where the server keeps it, it has come with the task. The state of another generation is
    void. Whoever was counted in an earlier round finishes it now that its mean is known; a
    message that was not counted is forgotten.
    """
    fresh = solver.join(w)
    if solver.remembers_absent:
        return ClientState(rebuild(fresh.own, arrays, CLIENT), fresh.error), 0
    numbers = context.state.metric_records.get(NUMBERS)
    if numbers is None or numbers["generation"] != task.generation:
        return fresh, 0
    saved = arrays_by_name(context.state.array_records[STATE])
    client = rebuild(fresh, saved, "client")
    applied = int(number(numbers, "applied", None))
    if MEAN not in arrays or numbers["number"] != task.mean_of or task.step is None:
        return client, applied
    posted = rebuild(solver.posted(w, client, client.error), saved, "posted")
    step = Step(*np.array(task.step, w.dtype))
    return solver.settle(client, _told(solver, w, saved), posted, arrays[MEAN], step), applied + 1


def _keep(context: Context, task: Task, kept: Kept, applied: int) -> None:
    if not leaves(kept.client):
        return
    named = {name: Array(np.asarray(a)) for name, a in leaves(kept).items()}
    context.state[STATE] = ArrayRecord(named)
    context.state[NUMBERS] = MetricRecord(
        {"generation": task.generation, "number": task.number, "applied": applied}
    )
