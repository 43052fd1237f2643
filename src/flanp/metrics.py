"""Numbers about a model beyond its loss, such as the error on held-out data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from flanp.checks import BadInput, require
from flanp.parts import Part

RESERVED = {
    "round",
    "stage",
    "n",
    "time",
    "grad_norm_sq",
    "stage_grad_norm_sq",
    "waiting",
    "sent",
    "received",
    "spent",
    "lost",
}
"""Names that a history's own columns have, which nobody else may use."""


@final
@dataclass(frozen=True)
class Metric(Part):
    """A number about a model: the mean, over held-out rows, of a function of each row alone.

    >>> Metric("bias", lambda params, batch: (params - batch[0]).mean()).name
    'bias'
    """

    name: str
    """What the history calls it."""
    function: Callable[..., Any]
    """(params, batch) -> the mean over the rows of the batch."""
    higher_is_better: bool | None = None
    """Its direction, without which no target can be set on it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = self.name.isprintable() and self.name.strip() and len(self.name) <= 60
        taken = RESERVED | {"loss", "distance"}
        ok = bool(plain) and self.name not in taken
        allowed = f"a short name, none of {', '.join(sorted(taken))}"
        require(ok, "name", self.name, allowed)


def check_names(metrics: tuple[Metric, ...]) -> None:
    """Refuse two metrics of one name: the history has a column for each."""
    names = [metric.name for metric in metrics]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"metrics: there are two called {name!r}; rename one")
