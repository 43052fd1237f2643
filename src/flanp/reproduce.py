"""The paper's figures and tables: our numbers beside the published ones."""

import json
import math
import time
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from flanp.algorithm import Method
from flanp.checks import BadInput, nearest
from flanp.comparison import Comparison, SpeedUp, compare, speed_up
from flanp.config import Config, apply_override, build, validated
from flanp.files import write_atomically, write_json
from flanp.plots import VARIANT, plot_panels

LEVELS = 40
"""How many targets a speed-up is looked for at."""
CLOSE = 1.5
"""What counts as close: at most this many times the time."""
QUICK_SEEDS = 2


class Variant(BaseModel):
    """One cell of a table: the experiment with some values changed."""

    model_config = ConfigDict(extra="forbid")
    label: str
    set: list[str]
    published: float


class Experiment(BaseModel):
    """What an experiment claims; the rest of its file is a configuration."""

    model_config = ConfigDict(extra="forbid")
    title: str
    kind: Literal["speed-up", "ratio", "slower", "saturates", "close"]
    column: str
    method: str
    baseline: str | None = None
    published: float | str | None = None
    grid: list[float] = []
    grid_methods: list[str] = []
    quick: list[str] = []
    variants: list[Variant] = []


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
    verdict: Literal["matches", "better", "falls short", "no number published"]
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


@dataclass
class Reproduction:
    """The outcome of an experiment."""

    name: str
    title: str
    findings: list[Finding]
    comparisons: dict[str, Comparison]
    """What was run, by variant."""
    seconds: float
    column: str

    def save(self, folder: Path) -> list[Path]:
        """Write NAME.json, NAME.png and NAME.svg; return the files."""
        folder.mkdir(parents=True, exist_ok=True)
        files = plot_panels(self.comparisons, self.column, self.title, folder / self.name)
        result = {
            "name": self.name,
            "title": self.title,
            "seconds": round(self.seconds, 1),
            "findings": [asdict(finding) for finding in self.findings],
            "runs": {label: c.rows() for label, c in self.comparisons.items()},
            "config": {label: c.about["config"] for label, c in self.comparisons.items()},
        }
        path = folder / f"{self.name}.json"
        write_json(path, result)
        return [path, *files]


