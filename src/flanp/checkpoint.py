"""Saving a run and going on with it later."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from flanp.algorithm import State
from flanp.checks import BadInput, first_line
from flanp.files import sha256, write_atomically
from flanp.history import Row, rows_from_csv, rows_to_csv

FILE = "checkpoint.safetensors"
NUMBERS = ("k", "r", "rounds", "time", "memory", "waiting")
ROWS = "history.csv"
"""The array that holds the rows recorded so far, as text: a checkpoint needs no other file."""
FORMAT = 2


def save_checkpoint(
    folder: Path, engine: Any, state: State, about: dict[str, Any], rows: list[Row]
) -> None:
    """Write a state into a folder; `about` says which run it belongs to."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {name: getattr(state, name) for name in NUMBERS}
    numbers["active"] = None if state.active is None else state.active.tolist()
    arrays = {name: np.ascontiguousarray(a) for name, a in engine.save(state.model).items()}
    arrays[ROWS] = np.frombuffer(rows_to_csv(rows).encode(), np.uint8)
    note = json.dumps({"format": FORMAT, "state": numbers, "about": about}, default=str)
    # One entry: the format does not keep the order of several, and same runs give same bytes.
    sealed = json.dumps([seal(note, arrays), note])
    write_atomically(folder / FILE, save(arrays, metadata={"flanp": sealed}))


def load_checkpoint(folder: Path, engine: Any, about: dict[str, Any]) -> tuple[State, list[Row]]:
    """Return the state that was saved and its history; it must be of the same run, unchanged."""
    note, arrays = _read(folder / FILE)
    saved, numbers = note["about"], note["state"]
    given = json.loads(json.dumps(about, default=str))
    changed = sorted(key for key in given if given[key] != saved.get(key))
    if changed:
        raise BadInput(
            f"{folder}: its checkpoint is of another run: {', '.join(changed)} differ. "
            "Resume with the same configuration, or start anew with --overwrite"
        )
    rows = rows_from_csv(arrays.pop(ROWS).tobytes().decode())
    _check_history(folder, rows)
    active = numbers.pop("active")
    numbers["active"] = None if active is None else np.array(active)
    return State(model=engine.load(arrays), **numbers), rows


def seal(note: str, arrays: dict[str, np.ndarray]) -> str:
    """Return a checksum of all that a checkpoint holds."""
    parts: list[str | bytes] = [note]
    for name in sorted(arrays):
        a = arrays[name]
        parts += [name, str(a.dtype), str(a.shape), a.tobytes()]
    return sha256(*parts)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not path.exists():
        raise BadInput(f"{path.parent}: there is no checkpoint to resume from")
    advice = "Start anew with --overwrite, or restore the file"
    try:
        with safe_open(path, framework="numpy") as file:
            entry = json.loads((file.metadata() or {})["flanp"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if isinstance(entry, dict):
            raise BadInput(f"{path} is of an older version, which kept no checksum. {advice}")
        checksum, text = entry
        if checksum != seal(text, arrays):
            raise BadInput(
                f"{path} is damaged: it does not have the checksum it was written with. {advice}"
            )
        note = json.loads(text)
    except BadInput:
        raise
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path} is damaged: {first_line(error)}. {advice}") from error
    except Exception as error:  # a damaged header can raise anything
        reason = f"{path} is damaged, or none of flanp's: {first_line(error)}"
        raise BadInput(f"{reason}. {advice}") from error
    if note["format"] != FORMAT:
        raise BadInput(f"{path} is of another version (format {note['format']}). {advice}")
    return note, arrays


def _check_history(folder: Path, rows: list[Row]) -> None:
    """Refuse to go on over a history that was changed: going on would overwrite it.

    A crash may have left a later one, or none. The last row of a checkpoint may be recorded anew
    after a resume: on real machines with another measurement.
    """
    path = folder / "history.csv"
    if path.exists() and not path.read_bytes().startswith(rows_to_csv(rows[:-1]).encode()):
        raise BadInput(
            f"{path} was changed or damaged: it does not begin with the rows of the checkpoint. "
            "Delete it to resume from the checkpoint, which holds the rows, too"
        )
