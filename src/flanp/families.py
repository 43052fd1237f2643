"""What the parts of a configuration can be."""

from typing import Any

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
from flanp.checks import BadInput, nearest, shown


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


def find_class(family: str, name: str, where: str) -> type:
    """Return the class that a part's name stands for, in any case."""
    by_lower = {known.lower(): cls for known, cls in FAMILIES[family].items()}
    if name.lower() not in by_lower:
        raise BadInput(f"{where}.name = {shown(name)}: unknown{nearest(name, FAMILIES[family])}")
    return by_lower[name.lower()]
