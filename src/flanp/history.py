"""The history of a run: a row for each recorded round."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from flanp.checks import BadInput, calling, nearest, shown
from flanp.files import read_sealed, write_atomically, write_sealed
from flanp.parts import Within, check_is


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
"""The columns that a target can be set on; lower is better, unless a metric says otherwise."""
Level = Annotated[float, Within(-1e300, 1e300)]


def check_target(
    target: Any, higher_is_better: bool | None, columns: tuple[str, ...] = TARGETS
) -> dict[str, float]:
    """Return a target such as {"loss": 0.3}, or say what is wrong with it.

    Args:
        target: what was given.
        higher_is_better: the metric's direction, where there is one.
        columns: what a target can be set on.
    """
    if not isinstance(target, dict) or len(target) != 1:
        raise BadInput(f"target = {shown(target)}: it must be one level, such as {{ loss = 0.3 }}")
    ((name, level),) = target.items()
    if name not in columns:
        raise BadInput(f"target.{name}: no target can be set on it{nearest(str(name), columns)}")
    if name == "metric" and higher_is_better is None:
        raise BadInput(
            "target.metric: say whether a higher metric is better or a lower one: "
            "set higher_is_better = True or False where the metric is defined"
        )
    return {name: check_is(f"target.{name}", level, Level)}


def at_target(name: str, value: Any, level: float, higher_is_better: bool | None) -> Any:
    """Whether a column's value, or each of several, is at a level or better."""
    return value >= level if name == "metric" and higher_is_better else value <= level


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
            raise BadInput(f"a history has no column {name!r}{nearest(str(name), Row._fields)}")
        values = [getattr(row, name) for row in self.rows]
        return np.array([np.nan if v is None else v for v in values])

    def meets(self, target: dict[str, float]) -> np.ndarray:
        """Return for each row whether its column is at the target or better."""
        higher = self.about.get("higher_is_better")
        ((name, level),) = check_target(target, higher).items()
        return np.asarray(at_target(name, self.column(name), level, higher))

    def time_to(self, **target: float) -> float | None:
        """Return the virtual time at which a column first reached a value, else None.

        >>> rows = [Row(r, 0, 1, 10.0 * r, 1 / (r + 1), 1.0, 1.0, 0.0) for r in range(5)]
        >>> History(rows).time_to(loss=0.3)
        30.0
        """
        row = self._first(target)
        return None if row is None else row.time

    def rounds_to(self, **target: float) -> int | None:
        """Return the round after which a column first reached a value, else None."""
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
        """Write history.csv and history.json into a folder.

        The latter says how many rows there are and carries a checksum of them and of itself. The
        rows come first: after a crash in between there are more of them than it says.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        text = rows_to_csv(self.rows)
        write_atomically(folder / "history.csv", text)
        content = {"columns": Row._fields, **self.about, "rows": len(self.rows)}
        write_sealed(folder / "history.json", content, text)

    @classmethod
    def load(cls, folder: Path | str) -> "History":
        """Read what `save` wrote; refuse what was changed since."""
        folder = Path(folder)
        if not (folder / "history.json").exists() or not (folder / "history.csv").exists():
            raise BadInput(f"{folder}: there is no history of a run")
        with calling(f"reading the history in {folder}", "it is damaged, or of another version"):
            text = (folder / "history.csv").read_bytes().decode("utf-8", "replace")
            lines = text.splitlines(keepends=True)
            about = read_sealed(
                folder / "history.json", lambda about: ("".join(lines[: about["rows"] + 1]),)
            )
            rows = rows_from_csv("".join(lines[: about.pop("rows") + 1]))
            del about["columns"]
        return cls(rows, about)

    def _first(self, target: dict[str, float]) -> Row | None:
        reached = np.flatnonzero(self.meets(target))
        return self.rows[reached[0]] if len(reached) else None


WHOLE = ("round", "stage", "n")


def rows_to_csv(rows: Iterable[Row]) -> str:
    """Return rows as a table; every number keeps all its digits."""

    def cell(name: str, value: Any) -> str:
        return "" if value is None else repr(int(value) if name in WHOLE else float(value))

    lines = [",".join(map(cell, Row._fields, row)) for row in rows]
    return "\n".join([",".join(Row._fields), *lines]) + "\n"


def rows_from_csv(text: str) -> list[Row]:
    """Return the rows of a table that `rows_to_csv` made."""
    header, *lines = csv.reader(text.splitlines())
    if tuple(header) != Row._fields:
        raise ValueError(f"its columns are {header}")
    return [
        Row(
            *(
                None if cell == "" else int(cell) if name in WHOLE else float(cell)
                for name, cell in zip(header, line, strict=True)
            )  # type: ignore[arg-type]
        )
        for line in lines
    ]
