"""One cell of the league: a method, tuned and measured in one scenario on one problem."""

import math
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from flanp.checks import BadInput
from flanp.data import FederatedData
from flanp.divergence import Diverged
from flanp.history import History
from flanp.league.entries import entries
from flanp.league.scenarios import MODEL_BYTES, Scenario, Setting
from flanp.method import Method
from flanp.network import Phones
from flanp.simulator.simulate import Simulation, prepare
from flanp.simulator.world import world_of
from flanp.target import STATISTICAL_ACCURACY, Target, resolve_target
from flanp.trying import attempt
from flanp.tuning import Attempt, tune

FIRST_TUNING_SEED = 1000
"""Seeds from here on are for tuning alone."""
LOOKS = 60
"""How often a run is looked at until its limit: a look at all data costs as much as a round."""
FINE = 200
"""How often, at the least, until the time that tuning has led to expect."""


class Facts(NamedTuple):
    """What a seed's world is like."""

    data: FederatedData
    step: float
    """Seconds of the median client's step, and of an exchange."""
    slowest: float
    """Seconds of the slowest client's step, and of its exchange."""


class Result(NamedTuple):
    """What one run came to at one target."""

    time: float
    """Infinite if it was not reached."""
    spent: float
    """Client-seconds."""
    bytes: float


def play(setting: Setting, scenario: Scenario, name: str) -> dict[str, Any]:
    """Tune a method and measure it; return all that is known of it, for a file."""
    began = time.perf_counter()
    first = facts(setting, scenario, FIRST_TUNING_SEED)
    entry = entries(setting, first.step)[name]
    limit = setting.horizon * first.slowest
    seeds = [FIRST_TUNING_SEED + i for i in range(setting.tuning_seeds)]

    def run(method: Method, seed: int, limit: float) -> Attempt:
        return attempt(held(setting, scenario, method, seed, limit))

    cell: dict[str, Any] = {
        "setting": setting.name,
        "scenario": scenario.name,
        "method": name,
        "group": entry.group,
        "tuned on": seeds,
        "targets": list(setting.targets or [STATISTICAL_ACCURACY]),
    }
    try:
        tuned = tune(run, entry.method, entry.knobs, seeds, limit)
    except BadInput as error:
        return cell | {"refused": str(error), "seconds": time.perf_counter() - began}
    measured = []
    for seed in range(setting.seeds):
        at = facts(setting, scenario, seed)
        limit = setting.horizon * at.slowest
        run_ = held(setting, scenario, tuned.method, seed, limit, tuned.time / FINE)
        with suppress(Diverged):  # tuning gives runs up that stand still; these go on to the end
            run_.to_the_end()
        of_seed = results(setting, scenario, run_.history, seed)
        measured.append([result._asdict() for result in of_seed] + [{"slowest": at.slowest}])
    return cell | {
        "knobs": tuned.knobs,
        "tuning runs": tuned.runs,
        "results": measured,
        "seconds": time.perf_counter() - began,
    }


@cache
def facts(setting: Setting, scenario: Scenario, seed: int) -> Facts:
    """Return what a seed's world is like."""
    data = replace(setting.source(scenario).loaded(seed), test=None)  # the loss is what counts
    samples = data.s if setting.batch is None else np.minimum(setting.batch, data.s)
    weighed = weighed_network(setting, scenario)
    world = world_of(data.ids, samples, scenario.speeds, weighed, scenario.availability, seed)
    down, up = world.exchange(0.0, int(setting.weight), int(setting.weight))
    seconds = world.T + down + up
    return Facts(data, float(np.median(seconds)), float(seconds.max()))


def weighed_network(setting: Setting, scenario: Scenario) -> Any:
    """Return the network on which the model weighs what it is taken to weigh."""
    if isinstance(scenario.network, Phones):
        return Phones(times=MODEL_BYTES / setting.weight)
    return scenario.network


def held(
    setting: Setting,
    scenario: Scenario,
    method: Method,
    seed: int,
    limit: float,
    apart: float = math.inf,
) -> Simulation:
    """Return a run of a method to the last target, or so many seconds.

    Two looks at it are at most so many seconds apart, or a round.
    """
    at = facts(setting, scenario, seed)
    target = targets(setting, scenario, seed)[-1]
    return prepare(
        setting.problem,
        at.data,
        method,
        scenario.speeds,
        network=weighed_network(setting, scenario),
        availability=scenario.availability,
        seed=seed,
        target=target.given(),
        max_time=limit,
        max_rounds=1_000_000,
        record_after=min(limit / LOOKS, apart),
        devices=1,
    )


def targets(setting: Setting, scenario: Scenario, seed: int) -> list[Target]:
    """Return the levels that a run is to reach, the last one last."""
    if setting.targets is not None:
        return [Target.of({"loss": loss}) for loss in setting.targets]
    data = facts(setting, scenario, seed).data
    level = resolve_target(STATISTICAL_ACCURACY, setting.problem, data)
    assert level is not None
    return [Target.of(level)]


def results(setting: Setting, scenario: Scenario, history: History, seed: int) -> list[Result]:
    """Return what a run came to at each target."""
    rows = [history.first_at(target) for target in targets(setting, scenario, seed)]
    nothing = Result(math.inf, math.inf, math.inf)
    return [
        Result(row.time, row.spent, float(row.sent + row.received)) if row else nothing
        for row in rows
    ]
