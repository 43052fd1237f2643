"""The league as a picture: a matrix of how far each method is behind the first."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flanp.league.table import Standing, by_rank, matrix
from flanp.plots import write_figure


def draw(cells: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Draw a picture for each setting and target; return the files."""
    drawn = []
    for setting, words, by_scenario in matrix(cells):
        name = f"{setting}-{words}".replace(" ", "-").replace(".", "_")
        if any(by_scenario.values()):
            _one(f"{setting}: time to {words}", by_scenario, folder / name)
            drawn.append(folder / f"{name}.png")
    return drawn


def _one(title: str, by_scenario: dict[str, list[Standing]], path: Path) -> None:
    from matplotlib.figure import Figure

    names = by_rank(by_scenario)
    values = np.full((len(names), len(by_scenario)), np.nan)
    figure = Figure(figsize=(2.6 + 0.95 * len(by_scenario), 1.4 + 0.3 * len(names)))
    axes = figure.add_subplot()
    texts = {}
    for j, table in enumerate(by_scenario.values()):
        for standing in table:
            i = names.index(standing.method)
            values[i, j] = math.log2(standing.behind.mean) if standing.reached else np.nan
            texts[i, j] = standing.text
    shown = np.ma.masked_invalid(values)
    axes.imshow(shown, cmap="viridis_r", vmin=0, vmax=4, aspect="auto")
    for (i, j), text in texts.items():
        dark = not np.isnan(values[i, j]) and values[i, j] > 2
        axes.text(j, i, text, ha="center", va="center", color="white" if dark else "black", size=8)
    axes.set_xticks(range(len(by_scenario)), by_scenario, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_title(f"{title}\n(multiples of the first's; – is not reached)", size=10)
    figure.tight_layout()
    write_figure(figure, path)
