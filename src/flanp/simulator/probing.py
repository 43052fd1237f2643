"""A look at a problem before its functions are compiled, so that faults are told in words."""

from collections.abc import Callable
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from flanp.checks import MOST_WHOLE, BadInput, calling, is_ours, qualified
from flanp.data.federated import FederatedData, largest
from flanp.metrics import Metric, check_names
from flanp.parts import check_is, with_values
from flanp.problems import Custom, Params, Problem
from flanp.simulator.convolving import by_matrices, size_of
from flanp.simulator.layout import Layout
from flanp.simulator.program import summed_loss
from flanp.solvers import Step, Training
from flanp.solvers.asynchronous import Arrival, AsyncSolver
from flanp.trees import Tree

MOST_ROWS, MOST_NUMBERS = 512, 8_000_000
"""How many rows, and numbers that they bring about, are looked at side by side at the most."""
KEPT = 8
"""How many problems, with their models and data, are remembered to be in order."""
TRACEABLE = "It is traced by JAX: no float(), int() or `if` on values that it computes"


def check_range(data: FederatedData, precision: str) -> None:
    """Refuse data that would become infinite, or wrap around, on the devices."""
    for a in (*data.batch, *(data.test or ())):
        most = float(np.finfo(precision).max) if a.dtype.kind == "f" else MOST_WHOLE
        if largest(a) > most:
            raise BadInput(
                f"the data holds {largest(a):g}, beyond {precision}: scale it, or set "
                'precision = "float64"'
            )


ADVICE = (
    "no float(), no `if` on eta or on arrays, no NumPy functions; see xp = w.__array_namespace__()"
)


def check_traceable(solver: Training, size: int, precision: str) -> None:
    """Refuse a user's solver that NumPy can run, but JAX cannot trace."""
    parts = (solver, solver.local, solver.compression)
    if all(is_ours(part) for part in parts):
        return
    kind, w = type(solver).__name__, jax.ShapeDtypeStruct((size,), precision)
    number = jax.ShapeDtypeStruct((), precision)
    sizes = jax.ShapeDtypeStruct((2,), precision)

    def traced(method: str, *args: Tree) -> Tree:
        def call(sizes: jax.Array, *args: Tree) -> Tree:
            with_sizes = with_values(solver, eta=sizes[0], gamma=sizes[1])
            return getattr(with_sizes, method)(*args)

        with calling(f"{kind}.{method}", f"it is traced by JAX: {ADVICE}"):
            return jax.eval_shape(call, sizes, *args)

    step = Step(number, number, number, number, number)
    server, client = traced("server_start", w), traced("join", w)
    told = traced("tell", server)
    drift = traced("drift", client.own, told)
    traced("direction", w, drift, w, w)
    local = type(solver.local).__name__
    with calling(f"{local}.step", f"it is traced by JAX: {ADVICE}"):
        jax.eval_shape(lambda w: solver.local.step(w, solver.local.start(w)), w)
    traced("message", w, number, client.own, told)
    m_i, posted = traced("post", w, number, client, told, w)
    if isinstance(solver, AsyncSolver):
        arrival = Arrival(w, told, traced("note", server), *[number] * 7)
        traced("arrive", w, server, client.own, m_i, arrival)
        return
    traced("settle", client, told, posted, m_i, step)
    traced("server_step", w, server, m_i, step)


def first_params(problem: Problem, key: jax.Array, data: FederatedData) -> Params:
    """Return a problem's start model."""
    with calling(name_of(problem, "init"), "it must take a random key and return arrays"):
        return problem.init(key, data)


def minimiser(problem: Problem, data: FederatedData, layout: Layout) -> jax.Array | None:
    """Return w* as a vector, where the problem knows it."""
    name = name_of(problem, "minimiser")
    with calling(name, "it must return w* or None"):
        found = problem.minimiser(data)
        w_star = None if found is None else layout.ravel(found)
    if w_star is not None and w_star.shape != (layout.size,):
        raise BadInput(f"{name} must return as many numbers as w")
    return w_star


def condensed(problem: Problem, data: FederatedData) -> tuple[Problem, FederatedData]:
    """Return an equal problem on less data, where there is one."""
    with calling(name_of(problem, "condense"), "it must return a problem and its data"):
        return problem.condense(data)


