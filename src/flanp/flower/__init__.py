"""FLANP on real machines, through Flower (the extra `flower`)."""

from typing import TYPE_CHECKING, Any

from flanp.checks import BadInput

if TYPE_CHECKING:
    from flanp.flower.clientapp import client
    from flanp.flower.fleet import NobodyAnswered
    from flanp.flower.models import arrays_of
    from flanp.flower.strategy import Flanp

__all__ = ["Flanp", "NobodyAnswered", "arrays_of", "client"]


def __getattr__(name: str) -> Any:
    """Import the server's part only at the server, the client's only at the clients."""
    if name not in __all__:
        raise AttributeError(f"module 'flanp.flower' has no attribute {name!r}")
    try:
        if name == "client":
            from flanp.flower.clientapp import client

            return client
        if name == "arrays_of":
            from flanp.flower.models import arrays_of

            return arrays_of
        if name == "NobodyAnswered":
            from flanp.flower.fleet import NobodyAnswered

            return NobodyAnswered
        from flanp.flower.strategy import Flanp

        return Flanp
    except ModuleNotFoundError as error:
        if error.name != "flwr":
            raise
        raise BadInput("Flower is not installed: pip install 'flanp[flower]'") from error
