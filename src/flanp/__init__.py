"""Federated learning that finishes sooner when clients differ in speed."""

from importlib.metadata import version

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
from flanp.checks import BadInput
from flanp.comparison import Comparison, compare
from flanp.history import History
from flanp.simulation import Diverged, Simulation, simulate

__version__ = version("flanp")
__all__ = [
    "BadInput",
    "Comparison",
    "Diverged",
    "History",
    "Method",
    "Simulation",
    "compare",
    "data",
    "participation",
    "problems",
    "schedules",
    "simulate",
    "solvers",
    "speeds",
    "stopping",
    "theory",
    "work",
]
