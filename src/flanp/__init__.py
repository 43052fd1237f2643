"""Federated learning that finishes sooner when clients differ in speed."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flanp import (
        availability,
        compression,
        data,
        flower,
        network,
        oort,
        participation,
        patience,
        problems,
        schedules,
        selection,
        solvers,
        speeds,
        stopping,
        work,
    )
    from flanp.checks import BadInput
    from flanp.comparison import Comparison, compare
    from flanp.divergence import Diverged
    from flanp.ended import Ended, Reason
    from flanp.history import History
    from flanp.hooks import Checkpointer, Hook
    from flanp.method import Method, auto
    from flanp.metrics import Metric
    from flanp.paper import theory
    from flanp.run import Run
    from flanp.simulator.simulate import prepare, simulate

__version__ = version("flanp")
_HOME = {
    "BadInput": "checks",
    "Checkpointer": "hooks",
    "Comparison": "comparison",
    "Diverged": "divergence",
    "Ended": "ended",
    "History": "history",
    "Hook": "hooks",
    "Method": "method",
    "Metric": "metrics",
    "Reason": "ended",
    "Run": "run",
    "auto": "method",
    "compare": "comparison",
    "prepare": "simulator.simulate",
    "simulate": "simulator.simulate",
}
__all__ = [
    "BadInput",
    "Checkpointer",
    "Comparison",
    "Diverged",
    "Ended",
    "History",
    "Hook",
    "Method",
    "Metric",
    "Reason",
    "Run",
    "auto",
    "availability",
    "compare",
    "compression",
    "data",
    "flower",
    "network",
    "oort",
    "participation",
    "patience",
    "prepare",
    "problems",
    "schedules",
    "selection",
    "simulate",
    "solvers",
    "speeds",
    "stopping",
    "theory",
    "work",
]


def __getattr__(name: str) -> Any:
    """Import a part when it is first used: a client on a small machine needs few of them."""
    if name in _HOME:
        return getattr(import_module(f"flanp.{_HOME[name]}"), name)
    if name in __all__:
        return import_module("flanp.paper.theory" if name == "theory" else f"flanp.{name}")
    raise AttributeError(f"module 'flanp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
