"""Reading and writing files: a crash leaves the old or the new one, never half of it."""

import csv
import hashlib
import io
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from flanp.checks import BadInput, first_line, listed, nearest, shown

R = TypeVar("R")
SEAL = "sha256"
"""Name of a file's checksum in it."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number as tables hold it; float() would also take 1_000, nan and infinity."""
QUOTED = re.compile(r'"[^"]*"')
CLIENT_NAMES = {"client", "client_id", "client id", "clients", "id", "name", "node", "device"}
"""What a column of clients is called."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file through a temporary one beside it."""
    temporary = path.with_name(path.name + ".part")
    if isinstance(content, str):
        content = content.encode()
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, f"{path} cannot be written: {error.strerror}") from error


def write_json(path: Path, content: Any) -> None:
    """Write valid JSON: what is not a finite number becomes null, what is unknown its name."""
    write_atomically(path, json.dumps(plain(content), indent=2, default=str) + "\n")


def plain(value: Any) -> Any:
    """Return a value as JSON has it: no tuples, no NaN or infinity."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def sha256(*parts: str | bytes) -> str:
    """Return a checksum of some texts and bytes, in which each one's length counts, too."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8))
        digest.update(content)
    return digest.hexdigest()


def write_sealed(path: Path, content: dict[str, Any], *beside: str) -> None:
    """Write JSON with a checksum of itself, and of texts that stand beside it."""
    content = json.loads(json.dumps(plain(content), default=str))
    write_json(path, {**content, SEAL: sha256(*beside, json.dumps(content))})


def read_sealed(
    path: Path, beside: Callable[[dict[str, Any]], tuple[str, ...]] = lambda content: ()
) -> dict[str, Any]:
    """Return what `write_sealed` wrote, or say that it is no longer that.

    Args:
        path: the file.
        beside: content -> the texts that were sealed with it.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        if content.pop(SEAL) == sha256(*beside(content), json.dumps(content)):
            return dict(content)
        reason = "it does not have the checksum that it was written with"
    except Exception as error:  # a damaged file can raise anything
        reason = first_line(error)
    raise BadInput(f"{path} is damaged, or of another version: {reason}. Delete it, and run again")


def checksum(arrays: Iterable[np.ndarray]) -> int:
    """Return one number for some arrays' contents."""
    value = 0
    for a in arrays:
        value = zlib.crc32(np.ascontiguousarray(a).data.cast("B"), value)
    return value


def read_csv(path: Path) -> list[tuple[int, list[str]]]:
    """Return (line number, cells without surrounding blanks) of each line that is not empty.

    Cells are separated by semicolons or tabs if the first line has any outside of quotes, else by
    commas.
    """
    try:
        if not Path(path).is_file():
            there = "it is a folder" if Path(path).is_dir() else "there is no such file"
            raise BadInput(f"{path}: {there}")
        text = Path(path).read_bytes().decode("utf-8-sig")
    except BadInput:
        raise
    except (OSError, ValueError) as error:  # not to be read, not UTF-8, no path at all
        raise BadInput(f"{path} cannot be read as a CSV file in UTF-8: {error}") from error
    first = QUOTED.sub("", next((line for line in text.splitlines() if line.strip()), ""))
    separator = next((s for s in ";\t" if s in first), ",")
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    lines = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if row and row != [""]:
                lines.append((reader.line_num, cells))
            if cells and cells[0].startswith("#"):
                raise BadInput(
                    f"{path}, line {reader.line_num}: it begins with '#'; a CSV file has no "
                    "comments: delete the line, or the sign"
                )
            if any("\0" in cell for cell in cells):
                raise BadInput(f"{path}, line {reader.line_num}: it holds a NUL character")
            broken = next((cell for cell in cells if "\n" in cell or "\r" in cell), None)
            if broken is not None:
                raise BadInput(
                    f"{path}, up to line {reader.line_num}: the cell {shown(broken)} goes over "
                    "several lines: is a quote missing, or one too many?"
                )
    except csv.Error as error:
        raise BadInput(
            f"{path}, line {reader.line_num}: it cannot be read as CSV: {error}; look at its quotes"
        ) from error
    while lines and not any(lines[-1][1]):  # spreadsheets leave lines of separators at the end
        lines.pop()
    return lines


