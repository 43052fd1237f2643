"""Reading and writing files: a crash leaves the old or the new one, never half of it."""

import csv
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flanp.checks import BadInput


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file through a temporary one beside it."""
    temporary = path.with_name(path.name + ".part")
    if isinstance(content, str):
        content = content.encode()
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, content: Any) -> None:
    """Write valid JSON: what is not a finite number becomes null, what is unknown its name."""
    write_atomically(path, json.dumps(_plain(content), indent=2, default=str) + "\n")


def read_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells without surrounding blanks) of each line that is not empty."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            for row in reader:
                cells = [cell.strip() for cell in row]
                if any(cells):
                    yield reader.line_num, cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read as a CSV file in UTF-8: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
