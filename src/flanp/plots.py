"""Curves over rounds and over time."""

import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from flanp.comparison import Comparison
from flanp.history import History
from flanp.planning import Plan
from flanp.target import Target

# Okabe and Ito's colours, which colour-blind readers can tell apart, then four of Tol's.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"]
COLOURS += ["#882255", "#44AA99", "#332288", "#999933"]
GREY = "#555555"
LABELS = {
    "loss": "training loss",
    "grad_norm_sq": r"$\|\nabla L_N(w)\|^2$",
    "distance": r"$\|w - w^*\|$",
}
POINTS = 400
HUGE = 1e100  # no value above is drawn: margins and ticks would overflow
WIDE = 10.0  # an axis is logarithmic if times differ by this: the shortest would hug its edge
VARIANT = ", best eta"  # ends the name of a method that is another one at its best step size


class Axis(NamedTuple):
    """An x axis: its column of the history ("round" or "time"), its scale, where it ends."""

    x: str
    log: bool
    start: float
    end: float


def plot_run(history: History, path: Path) -> list[Path]:
    """Draw one run's curves with its stages; return the files written (PNG and SVG)."""
    return write_figure(draw_run(history), path)


def plot_comparison(comparison: Comparison, path: Path) -> list[Path]:
    """Draw each method's median curve and its spread over the seeds; return the files written."""
    return write_figure(draw_comparison(comparison), path)


def plot_panels(
    comparisons: dict[str, Comparison], column: str, title: str, path: Path
) -> list[Path]:
    """Draw one column over rounds and time, of several comparisons over time; return the files."""
    return write_figure(draw_panels(comparisons, column, title), path)


def plot_plan(plan: Plan, path: Path) -> Path:
    """Draw who takes part over time, in FLANP and in full participation."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    ax = figure.subplots()
    ends = np.cumsum([stage.time for stage in plan.stages])
    n = [stage.n for stage in plan.stages]
    ax.step([0, *ends], [*n, n[-1]], where="post", color=COLOURS[0], label="FLANP")
    ax.plot([0, plan.full_time], [n[-1]] * 2, color=COLOURS[1], linestyle="--", label="everyone")
    ax.set(xlabel="virtual time (seconds)", ylabel="clients taking part")
    ax.set_title(plan.verdict(), fontsize=9, wrap=True)
    ax.grid(alpha=0.25, linewidth=0.5)
    ax.legend(frameon=False)
    figure.savefig(path, dpi=130)
    return path


def draw_run(history: History) -> Figure:
    """Return the figure of `plot_run`; it has no axes if nothing was measured."""
    run, given = Comparison({"": [history]}), history.about.get("target")
    # The last stage may take nearly all of the time: the first ones must be seen all the same.
    ends = np.cumsum([stage["time"] for stage in history.stages()]).tolist()
    axes = [_axis(run, "round"), _axis(run, "time", ends)]
    run.targets = [Target.of(given, history.metrics)] if given else []
    figure = _draw(run, axes)
    for i, ax in enumerate(figure.axes):
        for row, after in zip(history.rows, history.rows[1:], strict=False):
            if after.stage > row.stage:
                ax.axvline(getattr(row, axes[i % 2].x), color="#999999", linewidth=0.6)
    return figure


def draw_comparison(comparison: Comparison) -> Figure:
    """Return the figure of `plot_comparison`; it has no axes if nothing was measured."""
    seeds = len(comparison.targets) or None  # an interrupted seed has no target: it is left out
    histories = {name: runs[:seeds] for name, runs in comparison.histories.items() if runs}
    comparison = replace(comparison, histories=histories)
    return _draw(comparison, [_axis(comparison, x) for x in ("round", "time")])


def draw_panels(comparisons: dict[str, Comparison], column: str, title: str) -> Figure:
    """Return the figure of `plot_panels`."""
    # Where the user set no target, the claims are about many: none is marked, no curve cut off.
    comparisons = {
        label: c if c.about.get("config", {}).get("target") else replace(c, targets=[])
        for label, c in comparisons.items()
    }
    alone = len(comparisons) == 1
    shown = ("round", "time") if alone else ("time",)
    count = len(shown) * len(comparisons)
    figure = Figure(figsize=(4.6 * count, 3.6), layout="constrained")
    figure.suptitle(title, fontsize=11, parse_math=False)
    looks = _looks(list(comparisons.values()))
    _legend(figure, looks, "outside lower center")
    axes = figure.subplots(1, count, sharey=alone).reshape(-1, len(shown))
    for group, (label, c) in zip(axes, comparisons.items(), strict=True):
        _fill(group, c, [_axis(c, x) for x in shown], column, looks)
        group[0].set_title(label, fontsize=10, parse_math=False)
    return figure


def _draw(comparison: Comparison, shown: list[Axis]) -> Figure:
    """Draw a row for each measured column, and in it a panel for each x axis."""
    runs = [run for runs in comparison.histories.values() for run in runs]
    metrics = [name for run in runs for name in run.metrics if name != "distance"]
    known = dict.fromkeys(["loss", "grad_norm_sq", *metrics, "distance"])
    columns = [column for column in known if len(_measured(runs, column))]
    if not columns:
        return Figure()
    looks = _looks([comparison])
    figure = Figure(figsize=(10, 3.2 * len(columns)), layout="constrained")
    if list(looks) != [""]:
        _legend(figure, looks, "outside upper center")
    axes = figure.subplots(len(columns), 2, sharey="row", squeeze=False)
    for row, column in zip(axes, columns, strict=True):
        _fill(row, comparison, shown, column, looks)
    for ax in axes[:-1].flat:
        ax.set_xlabel("")
    return figure


def _legend(figure: Figure, looks: dict[str, Any], place: Any) -> None:
    """Write the methods' names literally, wrapped, in as many columns as fit."""
    names = [textwrap.fill(name, 44) or " " for name in looks]
    lines = [line for name in names for line in name.split("\n")]
    # Eleven letters fit into an inch; the dash before a name takes the place of six.
    columns = min(4, int(11 * figure.get_figwidth() / (6 + max(map(len, lines)))))
    figure.set_figheight(figure.get_figheight() + 0.2 * np.ceil(len(lines) / columns))
    handles = [Line2D([], [], **look) for look in looks.values()]
    # The names come afterwards: a label that begins with _ would be left out.
    legend = figure.legend(handles, [" "] * len(names), loc=place, ncols=columns, frameon=False)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set(text=name, fontsize=9, parse_math=False)


