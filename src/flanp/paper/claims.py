"""What the paper claims of its experiments, and what our runs say of it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from flanp.comparison import Comparison, SpeedUp, speed_up
from flanp.parts import Part

LEVELS = 40
"""How many targets a speed-up is looked for at."""
CLOSE = 1.5
"""What counts as close: at most this many times the time."""


Verdict = Literal["matches", "better", "falls short", "no number published"]


@dataclass(frozen=True)
class Variant(Part):
    """One cell of a table: the experiment with some values changed."""

    label: str
    set: tuple[str, ...]
    published: float


@dataclass(frozen=True)
class Experiment(Part):
    """What an experiment claims; the rest of its file is a configuration."""

    title: str
    kind: Literal["speed-up", "ratio", "slower", "saturates", "close"]
    column: str
    method: str
    baseline: str | None = None
    published: float | str | None = None
    grid: tuple[float, ...] = ()
    grid_methods: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True)
class Finding:
    """A published value and ours."""

    label: str
    published: float | str | None
    ours: float
    low: float
    high: float
    seeds: int
    unit: str
    """What the numbers are, in words."""
    verdict: Verdict
    detail: list[dict[str, Any]] = field(default_factory=list)
    """The numbers behind it, such as the speed-up at each target."""

    def line(self) -> str:
        """Return the finding in a line."""
        interval = "" if math.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        published = "–" if self.published is None else self.published
        return (
            f"{self.verdict}: {self.label}: {self.unit} {self.ours:.2f}{interval} "
            f"over {self.seeds} seeds; published {published}"
        )


def judge(experiment: Experiment, variant: Variant | None, result: Comparison) -> Iterator[Finding]:
    """Yield what the runs say of the claim, and of our own methods beside it (marked *)."""
    ours = [name for name in result.histories if name.endswith("*")]
    if experiment.kind == "speed-up":
        first = str(experiment.baseline)
        others = [name for name in result.baselines if name != first]
        for rival in (first, *others):
            yield _up_to(experiment, experiment.method, rival, rival == first, result)
        for method in ours:
            yield _up_to(experiment, method, first, False, result)
    elif experiment.kind in ("ratio", "close"):
        for method in (experiment.method, *ours):
            yield _ratio(experiment, variant, method, result)
    elif experiment.kind == "slower":
        for rival in _rivals(experiment, result):
            yield _up_to(experiment, experiment.method, rival, True, result)
    else:
        for rival in _rivals(experiment, result):
            yield _saturates(experiment, rival, result)


def _rivals(experiment: Experiment, result: Comparison) -> list[str]:
    return [n for n in result.histories if n != experiment.method and not n.endswith("*")]


def _up_to(
    experiment: Experiment, method: str, rival: str, claimed: bool, result: Comparison
) -> Finding:
    """Find the largest speed-up over a row of targets that both reach on all seeds."""
    column = experiment.column
    starts = [h.column(column)[0] for h in result.histories[rival]]
    end = max(
        lowest_of_all_seeds(result, method, column), lowest_of_all_seeds(result, rival, column)
    )
    levels = np.geomspace(min(starts), end, LEVELS + 1)[1:]
    detail, best = [], SpeedUp(math.nan, math.nan, math.nan, 0)
    for level in levels:
        up = _speed_up_at(result, method, rival, column, float(level))
        detail.append({"target": {column: float(level)}, **up._asdict()})
        if up.seeds == len(result.targets) and not up.mean <= best.mean:
            best = up
    published = experiment.published if claimed else None
    bar = published if isinstance(published, float) else 1.0
    verdict = _verdict(best.mean, bar, published, larger_is_better=True)
    label = f"{method} vs {rival}"
    return Finding(label, published, *best, "sooner by up to, times:", verdict, detail)


def _speed_up_at(result: Comparison, method: str, rival: str, column: str, level: float) -> SpeedUp:
    times = {
        name: np.array([_time(h.time_to(**{column: level})) for h in result.histories[name]])
        for name in (method, rival)
    }
    return speed_up(times[rival], times[method])


def _ratio(
    experiment: Experiment, variant: Variant | None, method: str, result: Comparison
) -> Finding:
    """Compare times to the target: T_method / T_baseline."""
    up = result.speed_up(method, str(experiment.baseline))
    claimed = method == experiment.method
    published = variant.published if variant else experiment.published
    bar = published if isinstance(published, float) else CLOSE
    verdict = _verdict(1 / up.mean, bar, published if claimed else None, larger_is_better=False)
    label = f"T({method}) / T({experiment.baseline})" + (f", {variant.label}" if variant else "")
    detail = [{"method": n, "seconds": result.times(n).tolist()} for n in result.histories]
    return Finding(
        label=label,
        published=published if claimed else None,
        ours=1 / up.mean,
        low=1 / up.high,
        high=1 / up.low,
        seeds=up.seeds,
        unit="ratio of times",
        verdict=verdict,
        detail=detail if claimed else [],
    )


def _saturates(experiment: Experiment, rival: str, result: Comparison) -> Finding:
    """Compare the lowest losses: rival over method."""
    column = experiment.column
    lowest = {
        name: np.array([np.nanmin(h.column(column)) for h in result.histories[name]])
        for name in (experiment.method, rival)
    }
    up = speed_up(lowest[rival], lowest[experiment.method])
    label = f"lowest {column} of {rival} over that of {experiment.method}"
    verdict = _verdict(up.mean, 1.0, experiment.published, larger_is_better=True)
    return Finding(label, experiment.published, *up, "ratio", verdict)


def _verdict(
    ours: float, bar: float, published: float | str | None, larger_is_better: bool
) -> Verdict:
    """Return how ours compares with what was published.

    A number is beaten by a tenth more; words, such as "close", can only be matched.
    """
    if published is None:
        return "no number published"
    gain = ours / bar if larger_is_better else bar / ours
    if math.isnan(gain) or gain < 1 - 1e-9:
        return "falls short"
    return "better" if gain > 1.1 and not isinstance(published, str) else "matches"


def lowest_of_all_seeds(result: Comparison, name: str, column: str) -> float:
    """Return the lowest level that a method reaches on all seeds."""
    return max(float(np.nanmin(h.column(column))) for h in result.histories[name])


def _time(value: float | None) -> float:
    return math.nan if value is None else value
