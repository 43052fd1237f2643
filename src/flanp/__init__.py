"""Federated learning that finishes sooner when clients differ in speed."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flanp import (
        data,
        flower,
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
    from flanp.divergence import Diverged
    from flanp.history import History
    from flanp.simulation import Simulation, simulate

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
    "flower",
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

_HOME = {
    "BadInput": "checks",
    "Comparison": "comparison",
    "Diverged": "divergence",
    "History": "history",
    "Method": "algorithm",
    "Simulation": "simulation",
    "compare": "comparison",
    "simulate": "simulation",
}


def __getattr__(name: str) -> Any:
    """Import a part when it is first used: a client on a small machine needs few of them."""
    if name in _HOME:
        return getattr(import_module(f"flanp.{_HOME[name]}"), name)
    if name in __all__:
        return import_module(f"flanp.{name}")
    raise AttributeError(f"module 'flanp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
