"""What is minimised: linear and logistic regression, an MLP, and any model of your own."""

from flanp.metrics import Metric
from flanp.problems.base import Batch, Constants, Custom, Params, Problem
from flanp.problems.classification import MLP, LogisticRegression
from flanp.problems.linear import LinearRegression, Quadratic

__all__ = [
    "MLP",
    "Batch",
    "Constants",
    "Custom",
    "LinearRegression",
    "LogisticRegression",
    "Metric",
    "Params",
    "Problem",
    "Quadratic",
]