def _looks(comparisons: list[Comparison]) -> dict[str, Any]:
    """Return the lines' looks: baselines are dashed, variants dotted, later ones thinner."""
    names = list(dict.fromkeys(name for c in comparisons for name in c.histories))
    baselines = {name for c in comparisons for name in c.baselines}
    bare = list(dict.fromkeys(name.removesuffix(VARIANT) for name in names))
    widths = np.linspace(min(3.0, 1.2 + 0.4 * len(names)), 1.2, len(names))
    looks = {}
    for name, width in zip(names, widths, strict=True):
        colour = COLOURS[bare.index(name.removesuffix(VARIANT)) % len(COLOURS)]
        style = ":" if name.endswith(VARIANT) else "--" if name in baselines else "-"
        looks[name] = {"color": colour, "linestyle": style, "linewidth": width}
    return looks


def _axis(comparison: Comparison, x: str, spans: list[float] | None = None) -> Axis:
    """Return an x axis, logarithmic if some spans or the methods' times differ widely.

    A method that misses the target may run far longer than all others: it is cut off.
    """
    histories = comparison.histories.values()
    reached = [_reached(runs, comparison.targets, x) for runs in histories]
    end = 1.05 * max((at for each in reached for at in each if at < np.inf), default=0) or np.inf
    ends = [[run.end(x) for run in runs] for runs in histories]
    times = [np.minimum(at, last) for at, last in zip(reached, ends, strict=True)]
    some = [span for span in spans or [min(end, np.median(each)) for each in times] if span > 0]
    if not some or max(some) < WIDE * min(some):
        return Axis(x, False, 0.0, end)
    start = min(at for runs in histories for run in runs for at in run.column(x) if at > 0)
    return Axis(x, True, float(start), end)


def _fill(axes: Any, comparison: Comparison, shown: list[Axis], column: str, looks: Any) -> None:
    """Draw a column over each x axis; the panels share the y axis."""
    runs = [run for runs in comparison.histories.values() for run in runs]
    settled = _measured([run for run in runs if not run.diverged], column)
    top = 10 * min(settled.max(initial=0), HUGE) or HUGE
    drawn, rising = np.zeros(0), runs[0].metrics.get(column)
    for ax, axis in zip(axes, shown, strict=True):
        for name, same in comparison.histories.items():
            grid, curves = _summary(same, axis, column)
            low, middle, high = np.minimum(curves, 2 * top)
            marker = "o" if np.isfinite(middle).sum() == 1 else None  # a line of one point
            ax.plot(grid, middle, drawstyle="steps-post", marker=marker, **looks[name])
            if len(same) > 1:
                band = {"color": looks[name]["color"], "alpha": 0.12, "linewidth": 0}
                ax.fill_between(grid, low, high, step="post", **band)
            drawn = np.append(drawn, curves[np.isfinite(curves)])
    for ax, axis in zip(axes, shown, strict=True):
        # The curves alone decide: the marks of stages and of the target are helpers.
        ax.set_yscale("log" if drawn.min(initial=1) > 0 and not rising else "linear")
        ax.set_xscale("log" if axis.log else "linear")
        ax.set_xlabel(f"{runs[0].clock} (seconds)" if axis.x == "time" else "communication rounds")
        ax.grid(alpha=0.25, linewidth=0.5)
        _mark_target(ax, comparison, axis, column, looks)
        _set_ticks(ax.xaxis, whole=axis.x == "round")
    if drawn.max(initial=0) > top:  # what diverges leaves the picture, not to press others flat
        axes[0].set_ylim(top=top)
    _set_ticks(axes[0].yaxis)
    known = column in LABELS
    axes[0].set_ylabel(LABELS[column] if known else column.replace("_", " "), parse_math=known)


