"""Comparing methods on the same data, model and speeds, over several seeds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from flanp.checks import BadInput, require
from flanp.data import FederatedData, Source
from flanp.divergence import Diverged
from flanp.files import write_json
from flanp.history import History
from flanp.method import Method
from flanp.participation import Everyone
from flanp.parts import Seed, Within, check_is
from flanp.problems import Objective, Problem, Torch
from flanp.progress import Progress
from flanp.ratios import SpeedUp, speed_up
from flanp.simulator.simulate import check_method, check_options, prepare
from flanp.speeds import DEFAULT, Speeds
from flanp.target import Target, resolve_target
from flanp.trying import tune_methods

TUNING_SEEDS = 2
SEEDS = 5
"""On how many seeds methods are compared where nothing else is said."""
Seeds = Annotated[int, Within(1, 10_000)]


@dataclass
class Comparison:
    """The histories of several methods over several seeds, and what they say."""

    histories: dict[str, list[History]] = field(default_factory=dict)
    """For each method a history for each seed."""
    baselines: tuple[str, ...] = ()
    """The methods that the others are set against: those in which everyone takes part."""
    targets: list[Target | None] = field(default_factory=list)
    """The target of each seed; None where every method diverged."""
    goal: str = ""
    """What the target is, in words, if it is not a level that was given."""
    about: dict[str, Any] = field(default_factory=dict)

    def times(self, method: str) -> np.ndarray:
        """Return the virtual time to the target on each seed; NaN where it was not reached."""
        rows = [target and h.first_at(target) for h, target in self._pairs(method)]
        return np.array([row.time if row else math.nan for row in rows])

    def rounds(self, method: str) -> np.ndarray:
        """Return the rounds to the target on each seed; NaN where it was not reached."""
        rows = [target and h.first_at(target) for h, target in self._pairs(method)]
        return np.array([row.round if row else math.nan for row in rows])

    def _pairs(self, method: str) -> Iterator[tuple[History, Target | None]]:
        # An interrupted comparison has runs of a seed that has no target yet.
        return zip(self.histories[method], self.targets, strict=False)

    def waiting(self, method: str) -> float:
        """Return the share of their time that participants spent waiting for the slowest."""
        shares = []
        for history in self.histories[method]:
            seconds = np.diff(history.column("time"))
            if seconds.sum() > 0:
                shares.append(np.average(history.column("waiting")[1:], weights=seconds))
        return float(np.mean(shares)) if shares else math.nan

    def speed_up(self, method: str, baseline: str) -> SpeedUp:
        """Return how much sooner a method reaches the target than a baseline.

        The ratio is taken on each seed, where both have the same data and speeds. Its
        geometric mean gets Student's interval on the logarithms.
        """
        return speed_up(self.times(baseline), self.times(method))

    def renamed(self, names: dict[str, str]) -> "Comparison":
        """Return the part with these methods: the new name of each, and its name here."""
        histories = {new: list(self.histories[old]) for new, old in names.items()}
        baselines = tuple(new for new, old in names.items() if old in self.baselines)
        return replace(self, histories=histories, baselines=baselines, targets=list(self.targets))

    def extend(self, more: "Comparison") -> None:
        """Add the same methods' runs on further seeds."""
        for name, histories in self.histories.items():
            histories += more.histories[name]
        self.targets += more.targets

    def rows(self) -> list[dict[str, Any]]:
        """Return the table: a row for each method."""
        return [
            {
                "method": name,
                "reached": int(np.isfinite(self.times(name)).sum()),
                "seeds": len(self.targets),
                "rounds": _mean(self.rounds(name)),
                "time": _mean(self.times(name)),
                "waiting": self.waiting(name),
                "ended": [str(history.ended) for history in self.histories[name]],
                "diverged": sum(history.diverged for history in self.histories[name]),
                "speed_up": {b: self.speed_up(name, b)._asdict() for b in self.baselines},
            }
            for name in self.histories
        ]

    def save(self, folder: Path | str) -> None:
        """Write comparison.json, and each run's history into a folder of its own."""
        folder = Path(folder)
        for name, histories in self.histories.items():
            for history in histories:
                history.save(folder / slug(name) / f"seed-{history.about['seed']}")
        targets = [target.given() if target else {} for target in self.targets]
        result = {"tuned": False, **self.about, "targets": targets, "methods": self.rows()}
        write_json(folder / "comparison.json", result)


