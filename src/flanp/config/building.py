"""The parts of a configuration, built from its tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin

from flanp.checks import BadInput, listed, nearest, shown
from flanp.config.families import FAMILIES, INSTEAD, METHOD_PARTS, as_table, find_class
from flanp.config.imports import imported, is_reference
from flanp.method import Method, auto
from flanp.metrics import Metric
from flanp.parts import field_types
from flanp.solvers.asynchronous import AsyncSolver

METHOD = "method"


def build_methods(tables: dict[str, Any], folder: Path) -> dict[str, Method]:
    """Build the methods: each takes the parts and parameters it lacks from the top level."""
    shared = {key: tables[key] for key in METHOD_PARTS if key in tables}
    given = tables.get("methods", {None: {}})
    if is_auto(tables, "") and None not in given:
        raise BadInput(
            'method = "auto": beside [methods] it would make the same of all of them. Give it to '
            'one: [methods."auto"] with method = "auto"'
        )
    if not isinstance(given, dict) or not given:
        raise BadInput("methods: it must hold a table for each method, such as [methods.FLANP]")
    methods = {}
    for name, table in given.items():
        where = "" if name is None else f"methods.{name}."
        if name is not None and not name.strip():
            raise BadInput("methods: one has no name; give each a name of its own")
        if not isinstance(table, dict):
            raise BadInput(f"methods.{name}: it must be a table")
        for key in table:
            if key not in (METHOD, *METHOD_PARTS):
                raise BadInput(f"{where}{key}: unknown key{nearest(key, METHOD_PARTS)}")
        shared_parts = shared
        if is_auto(table if METHOD in table else tables, where):
            table, shared_parts = (
                chosen(table, shared, where, folder),
                shared | {"participation": None},
            )
        if "solver" not in shared | table:
            raise BadInput(
                f'{where}solver: it is missing; for instance {{name="FedGATE", eta=0.05}}'
            )
        built = {
            key: build_part(
                key, table.get(key, shared.get(key)), where + key, folder, shared_parts.get(key)
            )
            for key in METHOD_PARTS
        }
        methods[type(built["solver"]).__name__ if name is None else name] = Method(**built)
    return methods


def is_auto(table: dict[str, Any], where: str) -> bool:
    """Whether a method's parts are to be chosen for it."""
    value = table.get(METHOD)
    if value not in (None, "auto"):
        raise BadInput(
            f'{where}{METHOD} = {shown(value)}: it can be "auto". Leave it out to name the parts: '
            f"{listed(METHOD_PARTS)}"
        )
    return value == "auto"


