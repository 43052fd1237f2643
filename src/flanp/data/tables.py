"""A user's table of samples: a CSV file whose header names the columns."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flanp.checks import BadInput, nearest
from flanp.files import NUMBER, read_csv, read_number

INDEX_NAME = re.compile(r"(.*[ _.-])?(index|id|idx|row|rowid)|unnamed: \d+|.*[a-z]I[dD]")
"""What a column that numbers the rows is usually called."""
NOBODY = {"", "na", "n/a", "nan", "null", "none"}
"""What stands where a client's name is missing."""


def read_table(
    path: Path,
    target: str,
    client: str | None,
    inputs: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
    """Return the inputs x, the target y and, where a column says, each row's owner.

    Args:
        path: the file.
        target: the name of the target's column.
        client: the name of the column with each row's owner, if there is one.
        inputs: the names of the inputs' columns; those left over if None.
        ignore: the names of columns to leave out.
    """
    columns = _columns(path)
    named = {f"target = {target!r}": target}
    named |= {} if client is None else {f"client = {client!r}": client}
    named |= {f"inputs: {name!r}": name for name in inputs or ()}
    named |= {f"ignore: {name!r}": name for name in ignore}
    for role, name in named.items():
        if name not in columns:
            raise BadInput(f"{path}: {role}: no column {name!r}{nearest(name, columns)}")
    taken = [*filter(None, (target, client)), *(inputs or ()), *ignore]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"{path}: column {twice!r} is named for two purposes; give it one")
    owners = None if client is None else columns[client]
    unknown = next((name for name in owners or () if name.lower() in NOBODY), None)
    if unknown is not None:
        raise BadInput(
            f"{path}: column {client!r}: a row has no client but {unknown!r}; give each row one"
        )
    kept = [name for name in columns if name not in taken] if inputs is None else list(inputs)
    if not kept:
        raise BadInput(f"{path}: no column is left for the inputs")
    numbers = {name: _numeric(path, name, columns[name]) for name in (*kept, target)}
    if inputs is None:
        _refuse_index(path, {name: numbers[name] for name in kept})
    return np.stack([numbers[name] for name in kept], axis=1), numbers[target], owners


def _columns(path: Path) -> dict[str, list[str]]:
    """Return the cells of each column by its name in the header."""
    lines = read_csv(path)
    if len(lines) < 2:
        raise BadInput(f"{path}: it must hold a header and at least one row")
    (_, header), *rows = lines
    for line, cells in rows:
        if len(cells) != len(header):
            raise BadInput(f"{path}, line {line}: {len(cells)} cells; the header has {len(header)}")
    unnamed = [str(i + 1) for i, name in enumerate(header) if not name]
    if unnamed:
        raise BadInput(
            f"{path}: column {', '.join(unnamed)} has no name. Name it, or delete it if it numbers "
            "the rows (pandas writes none with to_csv(index=False))"
        )
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise BadInput(f"{path}: there are several columns {twice[0]!r}; name each its own way")
    counted = [str(i) for i in range(len(header))], [str(i + 1) for i in range(len(header))]
    if all(NUMBER.fullmatch(name) for name in header) and header not in counted:
        raise BadInput(f"{path}: its first line holds numbers; it must name the columns")
    columns = zip(*(cells for _, cells in rows), strict=True)
    return {name: list(column) for name, column in zip(header, columns, strict=True)}


def _numeric(path: Path, name: str, cells: list[str]) -> np.ndarray:
    where = f"{path}: column {name!r} is not numeric, data row "
    return np.array([read_number(text, f"{where}{i + 1}") for i, text in enumerate(cells)])


def _refuse_index(path: Path, inputs: dict[str, np.ndarray]) -> None:
    """Refuse a column that numbers the rows: as an input it would be noise, or tell the order."""
    for name, column in inputs.items():
        whole = np.array_equal(column, np.rint(column))
        different = whole and len(np.unique(column)) == len(column)
        steps = np.unique(np.diff(column)).tolist()
        counts = len(inputs) > 1 and len(column) > 2 and whole and steps in ([1.0], [-1.0])
        from_start = min(column[0], column[-1]) in (0, 1)
        named = INDEX_NAME.fullmatch(name) or INDEX_NAME.fullmatch(name.lower())
        if (counts and from_start) or (different and named):
            raise BadInput(
                f"{path}: column {name!r} numbers the rows. Leave it out, ignore = [{name!r}], or "
                "name all columns to use with inputs = [...]"
            )
