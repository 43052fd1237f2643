"""Results as tables for a person."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flanp.comparison import Comparison
from flanp.history import History
from flanp.league.table import by_rank, matrix
from flanp.planning import Plan
from flanp.tuning import Tuned

MOST_STAGES = 40
"""How many stages of a plan are shown."""


def print_run(console: Console, name: str, history: History) -> None:
    """Print a run's stages and how it ended."""
    table = Table(title=escape(name), title_justify="left", box=None)
    for heading in ("stage", "clients", "rounds", "time", "loss"):
        table.add_column(heading, justify="right")
    for stage in history.stages():
        table.add_row(
            str(stage["stage"] + 1),
            str(stage["n"]),
            str(stage["rounds"]),
            f"{stage['time']:,.1f}",
            f"{stage['loss']:.4g}",
        )
    console.print(table)
    last = history.rows[-1]
    extra = "".join(f", {name.replace('_', ' ')} {v:.4g}" for name, v in last.metrics.items())
    console.print(
        f"{history.ended}: {last.round} rounds, {history.clock} {last.time:,.1f}, "
        f"loss {last.loss:.4g}{extra}",
        highlight=False,
        markup=False,
    )


def print_comparison(console: Console, result: Comparison) -> None:
    """Print the table of times to the target and speed-ups."""
    seeds = len(result.targets)
    console.print(_tuning(result), highlight=False, markup=False)
    console.print(_headline(result), highlight=False, markup=False)
    table = Table(box=None)
    table.add_column("method")
    for heading in (
        "rounds",
        "time",
        *(f"vs {escape(b)} (95%)" for b in result.baselines),
        "waiting",
    ):
        table.add_column(heading, justify="right")
    for row in result.rows():
        missed = seeds - row["reached"]
        time = f"{row['time']:,.0f}" if not missed else f"missed on {missed}/{seeds}"
        if row["diverged"]:
            time = row["ended"][0] if seeds == 1 else f"diverged on {row['diverged']}/{seeds}"
        ups = [_speed_up(row["speed_up"][b], seeds) for b in result.baselines]
        rounds = "–" if math.isnan(row["rounds"]) else f"{row['rounds']:.0f}"
        waiting = "–" if math.isnan(row["waiting"]) else f"{row['waiting']:.0%}"
        table.add_row(escape(row["method"]), rounds, time, *ups, waiting)
    console.print(table)


def print_league(console: Console, cells: Sequence[dict[str, Any]]) -> None:
    """Print for each problem and target how far each method is behind the first."""
    for setting, words, by_scenario in matrix(cells):
        title = f"{setting}: time to {words}, as a multiple of the first's (– not reached)"
        table = Table(title=escape(title), title_justify="left", box=None)
        table.add_column("")
        for scenario in by_scenario:
            table.add_column(scenario, justify="right")
        for name in by_rank(by_scenario):
            found = [
                next((s.text for s in some if s.method == name), "")
                for some in by_scenario.values()
            ]
            table.add_row(escape(name), *found)
        console.print(table)


def print_plan(console: Console, plan: Plan) -> None:
    """Print a plan stage by stage, with a bar for each stage's time, and its verdict."""
    table = Table(box=None)
    for heading in ("clients", "slowest T", "rounds", "time"):
        table.add_column(heading, justify="right")
    table.add_column("")
    longest = max(plan.full_time, *(stage.time for stage in plan.stages))

    def add(name: str, T: float, rounds: float, time: float) -> None:
        bar = "█" * max(1, round(40 * time / longest)) if longest else ""
        table.add_row(name, f"{T:,.3g}", f"{rounds:,.0f}", f"{time:,.4g}", bar)

    hidden = len(plan.stages) - MOST_STAGES
    for i, stage in enumerate(plan.stages):
        if hidden <= 0 or i < MOST_STAGES // 2 or i >= len(plan.stages) - MOST_STAGES // 2:
            add(str(stage.n), stage.T, stage.rounds, stage.time)
        elif i == MOST_STAGES // 2:
            table.add_row("...", "", "", "", f"{hidden} more stages")
    last = plan.stages[-1]
    add("FLANP", last.T, sum(s.rounds for s in plan.stages), plan.time)
    add("everyone", last.T, plan.full_rounds, plan.full_time)
    if math.isfinite(plan.memory_time):
        add(f"{plan.memory_k}, memory", *plan.memory_rounds, plan.memory_time)
    add("bound", plan.bound, 1, plan.bound)
    console.print(table)
    console.print(
        f"{plan.tau:g} local steps a round; without rounds (asynchronous SGD), the {plan.best_m} "
        "fastest are best",
        highlight=False,
        markup=False,
    )
    spread = f" [{plan.low:.2f}, {plan.high:.2f}] over draws" if plan.draws > 1 else ""
    console.print(f"speed-up {plan.speed_up:.2f}x{spread}", highlight=False, markup=False)
    console.print(plan.verdict(), highlight=False, markup=False)


def print_tuning(console: Console, tuned: Mapping[str, Tuned], several: bool) -> None:
    """Print what each method is quickest with, and how to use it."""
    table = Table(box=None)
    table.add_column("method")
    for heading in ("time", "runs", "quickest with"):
        table.add_column(heading, justify="left" if heading == "quickest with" else "right")
    for name, found in tuned.items():
        table.add_row(escape(name), f"{found.time:,.4g}", str(found.runs), _knobs(found.knobs))
    console.print(table)
    for name, found in tuned.items():
        where = f'methods."{name}".' if several else ""
        sets = " ".join(f"--set '{where}{path}={v:g}'" for path, v in found.knobs.items())
        console.print(sets, highlight=False, markup=False, soft_wrap=True)


def _knobs(knobs: Mapping[str, float]) -> str:
    return ", ".join(f"{path.split('.')[1]} = {value:.3g}" for path, value in knobs.items())


def _tuning(result: Comparison) -> str:
    """Say whether each method has its own best step size, and others of its knobs."""
    tuned = result.about.get("tuned")
    if tuned:
        first, last = tuned["seeds"]
        lines = [f"  {name}: {_knobs(knobs)}" for name, knobs in tuned["knobs"].items()]
        return "\n".join(
            [f"Tuned: each method at its own best, found on seeds {first} to {last}:", *lines]
        )
    solvers = [runs[0].about["solver"] for runs in result.histories.values() if runs]
    etas = {solver["eta"] for solver in solvers}
    if len(etas) == 1 and len(solvers) > 1:
        return (
            f"Not tuned: all methods have the same step size, eta = {etas.pop():g}. At its own "
            "best step size each may be quicker, and the order another."
        )
    return "Not tuned: each method has the step size it was given, which need not be its best."


def _headline(result: Comparison) -> str:
    history = next(iter(result.histories.values()))[0]
    about = history.about
    levels = {f"{t.column} {t.sign} {t.level:.3g}" for t in result.targets if t}
    level = ", ".join(filter(None, [result.goal, *(levels if len(levels) == 1 else [])]))
    return (
        f"{about['problem']['name']}, {about['clients']} clients, {about['samples']:,} samples, "
        f"speeds {about['speeds']['name']}, {len(result.targets)} seeds; target: {level}"
    )


def _speed_up(up: dict[str, float], seeds: int) -> str:
    if up["seeds"] == 0:
        return "–"
    text = f"{up['mean']:.2f}x"
    if not math.isnan(up["low"]):
        text += f" [{up['low']:.2f}, {up['high']:.2f}]"
    return text if up["seeds"] == seeds else f"{text} on {up['seeds']:.0f}/{seeds}"
