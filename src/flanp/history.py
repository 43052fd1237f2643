"""The history of a run: a row for each recorded round."""

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flanp.checks import BadInput, nearest
from flanp.files import write_atomically, write_json


class Row(NamedTuple):
    """One recorded round."""

    round: int
    """Rounds done; 0 is the start model."""
    stage: int
    """Number of the stage, from 0."""
    n: int
    """How many clients took part."""
    time: float
    """Seconds since the start, virtual in a simulation."""
    loss: float
    """L_N(w), the training loss over all clients; on real machines that of the participants,
    unless the server evaluates it."""
    grad_norm_sq: float
    """||grad L_N(w)||^2 over all clients; on real machines over the participants."""
    stage_grad_norm_sq: float
    """||grad L_n(w)||^2 over the participants."""
    waiting: float
    """Share of the round that its participants spent waiting, on average."""
    metric: float | None = None
    """The problem's metric on held-out data."""
    distance: float | None = None
    """||w - w*||, where the minimiser w* of L_N is known."""


TARGETS = ("loss", "grad_norm_sq", "metric", "distance")
"""The columns that a target can be set on; lower is better in all of them."""


@dataclass
class History:
    """The rows of a run and what is known about it."""

    rows: list[Row] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    """What was run, and how it ended."""
    params: Any = None
    """The last global model; it is not part of the saved history."""

    @property
    def diverged(self) -> bool:
        """Whether the loss became NaN or infinite."""
        return str(self.about.get("ended")).startswith("diverged")

    @property
    def clock(self) -> str:
        """What the time is: virtual in a simulation, measured on real machines."""
        return "time" if self.about.get("clock") == "measured" else "virtual time"

    def column(self, name: str) -> np.ndarray:
        """Return a column as an array; what was not measured is NaN.

        >>> History([Row(0, 0, 1, 0.0, 2.5, 1.0, 1.0, 0.0)]).column("loss")
        array([2.5])
        """
        if name not in Row._fields:
            raise BadInput(f"a history has no column {name!r}{nearest(name, Row._fields)}")
        values = [getattr(row, name) for row in self.rows]
        return np.array([np.nan if v is None else v for v in values])

    def time_to(self, **target: float) -> float | None:
        """Return the virtual time at which a column first was at or under a value, else None.

        >>> rows = [Row(r, 0, 1, 10.0 * r, 1 / (r + 1), 1.0, 1.0, 0.0) for r in range(5)]
        >>> History(rows).time_to(loss=0.3)
        30.0
        """
        row = self._first(target)
        return None if row is None else row.time

    def rounds_to(self, **target: float) -> int | None:
        """Return the round after which a column first was at or under a value, else None."""
        row = self._first(target)
        return None if row is None else row.round

    def stages(self) -> list[dict[str, Any]]:
        """Return a summary of each stage: participants, rounds, virtual time, final loss."""
        summary: list[dict[str, Any]] = []
        before = self.rows[0] if self.rows else None
        for k in sorted({row.stage for row in self.rows if row.round > 0}):
            last = [row for row in self.rows if row.stage == k][-1]
            assert before is not None
            summary.append(
                {
                    "stage": k,
                    "n": last.n,
                    "rounds": last.round - before.round,
                    "time": last.time - before.time,
                    "loss": last.loss,
                }
            )
            before = last
        return summary

    def save(self, folder: Path | str) -> None:
        """Write history.csv and history.json into a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lines = [",".join(Row._fields)]
        lines += [",".join("" if v is None else repr(v) for v in row) for row in self.rows]
        write_atomically(folder / "history.csv", "\n".join(lines) + "\n")
        write_json(folder / "history.json", {"columns": Row._fields, **self.about})

    @classmethod
    def load(cls, folder: Path | str) -> "History":
        """Read what `save` wrote."""
        folder = Path(folder)
        try:
            about = json.loads((folder / "history.json").read_text("utf-8"))
            with (folder / "history.csv").open(newline="", encoding="utf-8") as file:
                rows = [_parse(record) for record in csv.DictReader(file)]
        except (OSError, ValueError, TypeError) as error:
            raise BadInput(f"{folder}: no history of a run can be read there: {error}") from error
        about.pop("columns", None)
        return cls(rows, about)

    def _first(self, target: dict[str, float]) -> Row | None:
        if len(target) != 1:
            raise BadInput(f"give one target, one of {', '.join(TARGETS)}")
        ((name, value),) = target.items()
        if name not in TARGETS:
            raise BadInput(f"no target can be set on {name!r}{nearest(name, TARGETS)}")
        reached = np.flatnonzero(self.column(name) <= value)
        return self.rows[reached[0]] if len(reached) else None


def _parse(record: dict[str, str]) -> Row:
    whole = ("round", "stage", "n")
    values: dict[str, Any] = {
        name: None if text == "" else int(text) if name in whole else float(text)
        for name, text in record.items()
    }
    return Row(**values)
