"""Simulating one method, from Python in a few lines."""

import inspect
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from flanp.availability import ALWAYS, Availability
from flanp.checks import BadInput, nearest
from flanp.clock import Clock
from flanp.data import FederatedData, Source
from flanp.describe import describe
from flanp.files import checksum
from flanp.history import History, Row
from flanp.hooks import Hook, hooks_of
from flanp.limits import Limits
from flanp.measurement import Look
from flanp.method import Method
from flanp.metrics import Metric
from flanp.network import FREE, Network
from flanp.parts import Count, Seed, check_is, field_types
from flanp.problems import Objective, Problem, Torch
from flanp.progress import Progress
from flanp.pytorch import PYTORCH
from flanp.run import Run
from flanp.simulator.asynchronous import AsyncSimulator
from flanp.simulator.compiled import COMPILED
from flanp.simulator.engine import Simulator
from flanp.simulator.kept import Model
from flanp.simulator.world import world_of
from flanp.solvers.asynchronous import AsyncSolver
from flanp.solvers.base import check_step_sizes
from flanp.speeds import DEFAULT, Speeds
from flanp.target import Target

Precision = Literal["float32", "float64"]
Simulation: TypeAlias = Run[Model]


def prepare(
    problem: Objective,
    data: FederatedData | Source,
    method: Method,
    speeds: Speeds = DEFAULT,
    *,
    network: Network = FREE,
    availability: Availability = ALWAYS,
    seed: int = 0,
    metrics: Sequence[Metric] = (),
    target: dict[str, float] | None = None,
    endless: bool = False,
    precision: Precision = "float32",
    devices: int | None = None,
    hooks: Sequence[Hook] = (),
    resume: Path | None = None,
    **limits: Any,
) -> Simulation:
    """Return a simulated run: iterate over it to advance it record by record.

    See `simulate` for the arguments; `resume` is the folder of a checkpoint.

    >>> from flanp import Method, data, problems, solvers
    >>> run = prepare(
    ...     problems.LinearRegression(), data.Synthetic(clients=8),
    ...     Method(solvers.FedGATE(eta=0.1)), max_rounds=3,
    ... )
    >>> [row.n for row in run]
    [0, 1, 1, 1]
    """
    check_options(limits)
    check_is("problem", problem, Problem | Torch)
    check_is("data", data, FederatedData | Source, ". Arrays: see flanp.data.from_clients")
    check_is("method", method, Method, ". Give it as flanp.Method(solver)")
    check_is("speeds", speeds, Speeds, ". Numbers: flanp.speeds.Measured((1.0, ...))")
    check_is("network", network, Network)
    check_is("availability", availability, Availability)
    check_is("precision", precision, Precision)
    seed = check_is("seed", seed, Seed)
    if isinstance(data, Source):
        data = data.loaded(seed)
    measured = (*problem.metrics, *check_is("metrics", tuple(metrics), tuple[Metric, ...]))
    if metrics and data.test is None:
        raise BadInput("metrics: the data has no held-out rows to measure them on; see `test`")
    method = check_method(method, problem, data)
    batch = method.work.batch
    samples = data.s if batch is None else np.minimum(batch, data.s)
    world = world_of(data.ids, samples, speeds, network, availability, seed)
    T = world.T
    sizes = method.participation.sizes(data.N)
    tau = method.work.local_steps(T, data.s, np.zeros(data.N))
    check_step_sizes(method.solver, sizes, data.N, problem.l2, tau, precision)
    options: dict[str, Any] = {
        "first": sizes[0],
        "batch": batch,
        "row_by_row": method.participation.sees_losses,
        "seed": seed,
        "precision": precision,
        "metrics": measured,
        "devices": check_is("devices", devices, Count | None),
        "backend": PYTORCH if isinstance(problem, Torch) else COMPILED,
    }
    engine: Any  # of the one kind or the other
    if isinstance(method.solver, AsyncSolver):
        engine = AsyncSimulator(problem, data, method.solver, world, **options)
    else:
        engine = Simulator(problem, data, method.solver, world, **options)
    about = {
        "problem": describe(problem),
        "speeds": describe(speeds),
        "network": describe(network),
        "availability": describe(availability),
        "clients": data.N,
        "samples": int(data.s.sum()),
        "precision": precision,
        # So that a checkpoint of other data, speeds or another start model is noticed.
        "checksum": checksum(
            (*data.batch, data.weights, *(data.test or ()), T, np.asarray(engine.machine.start_w))
        ),
    }
    run = Run(
        engine,
        method,
        Clock(given=T, given_exchange=engine.exchange()) if speeds.known else Clock(),
        seed=seed,
        about=about,
        metrics=engine.metrics,
        look=Look.ACTIVE | Look.WHOLE,
        target=None if target is None else Target.of(target, engine.metrics),
        endless=check_is("endless", endless, bool),
        limits=Limits(**limits),
        hooks=(NonzeroGradient(), *hooks_of(hooks)),
        resume=resume,
    )
    if resume is not None and run.history.rows:
        _check_start(run, run.state.model._replace(w=engine.machine.start_w))
    return run


