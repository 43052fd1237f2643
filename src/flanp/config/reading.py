"""Configuration files: TOML in, checked parts out."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from flanp import availability, data, network, problems, speeds
from flanp.checks import BadInput, first_line, nearest, shown
from flanp.comparison import SEEDS, TUNING_SEEDS, Seeds
from flanp.config.building import METHOD, build_methods, build_metrics, build_part
from flanp.config.families import METHOD_PARTS, WORLD, default_tables
from flanp.config.overrides import apply_override
from flanp.hooks import Hook
from flanp.limits import Limits
from flanp.method import Method
from flanp.metrics import Metric
from flanp.parts import Seed, field_types
from flanp.simulator.simulate import Precision, Simulation, prepare
from flanp.target import STATISTICAL_ACCURACY, Target, resolve_target


@dataclass(frozen=True)
class Settings(Limits):
    """The single values of a configuration."""

    seed: Seed = 0
    seeds: Seeds = SEEDS
    precision: Precision = "float32"
    target: Any = None
    tune: Any = ()
    """Knobs that are each method's own best: names, or names with values to try."""
    tuning_seeds: Seeds = TUNING_SEEDS

    def __post_init__(self) -> None:
        super().__post_init__()
        texts = isinstance(self.tune, list | tuple) and all(isinstance(k, str) for k in self.tune)
        if not texts and not isinstance(self.tune, dict):
            raise BadInput(
                f"tune = {shown(self.tune)}: it must be a list of knobs, such as "
                '["eta", "tau"], or a table of the values to try of each'
            )
        if self.target in (None, STATISTICAL_ACCURACY):
            return
        if not isinstance(self.target, dict):
            raise BadInput(
                f"target = {shown(self.target)}: it must be {STATISTICAL_ACCURACY!r}, or one level "
                "of the loss, grad_norm_sq or a metric, such as { loss = 0.3 }"
            )
        Target.of(self.target)  # which columns there are is for the problem to say

    def options(self) -> dict[str, Any]:
        """Return the keywords of `prepare` that are the same for all methods and seeds."""
        return {name: getattr(self, name) for name in (*field_types(Limits), "precision")}


@dataclass(frozen=True)
class Config:
    """A checked configuration."""

    settings: Settings
    problem: problems.Objective
    data: data.Source | data.FederatedData
    speeds: speeds.Speeds
    network: network.Network
    availability: availability.Availability
    methods: dict[str, Method]
    metrics: tuple[Metric, ...]
    raw: dict[str, Any]
    """The configuration as it was given, overrides included."""
    notes: list[str] = field(default_factory=list)
    """What the overrides did beyond what they say."""

    def simulation(
        self, method: Method, hooks: Sequence[Hook] = (), resume: Path | None = None
    ) -> Simulation:
        """Return a run of one of the methods, new or from a checkpoint's folder."""
        s = self.settings
        loaded = self.data.loaded(s.seed) if isinstance(self.data, data.Source) else self.data
        run = prepare(
            self.problem,
            loaded,
            method,
            self.speeds,
            network=self.network,
            availability=self.availability,
            seed=s.seed,
            target=resolve_target(s.target, self.problem, loaded),
            metrics=self.metrics,
            hooks=hooks,
            resume=resume,
            **s.options(),
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
    for key, default in default_tables().items():
        raw.setdefault(key, dict(default))
    notes: list[str] = []
    for override in overrides:
        notes += apply_override(raw, override, folder)
    return build(raw, folder, notes)


def default_text() -> str:
    """Return the bundled default configuration."""
    return (resources.files("flanp.config") / "compare.toml").read_text("utf-8")


def build(raw: dict[str, Any], folder: Path, notes: Iterable[str] = ()) -> Config:
    """Check a configuration and build its parts; relative paths are looked up from a folder."""
    single = field_types(Settings)
    known = {*single, "problem", "data", *WORLD, METHOD, "methods", "metrics", *METHOD_PARTS}
    for key in raw:
        if key not in known:
            raise BadInput(f"{key}: unknown key{nearest(key, known)}")
    for key in ("problem", "data"):
        if key not in raw:
            raise BadInput(f"{key}: it is missing; add a table [{key}] with a name")
    tables = default_tables() | raw
    return Config(
        settings=Settings(**{key: v for key, v in raw.items() if key in single}),
        problem=build_part("problem", raw["problem"], "problem", folder),
        data=build_part("data", raw["data"], "data", folder),
        **{part: build_part(part, tables[part], part, folder) for part in WORLD},
        methods=build_methods(tables, folder),
        metrics=build_metrics(raw.get("metrics", []), folder),
        raw=raw,
        notes=list(notes),
    )