def _mark_target(ax: Any, comparison: Comparison, axis: Axis, column: str, looks: Any) -> None:
    """Mark the median target and its range, and when the median run of a method reaches it."""
    targets = [target for target in comparison.targets if target and target.column == column]
    levels = [target.level for target in targets]
    if not levels or (min(levels) <= 0 and ax.get_yscale() == "log"):
        return
    level = float(np.median(levels))
    ax.axhline(level, color=GREY, linestyle=":", linewidth=1)
    if max(levels) > min(levels):
        ax.axhspan(min(levels), max(levels), color=GREY, alpha=0.12, linewidth=0)
    for name, runs in comparison.histories.items():
        at = np.median(_reached(runs, targets, axis.x))
        if axis.start <= at < np.inf:
            ax.plot([at], [level], "o", markersize=4, color=looks[name]["color"])
    if axis.x == "time":  # a panel on the right; the text is beside it, clear of all curves
        beside = ax.get_yaxis_transform()
        ax.text(1.01, level, "target", va="center", fontsize=8, color=GREY, transform=beside)


def _set_ticks(axis: Any, whole: bool = False) -> None:
    """Set ticks at round numbers, several of them also on a logarithmic axis of few decades."""
    low, high = axis.get_view_interval()
    log, few = axis.get_scale() == "log", high < 50 * low
    if log and high > 4 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
        axis.set_minor_formatter(NullFormatter())
    elif log or axis.axis_name == "x":
        axis.set_major_locator(MaxNLocator(5, integer=whole, steps=(1, 2, 2.5, 5, 10)))
        axis.set_minor_locator(NullLocator())
    if axis.axis_name == "x" or (log and few):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _measured(runs: list[History], column: str) -> np.ndarray:
    values = np.array([row.value(column) for run in runs for row in run.rows], float)
    return values[np.isfinite(values)]


def _reached(runs: list[History], targets: Sequence[Target | None], x: str) -> np.ndarray:
    """Return when each run reaches its target; infinity if it does not."""
    reached = np.full(len(runs), np.inf)
    for i, (run, target) in enumerate(zip(runs, targets, strict=False)):
        row = target and run.first_at(target)  # there is no target if all methods diverged
        reached[i] = row.value(x) if row else np.inf
    return reached


def _summary(runs: list[History], axis: Axis, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return an x grid as far as the longest run goes, and the lowest, median and highest curve.

    A run that has ended keeps its last value, one that diverged is left out from there on, and the
    curves stop where fewer than half of the runs are left.
    """
    end = min(axis.end, max(run.end(axis.x) for run in runs))
    space = np.geomspace if axis.log else np.linspace
    grid = space(axis.start, end, POINTS) if end > axis.start else np.array([axis.start])
    curves = np.full((len(runs), len(grid)), np.nan)
    for curve, run in zip(curves, runs, strict=True):
        at, y = run.column(axis.x), np.array([row.value(column) for row in run.rows], float)
        known = np.isfinite(y)
        if known.any():
            last = np.searchsorted(at[known], grid, side="right") - 1
            gone = (last < 0) | (run.diverged & (grid > at[-1]))
            curve[:] = np.where(gone, np.nan, y[known][last])
    left = np.isfinite(curves).sum(axis=0)
    shown = (left > 0) & (2 * left >= len(runs))
    summary = np.full((3, len(grid)), np.nan)
    summary[:, shown] = np.nanquantile(curves[:, shown], (0, 0.5, 1), axis=0)
    return grid, summary


def write_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and SVG; one without axes is not written."""
    if not figure.axes:
        return []
    written = [path.with_suffix(".png"), path.with_suffix(".svg")]
    # A fixed salt and no date: the same run gives the same bytes.
    with mpl.rc_context({"svg.hashsalt": "flanp"}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font lacks: boxes stand for them
        figure.savefig(written[0], dpi=130)
        figure.set_layout_engine("none")  # it stays as it was laid out, which takes a while
        figure.savefig(written[1], metadata={"Date": None})
    return written
