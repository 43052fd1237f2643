"""Curves over rounds and over time."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from flanp.comparison import Comparison
from flanp.history import History

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
LABELS = {
    "loss": "training loss",
    "grad_norm_sq": r"$\|\nabla L_N(w)\|^2$",
    "metric": "metric",
    "distance": r"$\|w - w^*\|$",
}
MOST_POINTS = 400


def plot_run(history: History, path: Path) -> list[Path]:
    """Draw one run's curves with its stages; return the files written (PNG and SVG)."""
    return _draw({"": [history]}, history.about.get("metric"), None, None, path)


def plot_comparison(comparison: Comparison, path: Path) -> list[Path]:
    """Draw each method's mean curve and its spread over the seeds; return the files written."""
    metric = next(iter(comparison.histories.values()))[0].about.get("metric")
    target = comparison.targets[0] if len({str(t) for t in comparison.targets}) == 1 else None
    # A method that misses the target may run far longer than all others: cut it off.
    rounds = [comparison.rounds(name) for name in comparison.histories]
    times = [comparison.times(name) for name in comparison.histories]
    ends = {"round": _longest(rounds), "time": _longest(times)}
    return _draw(comparison.histories, metric, target, ends, path)


def _draw(
    histories: dict[str, list[History]],
    metric: str | None,
    target: dict[str, float] | None,
    ends: dict[str, float] | None,
    path: Path,
) -> list[Path]:
    first = next(iter(histories.values()))[0]
    columns = [c for c in LABELS if np.isfinite(first.column(c)).any()]
    figure = Figure(figsize=(10, 3.2 * len(columns)), layout="constrained")
    axes = figure.subplots(len(columns), 2, sharey="row", squeeze=False)
    for name_of_x, side in (("round", 0), ("time", 1)):
        for row, column in enumerate(columns):
            ax = axes[row, side]
            for colour, (name, runs) in zip(_cycle(), histories.items(), strict=False):
                x, curves = _on_common_grid(
                    runs, name_of_x, column, (ends or {}).get(name_of_x, np.inf)
                )
                ax.plot(x, _middle(curves), color=colour, label=name or None, linewidth=1.6)
                if len(runs) > 1:
                    low, high = _spread(curves)
                    ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
            if target and column in target:
                ax.axhline(target[column], color="#444444", linestyle=":", linewidth=1)
            if len(histories) == 1:
                _mark_stages(ax, first, name_of_x)
            ax.set_yscale("log")
            ax.grid(alpha=0.25, linewidth=0.5)
            if side == 0:
                ax.set_ylabel(metric or LABELS[column] if column == "metric" else LABELS[column])
            if row == len(columns) - 1:
                ax.set_xlabel("communication rounds" if side == 0 else "virtual time (seconds)")
    if len(histories) > 1:
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False
        )
    written = [path.with_suffix(".png"), path.with_suffix(".svg")]
    # A fixed salt and no date: the same run gives the same bytes.
    with mpl.rc_context({"svg.hashsalt": "flanp"}):
        figure.savefig(written[0], dpi=130)
        figure.savefig(written[1], metadata={"Date": None})
    return written


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
    alive = np.isfinite(curves).sum(axis=0) * 2 >= len(curves)
    return np.where(alive, np.nanmedian(curves, axis=0), np.nan)


def _spread(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest curve, as far as at least half of the runs go."""
    alive = np.isfinite(curves).sum(axis=0) * 2 >= len(curves)
    low, high = np.nanmin(curves, axis=0), np.nanmax(curves, axis=0)
    return np.where(alive, low, np.nan), np.where(alive, high, np.nan)


def _mark_stages(ax: object, history: History, x: str) -> None:
    for row, after in zip(history.rows, history.rows[1:], strict=False):
        if after.stage > row.stage:
            ax.axvline(getattr(row, x), color="#999999", linewidth=0.6)  # type: ignore[attr-defined]


def _cycle() -> list[str]:
    return list(COLOURS) * 10
