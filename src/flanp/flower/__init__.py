"""FLANP on real machines, through Flower (the extra `flower`)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flanp.checks import BadInput

if TYPE_CHECKING:
    from flanp.flower.asking import NobodyAnswered
    from flanp.flower.clientapp import client
    from flanp.flower.models import arrays_of
    from flanp.flower.plain import PLAIN, OwnTraining
    from flanp.flower.strategy import Flanp

__all__ = ["PLAIN", "Flanp", "NobodyAnswered", "OwnTraining", "arrays_of", "client"]


_HOME = {
    "PLAIN": "plain",
    "Flanp": "strategy",
    "NobodyAnswered": "asking",
    "OwnTraining": "plain",
    "arrays_of": "models",
    "client": "clientapp",
}


def __getattr__(name: str) -> Any:
    """Import the server's part only at the server, the client's only at the clients."""
    if name not in _HOME:
        raise AttributeError(f"module 'flanp.flower' has no attribute {name!r}")
    try:
        return getattr(import_module(f"flanp.flower.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "flwr":
            raise
        raise BadInput("Flower is not installed: pip install 'flanp[flower]'") from error
