"""What the parts of a configuration can be."""

from typing import Any, NamedTuple

from flanp import (
    availability,
    compression,
    data,
    network,
    oort,
    participation,
    patience,
    problems,
    schedules,
    selection,
    speeds,
    stopping,
)
from flanp import solvers as s
from flanp import work as w
from flanp.checks import BadInput, nearest, shown
from flanp.describe import describe
from flanp.method import Method
from flanp.paper import theory
from flanp.parts import field_types


class Family(NamedTuple):
    """One kind of part."""

    bases: tuple[type, ...]
    """What all of its members are."""
    members: dict[str, type]
    """The classes that a `name` stands for."""


def _family(base: type | tuple[type, ...], *classes: type) -> Family:
    bases = base if isinstance(base, tuple) else (base,)
    return Family(bases, {c.__name__: c for c in classes})


FAMILIES: dict[str, Family] = {
    "data": _family(
        (data.Source, data.FederatedData),
        data.Synthetic,
        data.Digits,
        data.MNIST,
        data.CIFAR10,
        data.FEMNIST,
        data.CSV,
    ),
    "split": _family(data.Split, data.IID, data.Dirichlet, data.ByLabel, data.Unequal, data.Apart),
    "problem": _family(
        (problems.Problem, problems.Torch),
        problems.LinearRegression,
        problems.LogisticRegression,
        problems.MLP,
        problems.CNN,
        problems.LeNet,
        problems.Torch,
    ),
    "speeds": _family(
        speeds.Speeds,
        speeds.Uniform,
        speeds.Exponential,
        speeds.Homogeneous,
        speeds.LogNormal,
        speeds.Pareto,
        speeds.Devices,
        speeds.Measured,
        speeds.FromCSV,
        speeds.Trace,
    ),
    "change": _family(speeds.Change, speeds.Steady, speeds.Drift, speeds.SlowDowns),
    "availability": _family(
        availability.Availability,
        availability.Always,
        availability.Random,
        availability.FromTrace,
    ),
    "solver": _family(
        (s.Solver, s.AsyncSolver),
        s.FedGATE,
        s.FedAvg,
        s.FedNova,
        s.FedProx,
        s.Scaffold,
        s.DIANA,
        s.FedOpt,
        s.FedSplit,
        s.Memory,
        s.FedAsync,
        s.FedBuff,
        s.Rennala,
        s.Ringmaster,
        s.Ringleader,
        s.CA2FL,
        s.IAG,
        s.Tracking,
    ),
    "schedule": _family(
        schedules.Schedule, schedules.Constant, schedules.Shrinking, theory.Theorem1
    ),
    "local": _family(s.LocalStep, s.SGD, s.Momentum),
    "compression": _family(
        compression.Compression, compression.Exact, compression.QSGD, compression.TopK
    ),
    "participation": _family(
        participation.Participation,
        participation.Growing,
        participation.Everyone,
        participation.RandomK,
        participation.FastestK,
        participation.Nimble,
        selection.FedCS,
        selection.TiFL,
        oort.Oort,
    ),
    "stop": _family(
        stopping.StageRule,
        stopping.LossNoise,
        stopping.GradientNoise,
        stopping.StatisticalAccuracy,
        stopping.Halving,
        stopping.FixedRounds,
        stopping.Authors,
        stopping.Never,
    ),
    "work": _family(w.Work, w.Equal, w.SpeedMatched, w.Partial, w.Balanced),
    "network": _family(
        network.Network,
        network.Free,
        network.Exchange,
        network.Lines,
        network.Phones,
        network.FromTrace,
    ),
    "patience": _family(
        patience.Patience, patience.All, patience.Quorum, patience.First, patience.Deadline
    ),
}
"""What each part of a configuration can be: the `name` in a table is the class's."""
INSTEAD = {"tau": "epochs", "epochs": "tau"}
"""Parameters that displace each other."""
WORLD = {
    "speeds": speeds.DEFAULT,
    "network": network.FREE,
    "availability": availability.ALWAYS,
}
"""The parts that say what clients are like, as they are where nothing is said."""
METHOD_PARTS = tuple(field_types(Method))


def default_tables() -> dict[str, dict[str, Any]]:
    """Return the parts of a configuration that does not name them, as tables."""
    parts = {
        name: field.default
        for name, field in Method.__dataclass_fields__.items()
        if name != "solver"
    }
    return {name: as_table(part) for name, part in {**parts, **WORLD}.items()}


def as_table(part: Any) -> dict[str, Any]:
    """Return a part as the table that makes it."""
    return {key: value for key, value in describe(part).items() if value is not None}


def find_class(family: str, name: str, where: str) -> type:
    """Return the class that a part's name stands for, in any case."""
    members = FAMILIES[family].members
    by_lower = {known.lower(): cls for known, cls in members.items()}
    if name.lower() not in by_lower:
        own = ". One of your own: module:attribute" if ":" not in name else ""
        raise BadInput(f"{where}.name = {shown(name)}: unknown{nearest(name, members)}{own}")
    return by_lower[name.lower()]
