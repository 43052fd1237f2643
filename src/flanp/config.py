"""Configuration files: TOML in, checked parts out."""

import importlib
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
)

from flanp import (
    data,
    participation,
    problems,
    schedules,
    solvers,
    speeds,
    stopping,
    theory,
    work,
)
from flanp.algorithm import Method
from flanp.checks import BadInput, nearest
from flanp.comparison import STATISTICAL_ACCURACY
from flanp.history import TARGETS


def _family(*classes: type) -> dict[str, type]:
    return {c.__name__: c for c in classes}


FAMILIES: dict[str, dict[str, type]] = {
    "data": _family(data.Synthetic, data.Digits, data.MNIST, data.CIFAR10, data.CSV),
    "split": _family(data.IID, data.Dirichlet, data.ByLabel),
    "problem": _family(problems.LinearRegression, problems.LogisticRegression, problems.MLP),
    "speeds": _family(
        speeds.Uniform,
        speeds.Exponential,
        speeds.Homogeneous,
        speeds.LogNormal,
        speeds.Measured,
        speeds.FromCSV,
    ),
    "solver": _family(
        solvers.FedGATE, solvers.FedAvg, solvers.FedNova, solvers.FedProx, solvers.Scaffold
    ),
    "schedule": _family(schedules.Constant, schedules.Shrinking, theory.Theorem1),
    "participation": _family(
        participation.Flanp, participation.Everyone, participation.RandomK, participation.FastestK
    ),
    "stop": _family(
        stopping.GradientNoise,
        stopping.StatisticalAccuracy,
        stopping.Halving,
        stopping.FixedRounds,
        stopping.Authors,
        stopping.Never,
    ),
    "work": _family(work.Equal, work.SpeedMatched),
}
"""What each part of a configuration can be: the `name` in a table is the class's."""
METHOD_PARTS = ("solver", "participation", "stop", "work")
DEFAULTS: dict[str, dict[str, Any]] = {
    "participation": {"name": "Flanp"},
    "stop": {"name": "GradientNoise"},
    "work": {"name": "Equal", "tau": 10},
    "speeds": {"name": "Uniform"},
}
"""The parts of a configuration that does not name them."""
INSTEAD = {"tau": "epochs", "epochs": "tau"}
"""Parameters that displace each other."""


class Settings(BaseModel):
    """The single values of a configuration."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seed: int = Field(default=0, ge=0)
    seeds: int = Field(default=5, ge=1)
    max_rounds: int = Field(default=1000, ge=1)
    max_time: float = Field(default=float("inf"), gt=0)
    record_every: int = Field(default=1, ge=1)
    record_after: float = Field(default=0.0, ge=0)
    precision: Literal["float32", "float64"] = "float32"
    target: Any = None

    @field_validator("target")
    @classmethod
    def _target_is_a_level(cls, target: Any) -> Any:
        if target in (None, STATISTICAL_ACCURACY):
            return target
        if isinstance(target, dict) and len(target) == 1:
            ((name, level),) = target.items()
            if name in TARGETS and isinstance(level, int | float) and not isinstance(level, bool):
                return {name: float(level)}
        raise ValueError(
            f"it must be {STATISTICAL_ACCURACY!r}, or one level of {', '.join(TARGETS)}, "
            "such as { loss = 0.3 }"
        )

    def limits(self) -> dict[str, Any]:
        """Return the keywords of `Simulation` that are the same for all methods and seeds."""
        return self.model_dump(
            include={"max_rounds", "max_time", "record_every", "record_after", "precision"}
        )


@dataclass(frozen=True)
class Config:
    """A checked configuration."""

    settings: Settings
    problem: problems.Problem
    data: data.Source
    speeds: speeds.Speeds
    methods: dict[str, Method]
    raw: dict[str, Any]
    """The configuration as it was given, overrides included."""


def load_config(path: Path | None, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file (None: the bundled default) and apply overrides such as 'solver.eta=0.1'."""
    if path is None:
        text, folder, name = default_text(), Path.cwd(), "the bundled default"
    else:
        folder, name = path.parent, str(path)
        try:
            text = path.read_text("utf-8-sig")
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is not a text file in UTF-8: {error}") from error
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{name} is not valid TOML: {error}") from error
    for key, default in DEFAULTS.items():
        raw.setdefault(key, dict(default))
    for override in overrides:
        apply_override(raw, override)
    return build(raw, folder)


def default_text() -> str:
    """Return the bundled default configuration."""
    return (resources.files("flanp") / "configs" / "compare.toml").read_text("utf-8")


def build(raw: dict[str, Any], folder: Path) -> Config:
    """Check a configuration and build its parts; relative paths are looked up from a folder."""
    known = {*Settings.model_fields, "problem", "data", "speeds", "methods", *METHOD_PARTS}
    for key in raw:
        if key not in known:
            raise BadInput(f"{key}: unknown key{nearest(key, known)}")
    single = {key: v for key, v in raw.items() if key in Settings.model_fields}
    for key in ("problem", "data"):
        if key not in raw:
            raise BadInput(f"{key}: it is missing; add a table [{key}] with a name")
    return Config(
        settings=Settings(**validated(Settings, single, "")),
        problem=_part("problem", raw["problem"], "problem", folder),
        data=_part("data", raw["data"], "data", folder),
        speeds=_part("speeds", raw.get("speeds", DEFAULTS["speeds"]), "speeds", folder),
        methods=_methods(raw, folder),
        raw=raw,
    )


