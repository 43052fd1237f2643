"""Speeds and bandwidths that were recorded over time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, final, get_args

import numpy as np

from flanp.checks import BadInput
from flanp.files import check_clients, read_client_table, read_number, reads_once
from flanp.parts import Within, check_is
from flanp.piecewise import Piecewise
from flanp.speeds.base import Seconds, Speeds

NAMES = {
    "time": {"times", "timestamp", "at", "since_start"},
    "seconds": {"seconds_per_step", "seconds per step", "seconds/step", "t_i"},
    "kbits": {"kbit", "kbps", "kbit/s", "kbits/s", "kbits_per_second", "bandwidth_kbps"},
}
"""The columns beside the client's, and what else each may be called; 't' might be two of them."""
VALUES: dict[str, Any] = {"seconds": Seconds, "kbits": Annotated[float, Within(1e-3, 1e12)]}


@final
@dataclass(frozen=True)
class Trace(Speeds):
    """Seconds per step over time, from a CSV file with the columns client, time, seconds, kbits.

    From the time in a line (in seconds; 0 is the start of a run) its values hold for its client,
    until the client's next line; those of the last one stay. The bandwidths, kbits, are for
    networks, and may be missing. The file's clients must be the data's.
    """

    path: Path

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return T_i at time 0."""
        return self.course(ids)(0.0).copy()

    def course(self, ids: Sequence[str]) -> Callable[[float], np.ndarray]:
        """Return T_i as a function of the time."""
        return read_trace(self.path).steps("seconds", ids)


class Recorded(NamedTuple):
    """What a trace holds: an entry of each array for each of its lines."""

    path: Path
    clients: list[str]
    times: np.ndarray
    columns: Mapping[str, np.ndarray]
    """`seconds` (per step), `kbits` (a second), or both."""

    def steps(self, column: str, ids: Sequence[str]) -> Callable[[float], np.ndarray]:
        """Return a column as a function of the time: a number for each of these clients."""
        if column not in self.columns:
            raise BadInput(f"{self.path}: no column {column!r}; add it to the header and each line")
        place = {name: i for i, name in enumerate(ids)}
        check_clients(self.path, {*self.clients}, ids, "line", f"client,time,{column}")
        whose = np.array([place[name] for name in self.clients])
        return Piecewise(self.times, whose, self.columns[column])


@reads_once
def read_trace(path: Path) -> Recorded:
    """Read a CSV file of (client, time, seconds per step, kbit/s), in which a column may lack.

    A client's lines must be in the order of time, and the first at time 0 or before.
    """
    lines, cells = read_client_table(path, NAMES, needed=["time"])
    columns = {name: _numbers(path, lines, name, cells[name]) for name in VALUES if name in cells}
    if not columns:
        raise BadInput(f"{path}: it has neither a column 'seconds' nor one 'kbits'; add one")
    times = _numbers(path, lines, "time", cells["time"])
    latest: dict[str, float] = {}
    for line, name, time in zip(lines, cells["client"], times.tolist(), strict=True):
        if name not in latest and time > 0:
            raise BadInput(
                f"{path}, line {line}: client {name!r} begins at time {time}, a gap at the "
                "start; its first line must be at time 0"
            )
        if name in latest and time <= latest[name]:
            raise BadInput(
                f"{path}, line {line}: client {name!r} is at time {time} after time "
                f"{latest[name]}; sort its lines by time, and give each time once"
            )
        latest[name] = time
    return Recorded(path, cells["client"], times, columns)


def _numbers(path: Path, lines: list[int], name: str, cells: list[str]) -> np.ndarray:
    """Return a column's numbers, which must lie in its range if it has one."""
    pairs = zip(lines, cells, strict=True)
    values = np.array([read_number(cell, f"{path}, line {line}: {name}") for line, cell in pairs])
    if name in VALUES:
        low, high, _ = get_args(VALUES[name])[1]
        for i in np.flatnonzero((values < low) | (values > high))[:1]:
            check_is(f"{path}, line {lines[i]}: {name}", values[i], VALUES[name])
    return values
