"""Curves over rounds and over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from flanp.comparison import Comparison
from flanp.history import History
from flanp.planning import Plan

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
LABELS = {
    "loss": "training loss",
    "grad_norm_sq": r"$\|\nabla L_N(w)\|^2$",
    "metric": "metric",
    "distance": r"$\|w - w^*\|$",
}
AXES = {"round": "communication rounds", "time": "virtual time (seconds)"}
MOST_POINTS = 400
VARIANT = ", best eta"
"""Ending of the name of a method that is another one's at its best step size."""


def plot_run(history: History, path: Path) -> list[Path]:
    """Draw one run's curves with its stages; return the files written (PNG and SVG)."""
    return _draw({"": [history]}, (), history.about.get("metric"), None, None, path)


def plot_comparison(comparison: Comparison, path: Path) -> list[Path]:
    """Draw each method's mean curve and its spread over the seeds; return the files written."""
    metric = next(iter(comparison.histories.values()))[0].about.get("metric")
    target = comparison.targets[0] if len({str(t) for t in comparison.targets}) == 1 else None
    # A method that misses the target may run far longer than all others: cut it off.
    rounds = [comparison.rounds(name) for name in comparison.histories]
    times = [comparison.times(name) for name in comparison.histories]
    ends = {"round": _longest(rounds), "time": _longest(times)}
    return _draw(comparison.histories, comparison.baselines, metric, target, ends, path)


def plot_panels(
    comparisons: dict[str, Comparison], column: str, title: str, path: Path
) -> list[Path]:
    """Draw one column in the paper's form: left over rounds and right over time.

    Several comparisons get a panel each, over time. Return the files written.
    """
    alone = len(comparisons) == 1
    panels = [
        (label, x) for label in comparisons for x in (("round", "time") if alone else ("time",))
    ]
    figure = Figure(figsize=(4.6 * len(panels), 4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=alone, squeeze=False)[0]
    for ax, (label, x) in zip(axes, panels, strict=True):
        comparison = comparisons[label]
        end = _longest(
            [
                comparison.rounds(n) if x == "round" else comparison.times(n)
                for n in comparison.histories
            ]
        )
        if not comparison.about.get("config", {}).get("target"):
            end = np.inf
        looks = _looks(list(comparison.histories), comparison.baselines)
        for name, runs in comparison.histories.items():
            _curve(ax, runs, x, column, end, looks[name], name)
        _finish(ax, x)
        ax.set_xlabel(AXES[x])
        ax.set_title(label, fontsize=10)
    metric = next(iter(next(iter(comparisons.values())).histories.values()))[0].about.get("metric")
    axes[0].set_ylabel(_label(column, metric))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return _write(figure, path)


def plot_plan(plan: Plan, path: Path) -> Path:
    """Draw who takes part over time, in FLANP and in full participation."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    ax = figure.subplots()
    ends = np.cumsum([stage.time for stage in plan.stages])
    n = [stage.n for stage in plan.stages]
    ax.step([0, *ends], [*n, n[-1]], where="post", color=COLOURS[0], label="FLANP")
    ax.plot([0, plan.full_time], [n[-1]] * 2, color=COLOURS[1], linestyle="--", label="everyone")
    ax.set_xlabel(AXES["time"])
    ax.set_ylabel("clients taking part")
    ax.set_title(plan.verdict(), fontsize=9, wrap=True)
    ax.grid(alpha=0.25, linewidth=0.5)
    ax.legend(frameon=False)
    figure.savefig(path, dpi=130)
    return path


def _draw(
    histories: dict[str, list[History]],
    baselines: Sequence[str],
    metric: str | None,
    target: dict[str, float] | None,
    ends: dict[str, float] | None,
    path: Path,
) -> list[Path]:
    histories = {name: [run for run in runs if run.rows] for name, runs in histories.items()}
    histories = {name: runs for name, runs in histories.items() if runs}
    if not histories:
        return []
    looks = _looks(list(histories), baselines)
    first = next(iter(histories.values()))[0]
    columns = [c for c in LABELS if np.isfinite(first.column(c)).any()]
    figure = Figure(figsize=(10, 3.2 * len(columns)), layout="constrained")
    axes = figure.subplots(len(columns), 2, sharey="row", squeeze=False)
    for name_of_x, side in (("round", 0), ("time", 1)):
        for row, column in enumerate(columns):
            ax = axes[row, side]
            for name, runs in histories.items():
                end = (ends or {}).get(name_of_x, np.inf)
                _curve(ax, runs, name_of_x, column, end, looks[name], name)
            if target and column in target:
                ax.axhline(target[column], color="#444444", linestyle=":", linewidth=1)
            if len(histories) == 1:
                _mark_stages(ax, first, name_of_x)
            _finish(ax, name_of_x)
            if side == 0:
                ax.set_ylabel(_label(column, metric))
            if row == len(columns) - 1:
                measured = name_of_x == "time" and first.clock == "time"
                ax.set_xlabel("time (seconds)" if measured else AXES[name_of_x])
    if len(histories) > 1:
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False
        )
    return _write(figure, path)


def _write(figure: Figure, path: Path) -> list[Path]:
    written = [path.with_suffix(".png"), path.with_suffix(".svg")]
    # A fixed salt and no date: the same run gives the same bytes.
    with mpl.rc_context({"svg.hashsalt": "flanp"}):
        figure.savefig(written[0], dpi=130)
        figure.savefig(written[1], metadata={"Date": None})
    return written


def _curve(
    ax: Any, runs: list[History], x: str, column: str, end: float, look: dict[str, Any], name: str
) -> None:
    """Draw the median of some runs, and their spread."""
    grid, curves = _on_common_grid(runs, x, column, end)
    ax.plot(grid, _middle(curves), label=name or None, **look)
    if len(runs) > 1:
        low, high = _spread(curves)
        ax.fill_between(grid, low, high, color=look["color"], alpha=0.12, linewidth=0)


def _looks(names: list[str], baselines: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return each method's colour, dashes and width.

    Baselines are dashed. A method's variant at another step size, "NAME, best eta", has its
    colour and is dotted. Later lines are thinner, so that those below them show.
    """
    colours = dict(zip([n for n in names if not n.endswith(VARIANT)], COLOURS * 10, strict=False))
    looks = {}
    for i, name in enumerate(names):
        style = ":" if name.endswith(VARIANT) else "--" if name in baselines else "-"
        colour = colours[name.removesuffix(VARIANT)]
        width = max(1.2, 3.0 - 0.45 * i)
        looks[name] = {"color": colour, "linestyle": style, "linewidth": width}
    return looks


def _finish(ax: Any, x: str) -> None:
    drawn = np.concatenate([np.asarray(line.get_ydata(), float) for line in ax.lines])
    if (drawn[np.isfinite(drawn)] > 0).all():
        ax.set_yscale("log")
    ax.grid(alpha=0.25, linewidth=0.5)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=x == "round"))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))


