"""What was run, in words and numbers, for the record."""

from dataclasses import fields, is_dataclass
from typing import Any

from flanp.checks import is_ours


def describe(part: Any) -> dict[str, Any]:
    """Return a part's name and parameters.

    >>> from flanp.participation import FastestK
    >>> describe(FastestK(3))
    {'name': 'FastestK', 'k': 3}
    """
    parameters = {f.name: _plain(getattr(part, f.name)) for f in fields(part)} if _is(part) else {}
    home = {} if is_ours(part) else {"module": type(part).__module__}
    return {"name": type(part).__name__, **home, **parameters}


def _plain(value: Any) -> Any:
    if _is(value):
        return describe(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if callable(value):
        return getattr(value, "__qualname__", repr(type(value)))
    return value


def _is(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)
