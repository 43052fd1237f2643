"""A run whose loss became NaN or infinite, and what made it so."""

import math

from flanp.history import History, Row


class Diverged(RuntimeError):
    """The loss became NaN or infinite. `history` holds what there was before."""

    def __init__(self, row: Row, history: History):
        super().__init__(
            f"the loss became {row.loss}, its gradient's squared norm {row.grad_norm_sq}, in round "
            f"{row.round} (stage {row.stage + 1}, {row.n} clients). {_cause(row, history)}"
        )
        self.row, self.history = row, history


def _cause(row: Row, history: History) -> str:
    """Say what made a loss or its gradient NaN or infinite, as far as the rows show it."""
    losses = history.column("loss")
    if not len(losses):
        return "That is the start model's: look at the loss function and the data"
    if math.isfinite(row.loss):
        return "The loss is finite: look for a square root, a logarithm or a division in it at 0"
    if losses[-1] > losses[0] or len(losses) == 1:
        return "The steps were too long: lower eta, gamma or tau"
    return (
        f"The loss had been falling, to {losses[-1]:.4g} in round {history.rows[-1].round}: look "
        "for a logarithm, a root or a division in the loss function; else lower eta, gamma or tau"
    )