def _label(column: str, metric: str | None) -> str:
    return metric or LABELS[column] if column == "metric" else LABELS[column]


def _longest(values: list[np.ndarray]) -> float:
    reached = np.concatenate(values)
    reached = reached[np.isfinite(reached)]
    return 1.05 * reached.max() if len(reached) else np.inf


def _on_common_grid(
    runs: list[History], x: str, column: str, end: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return an x grid up to an end, and each run's curve on it, NaN after the run's end."""
    end = min(end, max(run.column(x)[-1] for run in runs))
    grid = np.linspace(0, end, MOST_POINTS) if end > 0 else np.zeros(1)
    curves = []
    for run in runs:
        at, y = run.column(x), run.column(column)
        last = np.searchsorted(at, grid, side="right") - 1
        curves.append(np.where(grid <= at[-1], y[last], np.nan))
    return grid, np.array(curves)


def _middle(curves: np.ndarray) -> np.ndarray:
    """Return the median curve, as far as at least half of the runs go."""
    middle = np.full(curves.shape[1], np.nan)
    alive = _alive(curves)
    middle[alive] = np.nanmedian(curves[:, alive], axis=0)
    return middle


def _spread(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest curve, as far as at least half of the runs go."""
    low, high = (np.full(curves.shape[1], np.nan) for _ in range(2))
    alive = _alive(curves)
    low[alive], high[alive] = (
        np.nanmin(curves[:, alive], axis=0),
        np.nanmax(curves[:, alive], axis=0),
    )
    return low, high


def _alive(curves: np.ndarray) -> np.ndarray:
    count = np.isfinite(curves).sum(axis=0)
    return (count > 0) & (count * 2 >= len(curves))


def _mark_stages(ax: Any, history: History, x: str) -> None:
    for row, after in zip(history.rows, history.rows[1:], strict=False):
        if after.stage > row.stage:
            ax.axvline(getattr(row, x), color="#999999", linewidth=0.6)
