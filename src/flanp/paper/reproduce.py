"""The paper's figures and tables: our numbers beside the published ones."""

import json
import math
import time
import tomllib
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from flanp.checks import BadInput, nearest
from flanp.comparison import Comparison, common_target, compare, slug
from flanp.config import Config, build
from flanp.config.overrides import apply_override
from flanp.files import read_sealed, write_atomically, write_sealed
from flanp.method import Method
from flanp.paper.claims import Experiment, Finding, Variant, judge, lowest_of_all_seeds
from flanp.plots import VARIANT, plot_panels

QUICK_SEEDS = 2
HEADING = "| figure | command | minutes | what | published | ours (95%) | seeds | verdict |"
TABLES = {"table1": "fig7", "table2": "fig8"}
"""The tables are of the same runs as these figures."""


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
        """Write NAME.json, NAME.png and NAME.svg, and the runs into NAME/; return the files."""
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
        for label, comparison in self.comparisons.items():
            runs = folder / self.name
            comparison.save(runs / slug(label) if label else runs)
        path = folder / f"{self.name}.json"
        write_sealed(path, result)
        return [path, *files]


def write_table(folder: Path) -> Path:
    """Write README.md into a folder of results: a row for each finding of each experiment."""
    lines = [HEADING, "|---|---|---|---|---|---|---|---|"]
    for result in results_in(folder):
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


def results_in(folder: Path) -> list[dict[str, Any]]:
    """Return what experiments before have written into a folder; refuse one that is another's."""
    table = folder / "README.md"
    if table.exists() and not table.read_text("utf-8", "replace").startswith(HEADING):
        raise BadInput(f"{table} is not flanp's, and would be replaced: choose another --out")
    paths = [folder / f"{name}.json" for name in names()]
    return [read_sealed(path) for path in paths if path.exists()]


def names() -> list[str]:
    """Return the names of all experiments."""
    files = resources.files("flanp.paper.experiments").iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def known(name: str) -> str:
    """Return the experiment that a name stands for: a table's is that of the figure's runs."""
    if TABLES.get(name, name) not in names():
        raise BadInput(f"there is no experiment {name!r}{nearest(name, [*names(), *TABLES])}")
    return TABLES.get(name, name)


def reproduce(
    name: str,
    seeds: int | None = None,
    data: Path | None = None,
    quick: bool = False,
    progress: bool = True,
) -> Reproduction:
    """Run an experiment.

    Args:
        name: for instance "fig3", or "table1".
        seeds: how many; as many as the experiment's file says if left out.
        data: folder with MNIST and CIFAR-10, which are downloaded if left out, and FEMNIST.
        quick: run a small version, for a look: small data, two seeds.
        progress: show progress.
    """
    name = known(name)
    start = time.monotonic()
    source = resources.files("flanp.paper.experiments") / f"{name}.toml"
    raw = tomllib.loads(source.read_text("utf-8"))
    claims = raw.pop("experiment")
    variants = tuple(Variant(**table) for table in claims.pop("variants", ()))
    experiment = Experiment(**claims, variants=variants)
    if quick:
        experiment = replace(experiment, grid_methods=())
        raw["seeds"] = QUICK_SEEDS
        for override in experiment.quick:
            apply_override(raw, override, Path.cwd())
    if seeds is not None:
        raw["seeds"] = seeds
    if data is not None and raw["data"]["name"] in ("MNIST", "CIFAR10", "FEMNIST"):
        raw["data"]["folder"] = str(Path(data).resolve())
    comparisons: dict[str, Comparison] = {}
    findings: list[Finding] = []
    for variant in variants or (None,):
        changed = json.loads(json.dumps(raw))
        for override in variant.set if variant else ():
            apply_override(changed, override, Path.cwd())
        config = build(changed, Path.cwd())
        result = _run(experiment, config, progress)
        comparisons[variant.label if variant else ""] = result
        findings += judge(experiment, variant, result)
    seconds = time.monotonic() - start
    return Reproduction(name, experiment.title, findings, comparisons, seconds, experiment.column)


def _run(experiment: Experiment, config: Config, progress: bool) -> Comparison:
    """Run all methods, and each baseline also at the best step size of the grid.

    The first seed tries the whole grid, the others only the best of it.
    """
    settings, seed = config.settings, config.settings.seed

    def run(methods: dict[str, Method], seed: int, seeds: int) -> Comparison:
        return compare(
            config.problem,
            config.data,
            methods,
            config.speeds,
            seeds=seeds,
            seed=seed,
            target=settings.target,
            progress=progress,
            metrics=config.metrics,
            partial=Comparison(about={"config": config.raw}),
            **settings.options(),
        )

    if not experiment.grid_methods:
        return run(config.methods, seed, settings.seeds)
    tried = {
        name: {f"{name}, eta x {x:g}": _scaled(config.methods[name], x) for x in experiment.grid}
        for name in experiment.grid_methods
    }
    everything = config.methods | {k: v for grid in tried.values() for k, v in grid.items()}
    first = run(everything, seed, 1)
    best = {name: _best(experiment, first, [name, *grid]) for name, grid in tried.items()}
    kept = {name: name for name in config.methods} | {
        name + VARIANT: chosen for name, chosen in best.items() if chosen != name
    }
    result = first.renamed(kept)
    if settings.target is None:
        result.targets = [common_target([runs[0] for runs in result.histories.values()])]
    if settings.seeds > 1:
        methods = {new: everything[old] for new, old in kept.items()}
        result.extend(run(methods, seed + 1, settings.seeds - 1))
    return result


def _best(experiment: Experiment, first: Comparison, names: list[str]) -> str:
    """Return who of some is first at the lowest level that all of them reach on the first seed."""
    runs = {name: first.histories[name][0] for name in names}
    level = max(lowest_of_all_seeds(first, name, experiment.column) for name in names)
    times = {n: run.time_to(**{experiment.column: level}) or math.inf for n, run in runs.items()}
    return min(times, key=lambda name: times[name])


def _scaled(method: Method, factor: float) -> Method:
    return replace(method, solver=replace(method.solver, eta=factor * method.solver.eta))