def chosen(own: dict[str, Any], shared: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """Return the parts of `flanp.auto` as tables, but for what a method's own tables say of them.

    Step size and batch are the configuration's.
    """
    works = [part for part in (own.get("work"), shared.get("work")) if isinstance(part, dict)]
    has_batch = any(part.get("batch") is not None for part in works)
    method = auto(1.0, 1 if has_batch else None, _needs_rounds(own, shared, where, folder))
    tables: dict[str, Any] = {
        "solver": {"name": type(method.solver).__name__, "rho": as_table(method.solver)["rho"]},
        "participation": as_table(method.participation),
        "work": {key: v for key, v in as_table(method.work).items() if key != "batch"},
    }
    for key, table in own.items():
        given = {"name": table} if isinstance(table, str) else table
        same = key in tables and _name(given) in (None, tables[key]["name"])
        tables[key] = tables[key] | given if same and isinstance(given, dict) else given
    return tables


def _needs_rounds(own: dict[str, Any], shared: dict[str, Any], where: str, folder: Path) -> bool:
    """Whether what is said of a method beside "auto" makes sense with rounds only."""
    solver, participation = _name(own.get("solver")), _name(own.get("participation"))
    patience = _name(own.get("patience", shared.get("patience")))
    if solver is not None:
        cls = part_class("solver", solver, f"{where}solver.name", folder)
        return not (isinstance(cls, AsyncSolver) or issubclass(cls, AsyncSolver))
    return participation is not None or patience not in (None, "All")


def _name(part: Any) -> str | None:
    name = part.get("name") if isinstance(part, dict) else part
    return name if isinstance(name, str) else None


def build_part(family: str, value: Any, where: str, folder: Path, shared: Any = None) -> Any:
    """Build a part from a name, or from a table with a name and parameters.

    What the table lacks comes from a shared table, as far as the part has such a parameter.
    """
    table = {"name": value} if isinstance(value, str) else value
    if isinstance(table, dict) and isinstance(shared, dict):
        table = {"name": shared.get("name")} | table
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise BadInput(
            f"{where} = {shown(value)}: it must be a name or a table with a name"
            f"; there are: {listed(FAMILIES[family].members)}"
        )
    cls = part_class(family, table["name"], f"{where}.name", folder)
    if not isinstance(cls, type):
        if len(table) > 1:
            raise BadInput(
                f"{where}: {table['name']} is a part as it is, which takes no parameters. Name "
                "its class instead, or leave them out"
            )
        return cls
    known = field_types(cls)
    if isinstance(shared, dict):
        inherited = {k: v for k, v in shared.items() if k in known and INSTEAD.get(k) not in table}
        table = inherited | table
    given = {key: v for key, v in table.items() if key != "name"}
    for key in given:
        if _is_part(key, known.get(key)):
            given[key] = build_part(key, given[key], f"{where}.{key}", folder)
        elif _is_function(known.get(key)) and isinstance(given[key], str):
            given[key] = imported(given[key], f"{where}.{key}", folder)
    given = {key: _path(v, known.get(key), folder) for key, v in given.items()}
    try:
        return cls(**given)
    except BadInput as error:
        lines = str(error).splitlines()
        raise BadInput("\n".join(f"{where}.{line}" for line in lines)) from error


def part_class(family: str, name: str, where: str, folder: Path) -> Any:
    """Return the class of a part or, of a user's own, the class or the part itself."""
    if not is_reference(name):
        return find_class(family, name, where.removesuffix(".name"))
    found, bases = imported(name, where, folder), FAMILIES[family].bases
    fits = issubclass(found, bases) if isinstance(found, type) else isinstance(found, bases)
    if not fits:
        home = f"{bases[0].__module__}.{bases[0].__qualname__}"
        raise BadInput(f"{where} = {shown(name)}: it is {_kind(found)}, and must be a {home}")
    return found


def build_metrics(given: Any, folder: Path) -> tuple[Metric, ...]:
    """Build metrics from a list of references to functions (params, batch), or to metrics."""
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise BadInput(
            f"metrics = {shown(given)}: it must be a list of your own, such as "
            '["my_metrics:accuracy"]'
        )
    metrics = []
    for i, name in enumerate(given):
        where = f"metrics[{i}]"
        found = imported(name, where, folder)
        if not isinstance(found, Metric):
            if not callable(found) or isinstance(found, type):
                raise BadInput(
                    f"{where} = {shown(name)}: it is {_kind(found)}, and must be a function of "
                    "(params, batch), or a flanp.Metric"
                )
            found = Metric(name.rpartition(":")[2], found)
        metrics.append(found)
    return tuple(metrics)


def _is_part(key: str, hint: Any) -> bool:
    """Whether a parameter is a part of the family that it is called after."""
    if key not in FAMILIES:
        return False
    kinds = (hint, *get_args(hint))
    return any(isinstance(kind, type) and issubclass(kind, FAMILIES[key].bases) for kind in kinds)


def _is_function(hint: Any) -> bool:
    """Whether a parameter is a function, which a configuration names as module:attribute."""
    return get_origin(hint) is Callable


def _kind(found: Any) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"


def _path(value: Any, hint: Any, folder: Path) -> Any:
    """Look a relative path up from the configuration's folder, then from here."""
    is_path = hint is Path or Path in get_args(hint)
    if isinstance(value, str) and is_path and "\0" not in value:
        return folder / value if (folder / value).exists() else Path(value)
    return value
