"""Changes to a configuration from the command line: --set solver.eta=0.1."""

import tomllib
from pathlib import Path
from typing import Any

from flanp.checks import BadInput, nearest
from flanp.config.building import part_class
from flanp.config.families import FAMILIES, INSTEAD
from flanp.files import NUMBER
from flanp.parts import field_types


def apply_override(raw: dict[str, Any], override: str, folder: Path) -> list[str]:
    """Apply 'a.b=c' to a configuration, and return what else that changed, in words.

    c is a TOML value or, failing that, a string. A new name of a part drops the parameters that
    the new part does not have; one of the user's own is looked up from a folder.
    """
    path, equals, text = override.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise BadInput(f"--set {override}: write it as key.sub-key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text.strip()
        if NUMBER.fullmatch(value):  # .1, which TOML does not take
            value = float(value)
    if keys[0] == "methods" and len(keys) > 2:
        methods = raw.get("methods", {})
        if isinstance(methods, dict) and keys[1] not in methods:
            known = nearest(keys[1], methods)
            raise BadInput(f"--set {override}: there is no method {keys[1]!r}{known}")
    table = raw
    for key in keys[:-1]:
        inner = table.setdefault(key, {})
        if isinstance(inner, str):  # a part's name stands for a table; a target's does not
            inner = table[key] = {} if key == "target" else {"name": inner}
        if not isinstance(inner, dict):
            raise BadInput(f"--set {override}: {key!r} is not a table")
        table = inner
    table.pop(INSTEAD.get(keys[-1], ""), None)
    table[keys[-1]] = value
    if keys[-1] == "name" and len(keys) > 1 and keys[-2] in FAMILIES and isinstance(value, str):
        return _drop_strangers(table, keys[-2], value, ".".join(keys[:-1]), folder)
    return []


def _drop_strangers(
    table: dict[str, Any], family: str, name: str, where: str, folder: Path
) -> list[str]:
    """Drop the parameters that a part does not have; return what was dropped, in words."""
    cls = part_class(family, name, f"{where}.name", folder)
    known = field_types(cls) if isinstance(cls, type) else {}
    dropped = [key for key in table if key != "name" and key not in known]
    for key in dropped:
        del table[key]
    if not dropped:
        return []
    return [f"{where}.name = {name}: dropped {', '.join(dropped)}, which it does not have"]
