"""What the cells of the league say: who is how far behind the first, and at what cost."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flanp.ratios import SpeedUp, speed_up

Cell = dict[str, Any]


class Standing(NamedTuple):
    """One method in one scenario, at one target."""

    method: str
    group: str
    behind: SpeedUp
    """How many times longer it takes than the first, on the same seeds."""
    reached: int
    seeds: int
    steps: float
    """Median time, in steps of the slowest client, its exchange included."""
    spent: float
    """Client-seconds, as a multiple of the first's."""
    bytes: float
    """Bytes, as a multiple of the first's."""
    knobs: dict[str, float]

    @property
    def text(self) -> str:
        """The cell of the matrix."""
        if not self.reached:
            return "–"
        if math.isnan(self.behind.mean):
            return f"({self.reached}/{self.seeds})"
        text = f"{self.behind.mean:.2g}" if self.behind.mean < 9.95 else f"{self.behind.mean:.0f}"
        return text if self.reached == self.seeds else f"{text} ({self.reached}/{self.seeds})"

    @property
    def interval(self) -> str:
        """The cell with its interval."""
        if not self.reached or math.isnan(self.behind.low):
            return self.text
        return f"{self.text} [{_number(self.behind.low)}, {_number(self.behind.high)}]"


def standings(cells: Sequence[Cell], level: int) -> list[Standing]:
    """Return who is where among the cells of one setting and one scenario, the first one first.

    The first is whoever reaches the target on all seeds in the least time, by geometric mean; all
    others are set against it seed by seed.
    """
    times = {cell["method"]: _column(cell, level, "time") for cell in cells}
    means = {
        name: float(np.log(t).mean())
        for name, t in times.items()
        if len(t) and np.isfinite(t).all()
    }
    if not means:
        return []
    first = min(means, key=lambda name: means[name])
    by_name = {cell["method"]: cell for cell in cells}
    costs = {what: np.median(_column(by_name[first], level, what)) for what in ("spent", "bytes")}
    table = []
    for name, cell in by_name.items():
        t = times[name]
        reached = int(np.isfinite(t).sum())
        ok = np.isfinite(t)
        steps = t / _slowest(cell) if len(t) else t
        table.append(
            Standing(
                name,
                cell["group"],
                speed_up(t, times[first]) if reached else speed_up(t[:0], t[:0]),
                reached,
                len(t),
                float(np.median(steps)) if reached else math.inf,
                float(np.median(_column(cell, level, "spent")[ok])) / costs["spent"]
                if reached
                else math.inf,
                float(np.median(_column(cell, level, "bytes")[ok])) / costs["bytes"]
                if reached
                else math.inf,
                cell.get("knobs", {}),
            )
        )
    return sorted(table, key=_order)


def _order(standing: Standing) -> tuple[float, float]:
    missed = standing.seeds - standing.reached if standing.seeds else math.inf
    return missed, standing.behind.mean if standing.reached else math.inf


def _column(cell: Cell, level: int, what: str) -> np.ndarray:
    runs = cell.get("results", [])
    return np.array([math.inf if r[level][what] is None else r[level][what] for r in runs], float)


def _slowest(cell: Cell) -> np.ndarray:
    return np.array([run[-1]["slowest"] for run in cell["results"]], float)


def matrix(cells: Sequence[Cell]) -> list[tuple[str, str, dict[str, list[Standing]]]]:
    """Return for each setting and each of its targets the standings by scenario."""
    found = []
    for setting in dict.fromkeys(cell["setting"] for cell in cells):
        of_setting = [cell for cell in cells if cell["setting"] == setting]
        for level, target in enumerate(of_setting[0]["targets"]):
            words = target if isinstance(target, str) else f"training loss {target:g}"
            by_scenario = {}
            for scenario in dict.fromkeys(cell["scenario"] for cell in of_setting):
                some = [cell for cell in of_setting if cell["scenario"] == scenario]
                by_scenario[scenario] = standings(some, level)
            found.append((setting, words, by_scenario))
    return found


def by_rank(by_scenario: dict[str, list[Standing]]) -> list[str]:
    """Return the methods, those that are ahead in most scenarios first."""
    behind: dict[str, list[float]] = {}
    for table in by_scenario.values():
        for standing in table:
            value = math.log(standing.behind.mean) if standing.reached else 5.0
            missed = 1 - standing.reached / standing.seeds if standing.seeds else 1.0
            behind.setdefault(standing.method, []).append(value + 5 * missed)
    return sorted(behind, key=lambda name: float(np.mean(behind[name])))


def markdown(cells: Sequence[Cell]) -> str:
    """Return the matrices of time, client-seconds and bytes as a document."""
    lines: list[str] = []
    for setting, words, by_scenario in matrix(cells):
        lines += [f"## {setting}: {words}", ""]
        for what, title in (
            ("text", "Time to the target, as a multiple of the first's"),
            ("spent", "Client-seconds of work and transfer, as a multiple of the first's"),
            ("bytes", "Bytes up and down, as a multiple of the first's"),
        ):
            lines += [f"{title}:", "", *_rows(by_scenario, what), ""]
        lines += _details(by_scenario)
    return "\n".join(lines)


def _details(by_scenario: dict[str, list[Standing]]) -> list[str]:
    """Return a table for each scenario: intervals, what it cost, and with which knobs."""
    lines = []
    for scenario, table in by_scenario.items():
        lines += [
            f"### {scenario}",
            "",
            "| method | times the first's (95%) | steps of the slowest | client-seconds | bytes "
            "| tuned to |",
            "|---" * 6 + "|",
        ]
        for standing in table:
            costs = (_number(standing.spent), _number(standing.bytes))
            row = (standing.method, standing.interval, _number(standing.steps), *costs)
            lines.append(f"| {' | '.join(row)} | {_knobs(standing.knobs)} |")
        lines.append("")
    return lines


def _knobs(knobs: dict[str, float]) -> str:
    return ", ".join(f"{path.split('.')[1]} = {value:.3g}" for path, value in knobs.items())


def _rows(by_scenario: dict[str, list[Standing]], what: str) -> list[str]:
    names = by_rank(by_scenario)
    lines = [
        "| | " + " | ".join(by_scenario) + " |",
        "|---" * (len(by_scenario) + 1) + "|",
    ]
    for name in names:
        row = []
        for table in by_scenario.values():
            found = next((s for s in table if s.method == name), None)
            row.append("" if found is None else _shown(found, what))
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return lines


def _shown(standing: Standing, what: str) -> str:
    if what == "text":
        first = standing.behind.mean == 1.0 and standing.reached == standing.seeds
        return f"**{standing.text}**" if first else standing.text
    return _number(getattr(standing, what))


def _number(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:.2g}" if value < 9.95 else f"{value:.0f}"