def write_table(folder: Path) -> Path:
    """Write README.md into a folder of results: a row for each finding of each experiment."""
    lines = [
        "| figure | command | minutes | what | published | ours (95%) | seeds | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text("utf-8"))
        head = f"[{result['name']}]({result['name']}.png) | `flanp reproduce {result['name']}`"
        head += f" | {result['seconds'] / 60:.1f}"
        for finding in result["findings"]:
            low, high = finding["low"], finding["high"]
            interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
            ours = "–" if finding["ours"] is None else f"{finding['ours']:.2f}{interval}"
            published = "–" if finding["published"] is None else finding["published"]
            what = f"{finding['label']}, {finding['unit'].rstrip(':')}"
            verdict = finding["verdict"]
            if verdict != "no number published":
                verdict = f"**{verdict}**"
            cells = [head, what, str(published), ours, str(finding["seeds"]), verdict]
            lines.append("| " + " | ".join(cells) + " |")
            head = " | | "
    path = folder / "README.md"
    write_atomically(path, "\n".join(lines) + "\n")
    return path


def names() -> list[str]:
    """Return the names of all experiments."""
    files = resources.files("flanp.experiments").iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def reproduce(
    name: str,
    seeds: int | None = None,
    data: Path | None = None,
    quick: bool = False,
    progress: bool = True,
) -> Reproduction:
    """Run an experiment.

    Args:
        name: for instance "fig3".
        seeds: how many; as many as the experiment's file says if left out.
        data: folder with MNIST and CIFAR-10; they are downloaded if left out.
        quick: run a small version, for a look: small data, two seeds.
        progress: show progress.
    """
    if name not in names():
        raise BadInput(f"there is no experiment {name!r}{nearest(name, names())}")
    start = time.monotonic()
    source = resources.files("flanp.experiments") / f"{name}.toml"
    raw = tomllib.loads(source.read_text("utf-8"))
    experiment = Experiment(**validated(Experiment, raw.pop("experiment"), "experiment."))
    for override in experiment.quick if quick else ():
        apply_override(raw, override)
    if quick:
        raw["seeds"] = QUICK_SEEDS
    if seeds is not None:
        raw["seeds"] = seeds
    if data is not None and raw["data"]["name"] in ("MNIST", "CIFAR10"):
        raw["data"]["folder"] = str(Path(data).resolve())
    variants: list[Variant | None] = [*experiment.variants] or [None]
    comparisons: dict[str, Comparison] = {}
    findings: list[Finding] = []
    for variant in variants:
        changed = json.loads(json.dumps(raw))
        for override in variant.set if variant else ():
            apply_override(changed, override)
        config = build(changed, Path.cwd())
        result = _run(experiment, config, progress)
        comparisons[variant.label if variant else ""] = result
        findings += judge(experiment, variant, result)
    seconds = time.monotonic() - start
    return Reproduction(name, experiment.title, findings, comparisons, seconds, experiment.column)


def _run(experiment: Experiment, config: Config, progress: bool) -> Comparison:
    settings = config.settings
    methods = config.methods | _best_of_grid(experiment, config)
    return compare(
        config.problem,
        config.data,
        methods,
        config.speeds,
        seeds=settings.seeds,
        target=settings.target,
        progress=progress,
        partial=Comparison(about={"config": config.raw}),
        **settings.limits(),
    )


def _best_of_grid(experiment: Experiment, config: Config) -> dict[str, Method]:
    """Return each baseline at the best step size of the grid, where that is not its own.

    The best is the one that is first at the lowest level that all of them reach on seed 0.
    """
    best = {}
    for name in experiment.grid_methods:
        tried = {f"{factor:g}": _scaled(config.methods[name], factor) for factor in experiment.grid}
        result = compare(
            config.problem,
            config.data,
            {"1": config.methods[name], **tried},
            config.speeds,
            seeds=1,
            progress=False,
            **config.settings.limits(),
        )
        level = max(_end(result, factor, experiment.column) for factor in result.histories)
        times = {
            factor: _time(runs[0].time_to(**{experiment.column: level}))
            for factor, runs in result.histories.items()
        }
        factor = min(times, key=lambda factor: times[factor])
        if factor != "1":
            best[name + VARIANT] = tried[factor]
    return best


def _scaled(method: Method, factor: float) -> Method:
    return replace(method, solver=replace(method.solver, eta=factor * method.solver.eta))


def judge(experiment: Experiment, variant: Variant | None, result: Comparison) -> Iterator[Finding]:
    """Yield what the runs say of the claim, and of our own methods beside it (marked *)."""
    ours = [name for name in result.histories if name.endswith("*")]
    if experiment.kind == "speed-up":
        rivals = [n for n in result.baselines if n.startswith(experiment.baseline or "")]
        for method in (experiment.method, *ours):
            for rival in rivals if method == experiment.method else (experiment.baseline,):
                claimed = method == experiment.method and rival == experiment.baseline
                yield _up_to(experiment, method, str(rival), claimed, result)
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
    end = max(_end(result, method, column), _end(result, rival, column))
    levels = np.geomspace(min(starts), end, LEVELS + 1)[1:]
    detail, best = [], SpeedUp(math.nan, math.nan, math.nan, 0)
    for level in levels:
        up = _speed_up_at(result, method, rival, column, float(level))
        detail.append({"target": {column: float(level)}, **up._asdict()})
        if up.seeds == len(result.targets) and not up.mean <= best.mean:
            best = up
    published = experiment.published if claimed else None
    bar = published if isinstance(published, float) else 1.0
    verdict = _verdict(best.mean, bar, larger_is_better=True) if claimed else "no number published"
    if claimed and published is None:
        verdict = "no number published"
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
    verdict = _verdict(1 / up.mean, bar, larger_is_better=False)
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
        verdict=verdict if claimed else "no number published",
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
    verdict = _verdict(up.mean, 1.0, larger_is_better=True)
    return Finding(label, experiment.published, *up, "ratio", verdict)


def _verdict(
    ours: float, bar: float, larger_is_better: bool
) -> Literal["matches", "better", "falls short"]:
    """Return how ours compares with the published value; a tenth more is better, not equal."""
    gain = ours / bar if larger_is_better else bar / ours
    if math.isnan(gain) or gain < 1 - 1e-9:
        return "falls short"
    return "better" if gain > 1.1 else "matches"


def _end(result: Comparison, name: str, column: str) -> float:
    """Return the lowest level that a method reaches on all seeds."""
    return max(float(np.nanmin(h.column(column))) for h in result.histories[name])


def _time(value: float | None) -> float:
    return math.nan if value is None else value
