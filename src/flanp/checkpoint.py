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
from flanp.history import History, Row, rows_from_csv

FILE = "checkpoint.safetensors"
NUMBERS = (
    *("k", "r", "rounds", "memory", "policy"),
    *("waiting", "sent", "received", "spent", "lost"),
)
ROWS = "history.csv"
"""The array that holds the rows recorded so far, as text: a checkpoint needs no other file."""
FORMAT = 4


def save_checkpoint(
    folder: Path,
    state: State[Any],
    arrays: dict[str, np.ndarray],
    about: dict[str, Any],
    history: History,
) -> None:
    """Write a state into a folder.

    Args:
        folder: where to.
        state: where the run is.
        arrays: what the engine keeps of it.
        about: which run it is.
        history: the rows recorded so far.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {name: getattr(state, name) for name in NUMBERS}
    lists = {"active": state.active.tolist(), "losses": state.losses.tolist()}
    numbers |= {**lists, "time": state.clock.time}
    arrays = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    arrays[ROWS] = np.frombuffer(history.csv().encode(), np.uint8)
    note = json.dumps({"format": FORMAT, "state": numbers, "about": about}, default=str)
    # One entry: the format does not keep the order of several, and same runs give same bytes.
    sealed = json.dumps([seal(note, arrays), note])
    write_atomically(folder / FILE, save(arrays, metadata={"flanp": sealed}))


def load_checkpoint(
    folder: Path, about: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray], list[Row]]:
    """Return a state's numbers, its arrays and its history, of the same run and unchanged."""
    note, arrays = _read(folder / FILE)
    saved = note["about"]
    given = json.loads(json.dumps(about, default=str))
    changed = sorted(key for key in given if given[key] != saved.get(key))
    if changed:
        raise BadInput(
            f"{folder}: its checkpoint is of another run: {', '.join(changed)} differ. "
            "Resume with the same configuration, or start anew with --overwrite"
        )
    text = arrays.pop(ROWS).tobytes()
    _check_history(folder, text)
    return note["state"], arrays, rows_from_csv(text.decode())


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


def _check_history(folder: Path, rows: bytes) -> None:
    """Refuse to go on over a history that was changed: going on would overwrite it.

    A crash may have left a later one, or none. The last row of a checkpoint may be recorded anew
    after a resume: on real machines with another measurement, or with more metrics.
    """
    path = folder / "history.csv"
    if not path.exists():
        return
    before = b"".join(rows.splitlines(keepends=True)[:-1])
    if not path.read_bytes().startswith(before):
        raise BadInput(
            f"{path} was changed or damaged: it does not begin with the rows of the checkpoint. "
            "Delete it to resume from the checkpoint, which holds the rows, too"
        )
