"""Saving a run and going on with it later."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from flanp.algorithm import State
from flanp.checks import BadInput
from flanp.files import write_atomically

FILE = "checkpoint.safetensors"
NUMBERS = ("k", "r", "rounds", "time", "memory", "waiting")


def save_checkpoint(folder: Path, engine: Any, state: State, about: dict[str, Any]) -> None:
    """Write a state into a folder; `about` says which run it belongs to."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {name: getattr(state, name) for name in NUMBERS}
    numbers["active"] = None if state.active is None else state.active.tolist()
    # One entry: the format does not keep the order of several, and same runs give same bytes.
    note = json.dumps({"state": numbers, "about": about}, default=str)
    write_atomically(folder / FILE, save(engine.save(state.model), metadata={"flanp": note}))


def load_checkpoint(folder: Path, engine: Any, about: dict[str, Any]) -> State:
    """Return the state that was saved; it must be of the same run."""
    try:
        with safe_open(folder / FILE, framework="numpy") as file:
            note = json.loads((file.metadata() or {}).get("flanp", "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        saved, numbers = note["about"], note["state"]
    except (OSError, SafetensorError, KeyError) as error:
        raise BadInput(f"{folder}: there is no checkpoint to resume from ({error})") from error
    given = json.loads(json.dumps(about, default=str))
    changed = sorted(key for key in given if given[key] != saved.get(key))
    if changed:
        raise BadInput(
            f"{folder}: its checkpoint is of another run: {', '.join(changed)} differ. "
            "Resume with the same configuration, or start anew with --overwrite"
        )
    active = numbers.pop("active")
    numbers["active"] = None if active is None else np.array(active)
    return State(model=engine.load(arrays), **numbers)
