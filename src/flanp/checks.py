"""Checks of what a user passes in, with messages that say what to do."""

import difflib
import reprlib
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import numpy as np

MOST_WHOLE = 2**31 - 1
"""The largest whole number that compiled programs count to."""


class BadInput(ValueError):
    """What the user gave cannot be used; the message says what to change."""


def require(condition: bool, name: str, value: Any, allowed: str) -> None:
    """Raise BadInput naming the field, its value and what is allowed, unless the condition holds.

    >>> require(False, "growth", np.float64(0.5), "a number above 1")
    Traceback (most recent call last):
    flanp.checks.BadInput: growth = 0.5: it must be a number above 1
    """
    if not condition:
        raise BadInput(f"{name} = {shown(value)}: it must be {allowed}")


def shown(value: Any) -> str:
    """Return a value as a message shows it: NumPy's numbers as numbers, long ones shortened.

    >>> shown(np.float64(0.5)), shown(int)
    ('0.5', 'the class int')
    >>> shown(10**5000)
    'a whole number of about 5000 digits'
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and abs(value) >= 10**40:
        return f"a whole number of about {int(value.bit_length() * 0.30103)} digits"
    short = reprlib.Repr()
    short.maxstring = short.maxother = 80
    return " ".join(short.repr(value).split())


def nearest(word: str, words: Iterable[str]) -> str:
    """Return '; did you mean ...?' for a misspelt word, or the list of what there is.

    >>> nearest("fedgat", ["FedGATE", "FedAvg"])
    "; did you mean 'FedGATE'?"
    >>> nearest("x", ["FLANP, no idle", "FLANP"])
    "; there are: 'FLANP', 'FLANP, no idle'"
    """
    by_lower = {w.lower(): w for w in words}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    if close:
        return f"; did you mean {by_lower[close[0]]!r}?"
    return f"; there are: {listed(sorted(by_lower.values()))}"


def listed(names: Iterable[str], most: int = 20) -> str:
    """Return names in quotes, for they may hold commas.

    >>> listed(["a", "b, c"])
    "'a', 'b, c'"
    """
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


class calling:
    """Turn whatever a user's function raises into BadInput that names it and what it must be.

    >>> with calling("init", "it must take a key"):
    ...     raise TypeError("takes no arguments")
    Traceback (most recent call last):
    flanp.checks.BadInput: init failed (TypeError: takes no arguments): it must take a key
    """

    def __init__(self, function: str, expected: str):
        self.function, self.expected = function, expected

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, BadInput | KeyboardInterrupt | GeneratorExit):
            return
        if not out_of_memory(error):
            reason = f"{self.function} failed ({first_line(error)}): {self.expected}"
            raise BadInput(reason) from error


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, Python's or NumPy's, and not True or False."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_ours(thing: object) -> bool:
    """Whether a class, or an object's class, is flanp's own and not a user's."""
    cls = thing if isinstance(thing, type) else type(thing)
    return cls.__module__.startswith("flanp.")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, Python's or XLA's."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in first_line(error)


def first_line(error: BaseException) -> str:
    """Return what was raised in one line: its type and the start of its message."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # a user's own exception may not even have words
        lines = []
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


def qualified(function: Callable[..., Any]) -> str:
    """Return what a user calls a function or a class."""
    return str(getattr(function, "__qualname__", type(function).__name__))