def compare(
    problem: Objective,
    data: FederatedData | Source,
    methods: dict[str, Method],
    speeds: Speeds = DEFAULT,
    *,
    seeds: int = SEEDS,
    seed: int = 0,
    target: dict[str, float] | str | None = None,
    progress: bool = True,
    tune: Sequence[str] | Mapping[str, Sequence[float]] = (),
    tuning_seeds: int = TUNING_SEEDS,
    partial: Comparison | None = None,
    **options: Any,
) -> Comparison:
    """Run several methods on the same data, start model and speeds, over several seeds.

    Args:
        problem: what is minimised.
        data: the clients' samples, or a source that loads them for each seed.
        methods: the methods by name.
        speeds: seconds per local step, drawn for each seed.
        seeds: how many.
        seed: the first of them.
        target: for instance {"loss": 0.3}; or "statistical accuracy", which is
            ||grad L_N||^2 <= 2 mu c/(N s) where the problem knows mu and c. Without one it is the
            lowest loss that every method reaches within the limits, on each seed.
        progress: show progress where it takes over two seconds.
        tune: knobs that are to be each method's own best, such as ["eta", "tau"], or the values to
            try of each, such as {"eta": [0.1, 0.2]}; see `flanp.tuning`.
        tuning_seeds: on how many further seeds they are tried.
        partial: a comparison to fill, which then holds what was done if this is interrupted.
        options: keywords of `simulate`.

    >>> from flanp import Method, data, participation, problems, solvers
    >>> gate = solvers.FedGATE(eta=0.1)
    >>> result = compare(
    ...     problems.LinearRegression(),
    ...     data.Synthetic(clients=16, samples=50),
    ...     {
    ...         "FLANP": Method(gate),
    ...         "FedGATE": Method(gate, participation.Everyone()),
    ...     },
    ...     seeds=2,
    ...     target="statistical accuracy",
    ... )
    >>> result.speed_up("FLANP", "FedGATE").mean > 1
    True
    """
    check_options(options, given={"target", "seed", "endless", "resume", "hooks"})
    check_is("problem", problem, Problem | Torch)
    check_is("data", data, FederatedData | Source, ". Arrays: see flanp.data.from_clients")
    check_is("speeds", speeds, Speeds)
    check_is("partial", partial, Comparison | None)
    if isinstance(methods, dict) and not methods:
        raise BadInput("there is nothing to compare: give at least one method")
    if not isinstance(methods, dict):
        raise BadInput(
            f"methods is a {type(methods).__name__}: it must be a dict of flanp.Method by name"
        )
    for name, method in methods.items():
        check_is("methods", name, str)
        check_is(f"methods.{name}", method, Method)
    seeds, seed = check_is("seeds", seeds, Seeds), check_is("seed", seed, Seed)
    require(seed + seeds <= 2**32, "seed", seed, f"so that {seeds} seeds stay below 2^32")
    folders = [slug(name) for name in methods]
    for name in methods:
        if folders.count(slug(name)) > 1:
            raise BadInput(
                f"methods.{name}: another method has the same name but for signs; rename"
            )
    result = partial if partial is not None else Comparison()
    result.histories = {name: [] for name in methods}
    result.baselines = tuple(
        name for name, method in methods.items() if isinstance(method.participation, Everyone)
    )
    if not isinstance(target, dict):
        result.goal = (
            f"{target} of all data" if target else "the lowest loss that all methods reach"
        )
    if tune:
        after = seed + seeds
        chosen = tune_methods(
            *(problem, data, methods, speeds, tune),
            range(after, after + check_is("tuning_seeds", tuning_seeds, Seeds)),
            target,
            progress,
            **options,
        )
        methods = {name: found.method for name, found in chosen.items()}
        result.about["tuned"] = {
            "seeds": [after, after + tuning_seeds - 1],
            "knobs": {name: found.knobs for name, found in chosen.items()},
        }
    with Progress("", total=seeds * len(methods), enabled=progress) as shown:
        for number in range(seed, seed + seeds):
            loaded = data.loaded(number) if isinstance(data, Source) else data
            for name, method in methods.items():
                _check(name, method, problem, loaded)
            level = resolve_target(target, problem, loaded)
            for name, method in methods.items():
                shown.title = f"{name}, seed {number}"
                run = prepare(
                    problem,
                    loaded,
                    method,
                    speeds,
                    seed=number,
                    target=level,
                    endless=True,
                    hooks=(shown,),
                    **options,
                )
                result.histories[name].append(run.history)
                with suppress(Diverged):  # its history says so, and that it missed the target
                    run.to_the_end()
                shown.advance()
            runs = [histories[-1] for histories in result.histories.values()]
            common = Target.of(level, runs[0].metrics) if level else common_target(runs)
            result.targets.append(common)
    return result


def slug(name: str) -> str:
    """Return a name that can be a folder's.

    >>> slug("FLANP (no idle)")
    'flanp-no-idle'
    """
    words = "".join(ch if ch.isalnum() else " " for ch in name.lower()).split()
    return "-".join(words)[:60].strip("-") or "method"


def _check(name: str, method: Method, problem: Objective, data: FederatedData) -> None:
    """Refuse a method that cannot run on the data before any other has run."""
    try:
        check_method(method, problem, data)
    except BadInput as error:
        raise BadInput(f"methods.{name}: {error}") from error


def common_target(runs: list[History]) -> Target | None:
    """Return the lowest loss that all runs reach which did not diverge; None if all did."""
    settled = [run for run in runs if run.rows and not run.diverged]
    lowest = [float(np.nanmin(run.column("loss"))) for run in settled]
    return Target("loss", max(lowest)) if lowest else None


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if np.isfinite(values).all() and len(values) else math.nan
