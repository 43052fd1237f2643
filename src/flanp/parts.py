"""What all parts of a run share: fields with types and ranges, checked when a part is made.

A part is a frozen dataclass. Its annotations say what each field may be, for a call from Python
and for a configuration file alike:

    tau: Annotated[int, Within(1, 100_000)] = 10
"""

import copy
import dataclasses
import inspect
from abc import ABC, ABCMeta
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from flanp.checks import MOST_WHOLE, BadInput, calling, is_ours, nearest, shown


class Within(NamedTuple):
    """The numbers that a field may be, ends included unless `above`."""

    low: float
    high: float
    above: bool = False
    """Whether `low` itself is not allowed."""

    def holds(self, x: float) -> bool:
        """Whether x lies within; NaN does not."""
        return (self.low < x if self.above else self.low <= x) and x <= self.high

    def words(self) -> str:
        """Return the range in words."""
        low = f"above {self.low:,g}" if self.above else f"from {self.low:,g}"
        return f"{low} to {self.high:,.15g}" if self.high < np.inf else f"{low} on"


Count = Annotated[int, Within(1, MOST_WHOLE)]
"""How many of something there are, or how often something is done."""
Many = Annotated[int, Within(1, 1_000_000_000)]
"""How many clients or samples; what really fits is for the machine to say."""
Seed = Annotated[int, Within(0, 2**32 - 1)]
"""A seed: larger ones would be cut off by the generators."""
Positive = Annotated[float, Within(1e-12, 1e12)]
"""A constant of a problem, or another positive number of no particular size."""


P = TypeVar("P")


class Mismatch(Exception):
    """A value does not have a field's type or range."""


class _Checked(ABCMeta):
    """Calls a class with arguments that it does not have, or lacks: BadInput, not TypeError."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            _constructor(cls).bind(*args, **kwargs)
        except TypeError as error:
            raise BadInput(_misfit(cls, args, kwargs)) from error
        if inspect.isabstract(cls):
            lacking = ", ".join(sorted(cls.__abstractmethods__))
            raise BadInput(f"{cls.__name__} lacks {lacking}: define it")
        if is_ours(cls):
            return super().__call__(*args, **kwargs)
        with calling(cls.__name__, "it must take its own fields"):
            return super().__call__(*args, **kwargs)


class Part(ABC, metaclass=_Checked):
    """A part of a run. One that is a dataclass has its fields checked when it is made."""

    def __post_init__(self) -> None:
        check_fields(self)


def check_fields(part: Any) -> None:
    """Bring each field of a frozen dataclass to its type, or say what is wrong with each."""
    wrong = []
    cls: type = type(part)
    for name, hint in field_types(cls).items():
        value = getattr(part, name)
        try:
            object.__setattr__(part, name, conform(value, hint))
        except Mismatch as error:
            place = name + "".join(str(a) for a in error.args[1:])
            wrong.append(f"{place} = {shown(error.args[0])}: it must be {words(hint)}")
    if wrong:
        raise BadInput("\n".join(wrong))


def with_values(part: P, **values: Any) -> P:
    """Return a copy of a part with some fields replaced, unchecked, for programs to trace."""
    new = copy.copy(part)
    for name in [n for n in vars(new) if isinstance(getattr(type(new), n, None), cached_property)]:
        del vars(new)[name]  # what was made of the old values
    for name, value in values.items():
        object.__setattr__(new, name, value)
    return new


def check_is(name: str, value: Any, hint: Any, advice: str = "") -> Any:
    """Return an argument brought to its type, or say what it must be and what to do.

    >>> check_is("seeds", 2.5, Count)
    Traceback (most recent call last):
    flanp.checks.BadInput: seeds = 2.5: it must be a whole number from 1 to 2,147,483,647
    """
    try:
        return conform(value, hint)
    except Mismatch as error:
        raise BadInput(
            f"{name} = {shown(error.args[0])}: it must be {words(hint)}{advice}"
        ) from None


@cache
def field_types(cls: type) -> dict[str, Any]:
    """Return the fields of a dataclass with their types, ranges included."""
    if not dataclasses.is_dataclass(cls):
        return {}
    try:
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):  # a user's own class, whose annotations name what is not there
        return {}
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}


def conform(value: Any, hint: Any) -> Any:
    """Return a value as the type that an annotation names, or raise Mismatch.

    A type that is not known here takes anything.

    >>> conform([1, 2], tuple[float, ...])
    (1.0, 2.0)
    """
    if hint is Any:
        return value
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        value = conform(value, args[0])
        for limit in args[1:]:
            if isinstance(limit, Within) and value is not None and not limit.holds(value):
                raise Mismatch(value)
        return value
    if origin in (Union, UnionType):
        return _conform_to_one(value, args)
    if origin is Literal:
        return _accept(value, value in args if isinstance(value, str | int) else False)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _conform_each(value, args[0])
    if hint is int or hint is float:
        return _number(value, hint)
    if hint is bool:
        return bool(_accept(value, isinstance(value, bool | np.bool_)))
    if hint is Path:
        return Path(_accept(value, isinstance(value, str | Path) and "\0" not in str(value)))
    if origin is Callable or hint is Callable:
        return _accept(value, callable(value))
    if isinstance(hint, type) and hint is not object:
        return _accept(value, isinstance(value, hint))
    return value


def words(hint: Any) -> str:
    """Return in words what an annotation allows.

    >>> words(Annotated[int, Within(1, 1000)] | None)
    'a whole number from 1 to 1,000'
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        ranges = [limit.words() for limit in args[1:] if isinstance(limit, Within)]
        return " ".join([words(args[0]), *ranges])
    if origin in (Union, UnionType):
        return " or ".join(words(each) for each in args if each is not NoneType)
    if origin is Literal:
        return " or ".join(repr(each) for each in args)
    if origin is tuple:
        return f"a list, each {words(args[0])}"
    if origin is Callable or hint is Callable:
        return "a function"
    simple = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    if hint in simple:
        return simple[hint]
    if hint is Path:
        return "a path"
    ours = hint.__module__.startswith("flanp.")
    kinds = ", ".join(each.__name__ for each in hint.__subclasses__()[:8]) if ours else ""
    return f"a {hint.__name__}" + (f", such as {kinds}" if kinds else "")


