"""Trying methods with other knobs, on seeds that a comparison does not use."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flanp.checks import BadInput
from flanp.data import FederatedData, Source
from flanp.divergence import Diverged
from flanp.method import Method
from flanp.problems import Objective
from flanp.progress import Progress
from flanp.simulator.simulate import Simulation, prepare
from flanp.speeds import Speeds
from flanp.target import resolve_target
from flanp.tuning import Attempt, Tuned, knobs_of
from flanp.tuning import tune as tune_one

GAIN, STALLED = 0.05, 2.0
"""What a run must gain, and by what factor of its time, to be gone on with."""
RECORDS, ROUNDS = 20, 10.0
"""How many records, and rounds of the slowest client, a run has in any case."""


def tune_methods(
    problem: Objective,
    data: FederatedData | Source,
    methods: dict[str, Method],
    speeds: Speeds,
    tune: Sequence[str] | Mapping[str, Sequence[float]],
    seeds: Sequence[int],
    target: dict[str, float] | str | None,
    progress: bool = True,
    **options: Any,
) -> dict[str, Tuned]:
    """Find each method's own best knobs on some seeds, which are not to be used again.

    See `compare` for the arguments.
    """
    if target is None:
        raise BadInput("tune needs a target that all methods go for, such as { loss = 0.3 }")
    loaded = {n: data.loaded(n) if isinstance(data, Source) else data for n in seeds}
    levels = {n: resolve_target(target, problem, loaded[n]) for n in seeds}
    limit = options.pop("max_time", math.inf)
    tuned = {}
    with Progress("", total=len(methods), enabled=progress) as shown:
        for name, method in methods.items():
            shown.title = f"tuning {name}"

            def run(method: Method, seed: int, limit: float) -> Attempt:
                simulation = prepare(
                    problem,
                    loaded[seed],
                    method,
                    speeds,
                    seed=seed,
                    target=levels[seed],
                    hooks=(shown,),
                    max_time=limit,
                    **options,
                )
                return attempt(simulation)

            knobs = knobs_of(method, tune, loaded[seeds[0]].N)
            try:
                tuned[name] = tune_one(run, method, knobs, seeds, limit)
            except BadInput as error:
                raise BadInput(f"methods.{name}: {error}") from error
            shown.advance()
    return tuned


def attempt(run: Simulation) -> Attempt:
    """Run to the target; say when it was reached or, if it was not, by what factor not.

    A run that has not gained 5% in the second half of its time has found its level, and is not
    gone on with, unless the slowest clients may not have been heard yet.
    """
    assert run.target is not None
    engine: Any = run.engine
    of_slowest = (run.method.work.base(engine.s) * engine.world.T + engine.exchange()).max()
    sign = -1 if run.target.sign == ">=" else 1
    gained: list[tuple[float, float]] = []
    try:
        for row in run:
            value = sign * row.value(run.target.column)
            if not gained or value < gained[-1][1] - GAIN * abs(gained[-1][1]):
                gained.append((row.time, value))
            elif len(run.history.rows) > RECORDS and row.time > max(
                STALLED * gained[-1][0], ROUNDS * of_slowest
            ):
                break
    except Diverged:
        return Attempt(math.nan)
    reached = run.history.first_at(run.target)
    if reached is not None:
        return Attempt(max(reached.time, 1e-12))
    values = sign * run.history.column(run.target.column)
    if len(gained) == 1 and values[-1] > values[0]:  # it has only become worse: it diverges
        return Attempt(math.nan)
    best = sign * gained[-1][1] / run.target.level
    return Attempt(math.inf, 1 / best if sign < 0 else best)
