"""What is minimised: regressions, small networks, and any model of your own."""

from flanp.metrics import Metric
from flanp.problems.base import Batch, Constants, Custom, Objective, Params, Problem
from flanp.problems.classification import MLP, LogisticRegression
from flanp.problems.convolutional import CNN, LeNet
from flanp.problems.equinox import Equinox
from flanp.problems.flax import Flax
from flanp.problems.linear import LinearRegression, Quadratic
from flanp.problems.pytorch import Torch

__all__ = [
    "CNN",
    "MLP",
    "Batch",
    "Constants",
    "Custom",
    "Equinox",
    "Flax",
    "LeNet",
    "LinearRegression",
    "LogisticRegression",
    "Metric",
    "Objective",
    "Params",
    "Problem",
    "Quadratic",
    "Torch",
]
