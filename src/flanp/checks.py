"""Checks of what a user passes in, with messages that say what to do."""

import difflib
from collections.abc import Iterable
from typing import Any


class BadInput(ValueError):
    """What the user gave cannot be used; the message says what to change."""


def require(condition: bool, name: str, value: Any, allowed: str) -> None:
    """Raise BadInput naming the field, its value and what is allowed, unless the condition holds.

    >>> require(False, "growth", 0.5, "a number above 1")
    Traceback (most recent call last):
    flanp.checks.BadInput: growth = 0.5: it must be a number above 1
    """
    if not condition:
        raise BadInput(f"{name} = {value!r}: it must be {allowed}")


def nearest(word: str, words: Iterable[str]) -> str:
    """Return ' (did you mean ...?)' for a misspelt word, or the list of what there is.

    >>> nearest("fedgat", ["FedGATE", "FedAvg"])
    "; did you mean 'FedGATE'?"
    >>> nearest("x", ["b", "a"])
    '; there are: a, b'
    """
    by_lower = {w.lower(): w for w in words}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    if close:
        return f"; did you mean {by_lower[close[0]]!r}?"
    return f"; there are: {', '.join(sorted(by_lower.values()))}"
