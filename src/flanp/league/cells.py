"""One cell of the league: a method, tuned and measured in one scenario on one problem."""

import math
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

from flanp.data import FederatedData
from flanp.divergence import Diverged
from flanp.history import History
from flanp.league.entries import Entry, entries
from flanp.league.scenarios import MODEL_BYTES, Scenario, Setting
from flanp.method import Method
from flanp.network import Phones
from flanp.simulator.simulate import Simulation, prepare
from flanp.simulator.world import world_of
from flanp.target import STATISTICAL_ACCURACY, Target, resolve_target
from flanp.trying import attempt
from flanp.tuning import Attempt, OutOfReach, Tuned, tune

FIRST_TUNING_SEED = 1000
"""Seeds from here on are for tuning alone."""
LAST = -1
"""Number of the last target."""
COARSE, FINE = 0.03, 0.01
"""By what share the time grows between two looks, in tuning and when it counts."""


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
    try:
        return _played(setting, scenario, name)
    finally:
        jax.clear_caches()  # the next cell has programs of its own; a worker's would fill memory


def _played(setting: Setting, scenario: Scenario, name: str) -> dict[str, Any]:
    began = time.perf_counter()
    first = facts(setting, scenario, FIRST_TUNING_SEED)
    entry = entries(setting, first.step)[name]
    seeds = [FIRST_TUNING_SEED + i for i in range(setting.tuning_seeds)]
    cell: dict[str, Any] = {
        "setting": setting.name,
        "scenario": scenario.name,
        "method": name,
        "group": entry.group,
        "tuned on": seeds,
        "targets": list(setting.targets or [STATISTICAL_ACCURACY]),
    }
    refused = ""
    for level in reversed(range(len(cell["targets"]))):
        try:
            tuned = tuned_for(setting, scenario, entry, level, seeds)
        except OutOfReach as error:  # then for a level that is easier to reach
            refused = refused or str(error)
        else:
            return cell | {
                "knobs": tuned.knobs,
                "tuning runs": tuned.runs,
                "tuned for": cell["targets"][level],
                "results": measured(setting, scenario, tuned),
                "seconds": time.perf_counter() - began,
            }
    return cell | {"refused": refused, "seconds": time.perf_counter() - began}


def tuned_for(
    setting: Setting, scenario: Scenario, entry: Entry, level: int, seeds: list[int]
) -> Tuned:
    """Return the method with the knobs that lead to one of the targets soonest."""

    def run(method: Method, seed: int, limit: float) -> Attempt:
        return attempt(held(setting, scenario, method, seed, limit, level, COARSE))

    limit = setting.horizon * facts(setting, scenario, seeds[0]).slowest
    return tune(run, entry.method, entry.knobs, seeds, limit)


def measured(setting: Setting, scenario: Scenario, tuned: Tuned) -> list[list[Any]]:
    """Return what came of a tuned method on each seed, and its slowest client's seconds."""
    found = []
    for seed in range(setting.seeds):
        slowest = facts(setting, scenario, seed).slowest
        limit = setting.horizon * slowest
        run = held(setting, scenario, tuned.method, seed, limit, LAST, FINE)
        with suppress(Diverged):  # tuning gives runs up that stand still; these go on to the end
            run.to_the_end()
        of_seed = results(setting, scenario, run.history, seed)
        found.append([result._asdict() for result in of_seed] + [{"slowest": slowest}])
    return found


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
    level: int,
    growth: float,
) -> Simulation:
    """Return a run of a method to one of the targets, or so many seconds.

    From one look at it to the next its time grows by a share, or it does a round.
    """
    at = facts(setting, scenario, seed)
    target = targets(setting, scenario, seed)[level]
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
        record_growth=growth,
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