def simulate(
    problem: Objective,
    data: FederatedData | Source,
    method: Method,
    speeds: Speeds = DEFAULT,
    *,
    progress: bool = True,
    hooks: Sequence[Hook] = (),
    **options: Any,
) -> History:
    """Simulate federated training and return its history.

    Args:
        problem: what is minimised.
        data: the clients' samples, or a source that loads them for the seed.
        method: the federated method: a solver, and FLANP unless other parts are given.
        speeds: seconds per local step; uniform on [50, 500] if left out.
        progress: show progress where it takes over two seconds.
        hooks: who is told of what happens in the run.
        options: keywords of `prepare`:
            network: what exchanges cost; nothing if left out, as in the paper.
            availability: whether clients come and go, or drop out; they do not, if left out.
            seed: of everything random.
            metrics: what to measure on held-out data beside the problem's own metrics.
            target: for instance {"loss": 0.3}; the run ends there, and not before.
            endless: go on after the last stage's accuracy is reached, up to the limits.
            max_rounds: limit on the rounds.
            max_time: limit on the virtual time.
            record_every: record, and evaluate, every so many rounds.
            record_after: record no sooner than this much virtual time after the last record.
            record_growth: nor before the virtual time has grown by this share since then.
            precision: "float32" or "float64".
            devices: how many of the machine's to use; all, if left out.

    >>> import flanp
    >>> history = flanp.simulate(
    ...     flanp.problems.LinearRegression(),
    ...     flanp.data.Synthetic(clients=20, samples=50),
    ...     flanp.Method(flanp.solvers.FedGATE(eta=0.1)),
    ... )
    >>> print(history.ended)
    accuracy reached
    """
    check_is("method", method, Method, ". Give it as flanp.Method(solver)")
    with Progress(type(method.solver).__name__, enabled=progress) as shown:
        run = prepare(problem, data, method, speeds, hooks=(*hooks_of(hooks), shown), **options)
        return run.to_the_end()


def check_method(method: Method, problem: Objective, data: FederatedData) -> Method:
    """Return a method with what its rule needs of the problem; refuse one that cannot run."""
    method.participation.check(data.N)
    if isinstance(method.solver, AsyncSolver):
        _check_asynchronous(method, data.N)
    return replace(method, stop=method.stop.complete(problem, data))


def _check_asynchronous(method: Method, N: int) -> None:
    """Refuse what makes no sense without rounds."""
    name, everyone = type(method.solver).__name__, np.arange(N)
    sizes = method.participation.sizes(N)
    if any(len(method.participation.drawn_from(n, everyone)) > n for n in sizes):
        raise BadInput(
            f"{name} is asynchronous: it has no rounds to draw clients for. Use it with Everyone, "
            "FastestK or Growing"
        )
    if method.patience.limits(sizes[-1]).deadline < math.inf:
        raise BadInput(f"{name} is asynchronous: nobody waits, so leave the deadline out")


def check_options(options: dict[str, Any], given: Collection[str] = ()) -> None:
    """Refuse keywords that `prepare` does not have, or that are given in another way."""
    parameters = inspect.signature(prepare).parameters.values()
    known = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} | field_types(Limits).keys()
    for key in options:
        if key not in known - {*given}:
            raise BadInput(f"{key}: unknown keyword{nearest(key, known - {*given})}")


class NonzeroGradient(Hook):
    """Refuses a loss that does not depend on the model; a start at its minimum is none."""

    def on_row(self, run: Simulation, row: Row) -> None:
        """Look near the start, where its gradient is zero."""
        if row.round == 0 and row.grad_norm_sq == 0:
            nearby = run.state.model._replace(w=run.state.model.w + 0.1)
            seen = run.engine.look(nearby, run.state.active, Look.ACTIVE).active
            if seen is not None and seen.grad_norm_sq == 0:
                raise BadInput(
                    "the gradient of the loss is zero: it does not depend on the parameters"
                )


def _check_start(run: Simulation, start: Model) -> None:
    """Refuse to resume with another loss or metric: they differ at the start model."""
    then = run.history.rows[0]
    seen = run.engine.look(start, np.zeros(0, int), Look.WHOLE).whole
    assert seen is not None
    now = {"loss": seen.loss, "grad_norm_sq": seen.grad_norm_sq} | run.engine.evaluate(start, 0)
    for name, b in now.items():
        if name in run.history.about["metrics"] and name not in then.metrics:
            continue  # a metric that was not measured then
        a = then.value(name)
        # Other devices add up in another order.
        if not np.isclose(a, b, rtol=1e-3, atol=1e-6, equal_nan=True):
            raise BadInput(
                f"the checkpoint is of another run: its {name} at the start was {a:.6g}, and "
                f"is {b:.6g}. Resume with the same loss and metric, or start anew"
            )