def reads_once(read: Callable[[Path], R]) -> Callable[[Path], R]:
    """Keep what a function made of a file until the file has another content.

    Each seed and method of a comparison asks for it, and a long trace takes seconds to read.
    """

    @lru_cache(maxsize=2)
    def remembered(path: Path, content: str) -> R:
        del content
        return read(path)

    @wraps(read)
    def reading(path: Path) -> R:
        content = ""
        with suppress(OSError, ValueError):  # for which reading has words
            content = sha256(Path(path).read_bytes())
        return remembered(Path(path), content)

    return reading


def read_client_table(
    path: Path, known: Mapping[str, Collection[str]], needed: Sequence[str]
) -> tuple[list[int], dict[str, list[str]]]:
    """Return the lines' numbers and the cells of each known column, `client` among them.

    Args:
        path: the file, whose header names the columns; those that are not known are left out.
        known: for each column beside `client`, what else it may be called.
        needed: those that must be there.
    """
    lines = read_csv(path)
    form = ",".join(("client", *known))
    if len(lines) < 2:
        raise BadInput(f"{path}: it must hold a header, such as '{form}', and lines below it")
    (_, header), *rows = lines
    names = [name.lower() for name in header]
    places: dict[str, int] = {}
    for name, others in {"client": CLIENT_NAMES, **known}.items():
        found = [i for i, each in enumerate(names) if each == name or each in others]
        if len(found) > 1:
            raise BadInput(f"{path}: {listed(header[i] for i in found)}: give {name!r} one column")
        if found:
            places[name] = found[0]
        elif name in ("client", *needed):
            raise BadInput(
                f"{path}: no column {name!r}; its first line, {shown(','.join(header))}, must name "
                f"the columns, such as '{form}'"
            )
    for line, cells in rows:
        if len(cells) != len(header):
            raise BadInput(f"{path}, line {line}: {len(cells)} cells; the header has {len(header)}")
        if not cells[places["client"]]:
            raise BadInput(f"{path}, line {line}: the client has no name")
    return [line for line, _ in rows], {
        name: [cells[i] for _, cells in rows] for name, i in places.items()
    }


def check_clients(
    path: Path, there: Collection[str], ids: Sequence[str], lack: str, line: str
) -> None:
    """Refuse a file whose clients are not the data's: silence would hide a misspelt name.

    Args:
        path: the file.
        there: the clients of the file.
        ids: the clients of the data.
        lack: what a client lacks that the file does not have.
        line: what a line of the file looks like.
    """
    missing = [i for i in ids if i not in there]
    if missing:
        raise BadInput(f"{path}: no {lack} for {_some(missing)}; add a line '{line}' for each")
    unknown = sorted({*there} - {*ids})
    if unknown:
        raise BadInput(
            f"{path}: {_some(unknown)} not among the clients of the data"
            f"{nearest(unknown[0], list(ids)[:20])}"
        )


def _some(ids: Sequence[str]) -> str:
    """Return 'client a', or 'clients a, b, c and 7 more'."""
    return f"client {ids[0]!r}" if len(ids) == 1 else f"clients {listed(ids, most=3)}"


def read_number(text: str, where: str) -> float:
    """Return the number in a cell of a table, or say why it is none.

    >>> read_number("1.5e3", "speeds.csv, line 3")
    1500.0
    """
    if NUMBER.fullmatch(text):
        value = float(text)
        if math.isfinite(value):
            return value
        raise BadInput(f"{where}: {text} is too large for a number")
    if not text:
        raise BadInput(f"{where}: the cell is empty; every cell must hold a number")
    hint = ""
    if "," in text or "_" in text:
        hint = ": write it with a point and no signs between thousands"
    raise BadInput(f"{where}: {shown(text)} is not a number{hint}")
