"""A PyTorch module and its loss. PyTorch itself is imported when a run begins, not before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from flanp.checks import BadInput, shown
from flanp.metrics import Metric
from flanp.problems.base import Objective


def share_wrong(outputs: Any, y: Any) -> Any:
    """Return the share of rows whose largest output is not that of their label."""
    return (outputs.argmax(dim=-1) != y).double().mean()


ERROR = Metric("test_error", share_wrong, higher_is_better=False)
"""What is measured of a classifier unless something else is asked for."""


@final
@dataclass(frozen=True)
class Torch(Objective):
    """Your own PyTorch module: `module(*inputs)`, and the loss of its outputs and the targets.

    The module is trained in train mode and looked at in eval mode. Parameters that require no
    gradient stay as they are; buffers, such as BatchNorm's running statistics, are averaged over
    the participants. Needs PyTorch: pip install 'flanp[torch]'.

    >>> Torch(module=dict, loss=max).metrics[0].name  # a class or a function that makes the module
    'test_error'
    """

    module: Callable[[], Any]
    """() -> an nn.Module."""
    loss: Callable[..., Any]
    """(outputs, y) -> the mean loss over the rows, such as torch.nn.functional.cross_entropy."""
    metrics: Mapping[str, Callable[..., Any]] | tuple[Metric, ...] = (ERROR,)  # type: ignore[assignment]
    """Name -> (outputs, y) -> the mean over the rows; where left out, a classifier's error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        metrics = self.metrics
        if isinstance(metrics, Mapping):
            metrics = tuple(Metric(name, function) for name, function in metrics.items())
        if not isinstance(metrics, tuple) or not all(isinstance(m, Metric) for m in metrics):
            raise BadInput(
                f"metrics = {shown(metrics)}: give functions of (outputs, y) by name, such as "
                '{"accuracy": my_accuracy}, or a tuple of flanp.Metric'
            )
        object.__setattr__(self, "metrics", metrics)
