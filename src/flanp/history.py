"""The history of a run: a row for each recorded round."""

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flanp.checks import BadInput, calling, nearest
from flanp.ended import Ended, Reason
from flanp.files import read_sealed, write_atomically, write_sealed
from flanp.target import Target


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
    """||grad L_N(w)||^2 over all clients; NaN where not all were asked."""
    stage_grad_norm_sq: float
    """||grad L_n(w)||^2 over the n clients that the stage rule looks at: those who take part in the
    next round or, in the last row, those of the last."""
    waiting: float
    """Share of the round that its participants spent waiting, on average."""
    sent: int = 0
    """Bytes of the messages that clients have sent so far."""
    received: int = 0
    """Bytes that clients have received so far."""
    spent: float = 0.0
    """Seconds that clients have spent so far on work and transfer, of use or not, added up."""
    lost: float = 0.0
    """Those of them that came to nothing: too late, of a client that dropped out, discarded."""
    metrics: Mapping[str, float] = {}
    """What else is known of the model, by name; `distance` is ||w - w*||, where w* is known."""

    def value(self, column: str) -> float:
        """Return a column's value; NaN if it was not measured."""
        if column in COLUMNS:
            return float(getattr(self, column))
        return self.metrics.get(column, math.nan)


COLUMNS = tuple(name for name in Row._fields if name != "metrics")
"""The columns that each history has."""


@dataclass
class History:
    """The rows of a run and what is known about it."""

    rows: list[Row] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    """What was run, and how it ended."""
    params: Any = None
    """The last global model; it is not part of the saved history."""
    ended: Ended | None = None
    """Why the run is over, if it is."""

    @property
    def diverged(self) -> bool:
        """Whether the loss became NaN or infinite."""
        return self.ended is not None and self.ended.reason is Reason.DIVERGED

    @property
    def metrics(self) -> dict[str, bool | None]:
        """The names of the metrics; whether higher ones are better, None where nobody said."""
        return dict(self.about.get("metrics", {}))

    @property
    def clock(self) -> str:
        """What the time is: virtual in a simulation, measured on real machines."""
        return "time" if self.about.get("clock") == "measured" else "virtual time"

    @property
    def seconds(self) -> str:
        """What the seconds are."""
        return "seconds" if self.about.get("clock") == "measured" else "virtual seconds"

    def column(self, name: str) -> np.ndarray:
        """Return a column as an array; what was not measured is NaN.

        >>> History([Row(0, 0, 1, 0.0, 2.5, 1.0, 1.0, 0.0)]).column("loss")
        array([2.5])
        """
        known = (*COLUMNS, *self.metrics)
        if name not in known:
            raise BadInput(f"a history has no column {name!r}{nearest(str(name), known)}")
        return np.array([row.value(name) for row in self.rows])

    def end(self, column: str) -> float:
        """Return the last value of a column; 0 where there is none."""
        return self.rows[-1].value(column) if self.rows else 0.0

    def first_at(self, target: Target) -> Row | None:
        """Return the first row whose column is at the target or better."""
        reached = np.flatnonzero(target.where(self.column(target.column)))
        return self.rows[reached[0]] if len(reached) else None

    def time_to(self, **target: float) -> float | None:
        """Return the virtual time at which a column first reached a value, else None.

        >>> rows = [Row(r, 0, 1, 10.0 * r, 1 / (r + 1), 1.0, 1.0, 0.0) for r in range(5)]
        >>> History(rows).time_to(loss=0.3)
        30.0
        """
        row = self.first_at(Target.of(target, self.metrics))
        return None if row is None else row.time

    def rounds_to(self, **target: float) -> int | None:
        """Return the round after which a column first reached a value, else None."""
        row = self.first_at(Target.of(target, self.metrics))
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
        text = self.csv()
        write_atomically(folder / "history.csv", text)
        ended = self.ended and {"reason": self.ended.reason, "words": self.ended.words}
        content = {**self.about, "ended": ended, "rows": len(self.rows)}
        write_sealed(folder / "history.json", content, text)

    def csv(self) -> str:
        """Return the rows as a table; every number keeps all its digits, unknown ones are empty."""
        return rows_to_csv(self.rows, self.metrics)

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
            ended = about.pop("ended")
            ended = ended and Ended(Reason(ended["reason"]), ended["words"])
        return cls(rows, about, ended=ended)


WHOLE = ("round", "stage", "n", "sent", "received")


def rows_to_csv(rows: Iterable[Row], metrics: Iterable[str]) -> str:
    """Return rows as a table; every number keeps all its digits, what is not known is empty."""
    metrics = list(metrics)
    lines = [[*COLUMNS, *metrics]]
    for row in rows:
        fixed = [repr(getattr(row, c) if c in WHOLE else row.value(c)) for c in COLUMNS]
        lines.append(fixed + [repr(row.metrics[m]) if m in row.metrics else "" for m in metrics])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def rows_from_csv(text: str) -> list[Row]:
    """Return the rows of a table that `rows_to_csv` made."""
    header, *lines = csv.reader(text.splitlines())
    if tuple(header[: len(COLUMNS)]) != COLUMNS:
        raise ValueError(f"its columns are {header}")
    rows = []
    for line in lines:
        cells = dict(zip(header, line, strict=True))
        fixed = {c: int(cells[c]) if c in WHOLE else float(cells[c]) for c in COLUMNS}
        metrics = {m: float(v) for m, v in cells.items() if m not in COLUMNS and v}
        rows.append(Row(**fixed, metrics=metrics))  # type: ignore[arg-type]
    return rows
