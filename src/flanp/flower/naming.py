"""Solvers by name: what the server says of one, and what a client makes of it."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from flanp import compression, solvers
from flanp.checks import is_ours
from flanp.parts import Part
from flanp.solvers import Solver

OWN: dict[str, type[Part]] = {
    cls.__name__: cls
    for module in (solvers, compression)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Part) and is_ours(cls)
}
"""The solvers, local steps and compressions that each client knows."""


class UnknownPart(ValueError):
    """A client was told of a part that its app does not allow."""


def name_of(cls: type) -> str:
    """Return what a class is called on the wire: of a user's own, with its module."""
    return cls.__name__ if OWN.get(cls.__name__) is cls else f"{cls.__module__}:{cls.__qualname__}"


def told(solver: Solver) -> dict[str, Any]:
    """Return a solver's name and parameters; what its step sizes come to goes with each task."""
    return {name: value for name, value in _described(solver).items() if name != "schedule"}


def solver_of(description: dict[str, Any], allowed: Sequence[type[Part]]) -> Solver:
    """Return the solver of a description, of classes that this client knows or allows."""
    solver = _built(description, OWN | {name_of(cls): cls for cls in allowed})
    if not isinstance(solver, Solver):
        raise UnknownPart(f"{description.get('name')!r} is not a solver")
    return solver


def _described(part: Part) -> dict[str, Any]:
    values = {f.name: getattr(part, f.name) for f in fields(part) if f.init}  # type: ignore[arg-type]
    return {"name": name_of(type(part))} | {
        name: _described(v) if isinstance(v, Part) else v for name, v in values.items()
    }


def _built(description: dict[str, Any], known: dict[str, type[Part]]) -> Part:
    name = description["name"]
    if name not in known:
        raise UnknownPart(
            f"this client has no {name!r}: install the same flanp, or name the class in "
            "flanp.flower.client(parts=...)"
        )
    values = {
        key: _built(v, known) if isinstance(v, dict) and "name" in v else v
        for key, v in description.items()
        if key != "name"
    }
    return known[name](**values)
