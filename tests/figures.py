"""Histories to draw, and what a figure shows of them."""

import math

import numpy as np

from flanp.comparison import Comparison
from flanp.ended import Ended, Reason
from flanp.history import History, Row
from flanp.target import Target

FALLING = [2.0, 1.0, 0.5, 0.25]
REACHED = Ended(Reason.TARGET)
METRIC = "test_error"


def diverged(after):
    return Ended(Reason.DIVERGED, f"diverged in round {after}, stage 1")


def run(
    losses=FALLING,
    seconds=10.0,
    stages=1,
    metrics=None,
    ended=REACHED,
    metric=METRIC,
    higher_is_better=None,
    **about,
):
    """Return a run with a row for each loss, in which a round takes some seconds."""
    rows = [
        Row(
            round=r,
            stage=min(r * stages // len(losses), stages - 1),
            n=4 if r else 0,
            time=r * seconds,
            loss=loss,
            grad_norm_sq=math.nan,
            stage_grad_norm_sq=1.0,
            waiting=0.0,
            metrics={} if metrics is None else {metric: metrics[r]},
        )
        for r, loss in enumerate(losses)
    ]
    return History(rows, {"metrics": {metric: higher_is_better}, **about}, ended=ended)


def compared(target=0.3, **histories):
    runs = {name: each if isinstance(each, list) else [each] for name, each in histories.items()}
    seeds = max(map(len, runs.values()))
    return Comparison(runs, targets=[] if target is None else [Target("loss", target)] * seeds)


def curves(ax):
    """Return x and y of each method's line, without those that only mark something."""
    return [line.get_data() for line in ax.lines if line.get_drawstyle() == "steps-post"]


def marks(ax):
    """Return the levels of horizontal lines."""
    drawn = [line.get_ydata() for line in ax.lines if line.get_linestyle() == ":"]
    return [y[0] for y in drawn if len(y) == 2]


def dots(ax):
    return [line.get_xydata()[0].tolist() for line in ax.lines if line.get_marker() == "o"]


def scales(figure):
    return [(ax.get_xscale(), ax.get_yscale()) for ax in figure.axes]


def value_at(data, x):
    return data[1][np.searchsorted(data[0], x, side="right") - 1]
