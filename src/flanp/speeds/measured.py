"""Speeds that are known: as numbers, or from a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from flanp.checks import BadInput
from flanp.files import CLIENT_NAMES, check_clients, read_csv, read_number
from flanp.parts import check_is
from flanp.speeds.base import Seconds, Speeds

SECONDS_NAMES = {"seconds", "seconds_per_step", "seconds per step", "seconds/step", "t", "t_i"}


@final
@dataclass(frozen=True)
class Measured(Speeds):
    """Seconds per step that are known: one number a client, in the order of the client ids.

    >>> Measured((3.0, 1.0)).draw(["0", "1"], np.random.default_rng(0))
    array([3., 1.])
    """

    seconds: tuple[Seconds, ...]

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return the given numbers."""
        if len(self.seconds) != len(ids):
            raise BadInput(
                f"seconds: {len(self.seconds)} speeds for {len(ids)} clients: give one for each"
            )
        return np.array(self.seconds, float)


@final
@dataclass(frozen=True)
class FromCSV(Speeds):
    """Seconds per step from a CSV file with two columns: client, seconds per step.

    The first line may be a header, which names the two columns. Clients of the file that the data
    does not have are an error, as are clients of the data that the file does not have.
    """

    path: Path

    def draw(self, ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
        """Return the file's T_i."""
        T = read_speeds(self.path)
        check_clients(self.path, T, ids, "speed", "client,seconds")
        return np.array([T[i] for i in ids])


def read_speeds(path: Path) -> dict[str, float]:
    """Read a CSV file of (client, seconds per step) and return seconds by client."""
    lines = read_csv(path)
    client, seconds = 0, 1
    if lines and len(lines[0][1]) == 2:
        names = [cell.lower() for cell in lines[0][1]]
        for a, b in ((0, 1), (1, 0)):
            if names[a] in CLIENT_NAMES and names[b] in SECONDS_NAMES:
                client, seconds = a, b
                lines = lines[1:]
                break
    T: dict[str, float] = {}
    for line, cells in lines:
        where = f"{path}, line {line}"
        if len(cells) != 2:
            raise BadInput(f"{where}: {len(cells)} columns; there must be two: client, seconds")
        name = cells[client]
        try:
            value = read_number(cells[seconds], where)
        except BadInput as error:
            hint = "; a header must be 'client,seconds'" if not T else ""
            raise BadInput(f"{error}{hint}") from None
        T_i = check_is(f"{where}: seconds", value, Seconds)
        if not name:
            raise BadInput(f"{where}: the client has no name")
        if name in T:
            raise BadInput(f"{where}: client {name!r} was there before; give each one line")
        T[name] = T_i
    if not T:
        raise BadInput(f"{path}: the file holds no speeds; write lines 'client,seconds'")
    return T