def check_problem(
    problem: Problem, metrics: tuple[Metric, ...], params: Params, data: FederatedData
) -> None:
    """Refuse a problem or a metric that the compiled programs could not use."""
    kind = type(problem).__name__
    with calling(f"hash({kind})", f"{kind} must be hashable: freeze its dataclass"):
        hash(problem)
    check_is(f"{kind}.l2", problem.l2, float)
    rows = rows_of(data.batch, 2)
    given = f"the model and a batch of shapes {[list(a.shape) for a in rows]}"
    _check_loss(problem, Shapes.of(params), rows, given)
    check_names(metrics)
    for metric in metrics:
        name = f"the metric {metric.name} ({qualified(metric.function)})"
        if data.test is None:
            continue
        with calling(f"hash of {name}", "it must be hashable, as functions are"):
            hash(metric)
        _check(name, metric.function, params, rows_of(data.test, 1), given, floating=False)


Rows = tuple[jax.ShapeDtypeStruct, ...]


def rows_of(batch: tuple[np.ndarray, ...], lead: int) -> Rows:
    """Return the shapes of a batch of one row of arrays with so many leading dimensions."""
    return tuple(jax.ShapeDtypeStruct((1, *a.shape[lead:]), a.dtype) for a in batch)


class Shapes(NamedTuple):
    """What a model looks like, as a key: tuning asks the same of it in each of its runs."""

    structure: jax.tree_util.PyTreeDef
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    double: bool
    """Whether JAX computes in float64, which a loss may not be able to."""

    @classmethod
    def of(cls, params: Params) -> "Shapes":
        """Return the shapes of a model."""
        leaves, structure = jax.tree.flatten(jax.tree.map(jnp.asarray, params))
        shapes = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in leaves)
        return cls(structure, shapes, jax.dtypes.canonicalize_dtype(float) == np.float64)

    @property
    def params(self) -> Params:
        """A model of these shapes."""
        return jax.tree.unflatten(self.structure, self.leaves)


@lru_cache(maxsize=KEPT)
def _check_loss(problem: Problem, shapes: Shapes, rows: Rows, given: str) -> None:
    name = name_of(problem, "loss")
    key = None
    if problem.draws:
        key = jax.ShapeDtypeStruct((2,), jax.random.key(0).dtype)
        given += ", with key = None, which asks for the loss without dropout"
    _check(name, problem.loss, shapes.params, rows, given, floating=True)
    clients = tuple(jax.ShapeDtypeStruct((2, 3, *a.shape[1:]), a.dtype) for a in rows)
    weights = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    gradient = jax.vmap(jax.grad(partial(summed_loss, problem)), in_axes=(None, 0, 0, 0))
    expected = f"JAX must be able to map and differentiate it at {given}"
    with calling(f"the gradient of {name}", expected):
        jax.eval_shape(gradient, shapes.params, clients, weights, key)


def rows_at_a_time(of: Problem | Metric, shapes: Shapes, rows: Rows) -> int:
    """Return how many rows to look at side by side, by the numbers that each brings about."""
    return max(1, min(MOST_ROWS, MOST_NUMBERS // max(1, _numbers(of, shapes, rows))))


@lru_cache(maxsize=KEPT)
def _numbers(of: Problem | Metric, shapes: Shapes, rows: Rows) -> int:
    f = of.function if isinstance(of, Metric) else of.loss
    return size_of(jax.make_jaxpr(by_matrices(f))(shapes.params, rows).jaxpr)


class Computing:
    """Computes in a precision; what a callback in a user's loss or metric raises is BadInput."""

    def __init__(self, double: bool):
        self._precision = jax.enable_x64(double)

    def __enter__(self) -> None:
        self._precision.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._precision.__exit__(kind, error, tb)
        if isinstance(error, jax.errors.JaxRuntimeError) and "CpuCallback" in str(error):
            reason = str(error).strip().splitlines()[-1].strip()
            raise BadInput(f"a callback in the loss or the metric failed: {reason}") from error


def name_of(problem: Problem, method: str) -> str:
    """Return what a user calls a function of a problem."""
    if isinstance(problem, Custom) and method in ("init", "loss"):
        return f"{method}_fn ({qualified(getattr(problem, f'{method}_fn'))})"
    return f"{type(problem).__name__}.{method}"


def _check(
    name: str, function: Callable[..., Any], params: Params, rows: Tree, given: str, floating: bool
) -> None:
    with calling(name, f"it must take {given}, and return one number. {TRACEABLE}"):
        value = jax.eval_shape(function, params, rows)
    leaves = jax.tree.leaves(value)
    one = len(leaves) == 1 and leaves[0] is value and jnp.shape(value) == ()
    if not one or (floating and not jnp.issubdtype(value.dtype, jnp.floating)):
        got = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "nothing"
        raise BadInput(
            f"{name} returns {got}: it must be one {'float' if floating else 'number'}, "
            "the mean over the rows of the batch"
        )