def _methods(raw: dict[str, Any], folder: Path) -> dict[str, Method]:
    """Build the methods: each takes the parts and parameters it lacks from the top level."""
    shared = DEFAULTS | {key: raw[key] for key in METHOD_PARTS if key in raw}
    tables = raw.get("methods", {"": {}})
    if not isinstance(tables, dict) or not tables:
        raise BadInput("methods: it must hold a table for each method, such as [methods.FLANP]")
    methods = {}
    for name, table in tables.items():
        where = f"methods.{name}." if name else ""
        if not isinstance(table, dict):
            raise BadInput(f"methods.{name}: it must be a table")
        for key in table:
            if key not in METHOD_PARTS:
                raise BadInput(f"{where}{key}: unknown key{nearest(key, METHOD_PARTS)}")
        if "solver" not in shared | table:
            raise BadInput(
                f'{where}solver: it is missing; for instance {{name="FedGATE", eta=0.05}}'
            )
        built = {
            key: _part(key, table.get(key, shared.get(key)), where + key, folder, shared.get(key))
            for key in METHOD_PARTS
        }
        methods[name or type(built["solver"]).__name__] = Method(**built)
    return methods


def _part(family: str, value: Any, where: str, folder: Path, shared: Any = None) -> Any:
    """Build a part from a name, or from a table with a name and parameters.

    What the table lacks comes from a shared table, as far as the part has such a parameter.
    """
    table = {"name": value} if isinstance(value, str) else value
    if isinstance(table, dict) and isinstance(shared, dict):
        table = {"name": shared.get("name")} | table
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise BadInput(
            f"{where} = {value!r}: it must be a name or a table with a name"
            f"; there are: {', '.join(FAMILIES[family])}"
        )
    name = table["name"]
    if family == "problem" and ":" in name:
        if len(table) > 1:
            raise BadInput(f"{where}: a problem of your own takes no parameters here but its name")
        return _imported(name, where, folder)
    by_lower = {known.lower(): known for known in FAMILIES[family]}
    if name.lower() not in by_lower:
        raise BadInput(f"{where}.name = {name!r}: unknown{nearest(name, by_lower.values())}")
    cls = FAMILIES[family][by_lower[name.lower()]]
    if isinstance(shared, dict):
        known = _schema(cls).model_fields
        inherited = {k: v for k, v in shared.items() if k in known and INSTEAD.get(k) not in table}
        table = inherited | table
    given = {key: v for key, v in table.items() if key != "name"}
    for key in given:
        if key in FAMILIES and key in _schema(cls).model_fields:
            given[key] = _part(key, given[key], f"{where}.{key}", folder)
    hints = get_type_hints(cls)
    given = {key: _converted(v, hints.get(key), folder) for key, v in given.items()}
    values = validated(_schema(cls), given, where + ".")
    try:
        return cls(**values)
    except BadInput as error:
        raise BadInput(f"{where}.{error}") from error


def _imported(reference: str, where: str, folder: Path) -> problems.Problem:
    """Import the user's own problem, 'module:attribute', from the configuration's folder."""
    module, _, attribute = reference.partition(":")
    sys.path.insert(0, str(folder.resolve()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the user's own code may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise BadInput(f"{where}.name = {reference!r}: it cannot be imported: {reason}") from error
    finally:
        sys.path.pop(0)
    if not isinstance(found, problems.Problem):
        raise BadInput(f"{where}.name = {reference!r}: it is not a flanp.problems.Problem")
    return found


@cache
def _schema(cls: type) -> type[BaseModel]:
    """Return a pydantic model with the fields of a dataclass."""
    hints = get_type_hints(cls)
    definitions: dict[str, Any] = {}
    for f in fields(cls):
        if f.default is not MISSING:
            default = Field(default=f.default)
        elif f.default_factory is not MISSING:
            default = Field(default_factory=f.default_factory)
        else:
            default = Field()
        definitions[f.name] = (hints[f.name], default)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, strict=True)
    return create_model(cls.__name__, __config__=config, **definitions)


def validated(schema: type[BaseModel], given: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the values given, converted to their types, or say what is wrong with each."""
    try:
        model = schema.model_validate(given)
    except ValidationError as error:
        raise BadInput(
            "\n".join(_explain(problem, schema, where) for problem in error.errors())
        ) from None
    return {name: getattr(model, name) for name in given}


def _explain(problem: Any, schema: type[BaseModel], where: str) -> str:
    place = where + ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{place}: unknown key{nearest(str(problem['loc'][-1]), schema.model_fields)}"
    if problem["type"] == "missing":
        return f"{place}: it is missing"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return f"{place} = {problem['input']!r}: {message}"


def _converted(value: Any, hint: Any, folder: Path) -> Any:
    """Return a TOML value in the type that TOML has no word for: a tuple, or a path.

    A relative path is looked up from the configuration's folder, then from here.
    """
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, str) and (hint is Path or Path in get_args(hint)):
        return folder / value if (folder / value).exists() else Path(value)
    return value


def apply_override(raw: dict[str, Any], override: str) -> None:
    """Apply 'a.b=c' to a configuration; c is a TOML value or, failing that, a string."""
    path, equals, text = override.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise BadInput(f"--set {override}: write it as key.sub-key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
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
