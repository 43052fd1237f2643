"""Configuration files: TOML in, checked parts out."""

import importlib
import sys
import tomllib
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from flanp import data, problems, speeds
from flanp.algorithm import Method
from flanp.checks import BadInput, first_line, listed, nearest, shown
from flanp.comparison import STATISTICAL_ACCURACY, Seeds, resolve_target
from flanp.families import DEFAULTS, FAMILIES, METHOD_PARTS, find_class
from flanp.history import TARGETS, check_target
from flanp.overrides import INSTEAD, apply_override
from flanp.parts import Count, Part, Seed, field_types
from flanp.simulation import Duration, Pause, Precision, Simulation


@dataclass(frozen=True)
class Settings(Part):
    """The single values of a configuration."""

    seed: Seed = 0
    seeds: Seeds = 5
    max_rounds: Count = 1000
    max_time: Duration = float("inf")
    record_every: Count = 1
    record_after: Pause = 0.0
    precision: Precision = "float32"
    target: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target in (None, STATISTICAL_ACCURACY):
            return
        if not isinstance(self.target, dict):
            raise BadInput(
                f"target = {shown(self.target)}: it must be {STATISTICAL_ACCURACY!r}, or one level "
                f"of {', '.join(TARGETS)}, such as {{ loss = 0.3 }}"
            )
        # Whether the metric has a direction is for the problem to say, which is not known here.
        object.__setattr__(self, "target", check_target(self.target, higher_is_better=False))

    def limits(self) -> dict[str, Any]:
        """Return the keywords of `Simulation` that are the same for all methods and seeds."""
        names = ("max_rounds", "max_time", "record_every", "record_after", "precision")
        return {name: getattr(self, name) for name in names}


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
    notes: list[str] = field(default_factory=list)
    """What the overrides did beyond what they say."""

    def simulation(self, method: Method, resume: Path | None = None) -> Simulation:
        """Return a run of one of the methods, new or from a checkpoint's folder."""
        s = self.settings
        loaded = self.data.loaded(s.seed)
        run = Simulation(
            self.problem,
            loaded,
            method.solver,
            method.participation,
            method.stop,
            method.work,
            self.speeds,
            seed=s.seed,
            target=resolve_target(s.target, self.problem, loaded),
            **s.limits(),
            resume=resume,
        )
        run.history.about["config"] = self.raw
        return run


def load_config(path: Path | None, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file (None: the bundled default) and apply overrides such as 'solver.eta=0.1'."""
    if path is None:
        text, folder, name = default_text(), Path.cwd(), "the bundled default"
    else:
        folder, name = path.parent, str(path)
        try:
            if path.exists() and not path.is_file():
                raise BadInput(f"{path} is not a file")
            text = path.read_text("utf-8-sig")
        except BadInput:
            raise
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from error
        except (UnicodeDecodeError, ValueError) as error:
            raise BadInput(f"{path} is not a text file in UTF-8: {error}") from error
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number with too many digits, too
        raise BadInput(f"{name} is not valid TOML: {first_line(error)}") from error
    for key, default in DEFAULTS.items():
        raw.setdefault(key, dict(default))
    notes: list[str] = []
    for override in overrides:
        notes += apply_override(raw, override)
    return build(raw, folder, notes)


def default_text() -> str:
    """Return the bundled default configuration."""
    return (resources.files("flanp") / "configs" / "compare.toml").read_text("utf-8")


def build(raw: dict[str, Any], folder: Path, notes: Iterable[str] = ()) -> Config:
    """Check a configuration and build its parts; relative paths are looked up from a folder."""
    single = field_types(Settings)
    known = {*single, "problem", "data", "speeds", "methods", *METHOD_PARTS}
    for key in raw:
        if key not in known:
            raise BadInput(f"{key}: unknown key{nearest(key, known)}")
    for key in ("problem", "data"):
        if key not in raw:
            raise BadInput(f"{key}: it is missing; add a table [{key}] with a name")
    return Config(
        settings=Settings(**{key: v for key, v in raw.items() if key in single}),
        problem=_part("problem", raw["problem"], "problem", folder),
        data=_part("data", raw["data"], "data", folder),
        speeds=_part("speeds", raw.get("speeds", DEFAULTS["speeds"]), "speeds", folder),
        methods=_methods(raw, folder),
        raw=raw,
        notes=list(notes),
    )


def _methods(raw: dict[str, Any], folder: Path) -> dict[str, Method]:
    """Build the methods: each takes the parts and parameters it lacks from the top level."""
    shared = DEFAULTS | {key: raw[key] for key in METHOD_PARTS if key in raw}
    tables = raw.get("methods", {None: {}})
    if not isinstance(tables, dict) or not tables:
        raise BadInput("methods: it must hold a table for each method, such as [methods.FLANP]")
    methods = {}
    for name, table in tables.items():
        where = "" if name is None else f"methods.{name}."
        if name is not None and not name.strip():
            raise BadInput("methods: one has no name; give each a name of its own")
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
        methods[type(built["solver"]).__name__ if name is None else name] = Method(**built)
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
            f"{where} = {shown(value)}: it must be a name or a table with a name"
            f"; there are: {listed(FAMILIES[family])}"
        )
    name = table["name"]
    if family == "problem" and ":" in name:
        if len(table) > 1:
            raise BadInput(f"{where}: a problem of your own takes no parameters here but its name")
        return _imported(name, where, folder)
    cls = find_class(family, name, where)
    known = field_types(cls)
    if isinstance(shared, dict):
        inherited = {k: v for k, v in shared.items() if k in known and INSTEAD.get(k) not in table}
        table = inherited | table
    given = {key: v for key, v in table.items() if key != "name"}
    for key in given:
        if key in FAMILIES and key in known:
            given[key] = _part(key, given[key], f"{where}.{key}", folder)
    given = {key: _path(v, known.get(key), folder) for key, v in given.items()}
    try:
        return cls(**given)
    except BadInput as error:
        lines = str(error).splitlines()
        raise BadInput("\n".join(f"{where}.{line}" for line in lines)) from error


def _imported(reference: str, where: str, folder: Path) -> problems.Problem:
    """Import the user's own problem, 'module:attribute', from the configuration's folder."""
    module, _, attribute = reference.partition(":")
    if not all(word.isidentifier() for word in (*module.split("."), attribute)):
        raise BadInput(f"{where}.name = {shown(reference)}: write it as module:attribute")
    sys.path.insert(0, str(folder.resolve()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's own code may raise anything
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f" at {last.filename}, line {last.lineno}" if module in last.filename else ""
        raise BadInput(
            f"{where}.name = {shown(reference)}: it cannot be imported: {first_line(error)}{place}"
        ) from error
    finally:
        sys.path.pop(0)
    if not isinstance(found, problems.Problem):
        raise BadInput(f"{where}.name = {shown(reference)}: it is not a flanp.problems.Problem")
    return found


def _path(value: Any, hint: Any, folder: Path) -> Any:
    """Look a relative path up from the configuration's folder, then from here."""
    is_path = hint is Path or Path in get_args(hint)
    if isinstance(value, str) and is_path and "\0" not in value:
        return folder / value if (folder / value).exists() else Path(value)
    return value
