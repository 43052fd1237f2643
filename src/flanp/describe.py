"""What was run, in words and numbers, for the record."""

from dataclasses import asdict, is_dataclass
from typing import Any


def describe(part: Any) -> dict[str, Any]:
    """Return a part's name and parameters.

    >>> from flanp.participation import FastestK
    >>> describe(FastestK(3))
    {'name': 'FastestK', 'k': 3}
    """
    is_one = is_dataclass(part) and not isinstance(part, type)
    fields = asdict(part) if is_one else {}
    return {"name": type(part).__name__, **{name: _plain(v) for name, v in fields.items()}}


def _plain(value: Any) -> Any:
    if callable(value):
        return getattr(value, "__qualname__", repr(type(value)))
    return value