def _number(value: Any, kind: type) -> int | float:
    if not isinstance(value, int | float):
        plain = isinstance(value, str | bytes | list | tuple | dict | set | type | NoneType)
        array = np.asarray(None if plain else value)
        if array.ndim or array.dtype.kind not in "iuf":
            raise Mismatch(value)
        value = array.item()
    if isinstance(value, bool) or (kind is int and not isinstance(value, int)):
        raise Mismatch(value)
    try:
        return kind(value)
    except OverflowError:
        raise Mismatch(value) from None


def _conform_each(value: Any, hint: Any) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    _accept(value, isinstance(value, list | tuple))
    done = []
    for i, each in enumerate(value):
        try:
            done.append(conform(each, hint))
        except Mismatch as error:
            raise Mismatch(error.args[0], f"[{i}]", *error.args[1:]) from None
    return tuple(done)


def _conform_to_one(value: Any, hints: tuple[Any, ...]) -> Any:
    if value is None and NoneType in hints:
        return None
    failure = Mismatch(value)
    for hint in hints:
        if hint is not NoneType:
            try:
                return conform(value, hint)
            except Mismatch as error:
                failure = Mismatch(*error.args)  # not `error`, whose frames would be kept
    raise failure


def _accept(value: Any, condition: bool) -> Any:
    if not condition:
        raise Mismatch(value)
    return value


def _constructor(cls: type) -> inspect.Signature:
    """Return the signature of a class's constructor, which its metaclass hides."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _misfit(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Say which arguments a call has too many, or lacks."""
    parameters = _constructor(cls).parameters
    unknown = sorted(kwargs.keys() - parameters.keys())
    if unknown:
        return "\n".join(f"{key}: unknown key{nearest(key, parameters)}" for key in unknown)
    by_place = [n for n, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]
    if len(args) > len(by_place):
        return f"{cls.__name__} takes {len(by_place)} arguments in order, not {len(args)}"
    given = {*by_place[: len(args)], *kwargs}
    lacking = [n for n, p in parameters.items() if p.default is p.empty and n not in given]
    return "\n".join(f"{n}: it is missing" for n in lacking) or f"{cls.__name__}: a value twice"
