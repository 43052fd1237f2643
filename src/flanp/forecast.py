"""What memory of absent clients would take, and what nobody can undercut: for `flanp plan`."""

import math

import numpy as np

GRID = 400
"""Times at which a forecast is looked at: it is found to some 4%."""
LONGEST = 1e5
"""The longest time that is forecast, in steps of the slowest client."""


def memory_time(
    round_: float,
    steps: np.ndarray,
    s: float,
    kappa: float,
    start: float,
    step: float,
    modes: int = 20,
) -> float:
    """Return when the fastest clients and a memory of the others reach the accuracy of all data.

    The risk is that of `planning.expected_rounds`, with noise variance 1. After r rounds the
    squared gradient is G = sum_j lambda_j^2 a_j exp(-2 step lambda_j r), and the excess loss
    E(r) = sum_j lambda_j a_j exp(-2 step lambda_j r) / 2. What client j last reported it had begun
    at time t_j, and its difference belongs to the model of that time: with s_j samples its Hessian
    differs from the risk's such that the difference is off by 2 E(t_j) tr(H) / s_j, in square and
    on average. With s samples in all they add up to

        G + tr(H) / s mean_j(2 E(t_j)) <= 2 mu c / s,

    not before each client was heard.

    Args:
        round_: seconds of a round of the fastest.
        steps: seconds of a step and an exchange of clients, as many as stand for all.
        s: samples of all clients together.
        kappa: condition number.
        start: Delta_0 / c.
        step: eta tau L.
        modes: d.

    >>> once, twice = (memory_time(T, np.array([1.0, 9.0]), 1e4, 20, 0.3, 0.5) for T in (1.0, 2.0))
    >>> 9 < once < twice < 3 * once
    True
    """
    curvature = np.geomspace(1 / kappa, 1, modes)
    a = np.full(modes, start * modes / curvature.sum())
    rates = 2 * step * curvature
    allowed = modes / kappa / s
    trace = float(curvature.sum())

    def left(seconds: np.ndarray, power: int) -> np.ndarray:
        rounds = np.floor(seconds / round_)[..., None]
        return np.asarray((curvature**power * a * np.exp(-rates * rounds)).sum(axis=-1))

    longest = LONGEST * max(round_, float(steps.max()))
    with np.errstate(all="ignore"):  # what is beyond the numbers is as good as never, or gone
        times = round_ * np.exp(np.linspace(0, np.log(longest) - np.log(round_), GRID))
        for at in times:
            reports = np.floor(at / steps)
            off = left(np.maximum(reports - 1, 0) * steps, 1)
            if at >= steps.max() and left(at, 2) + trace / s * off.mean() <= allowed:
                return float(at)
    return math.inf


def best_m(T: np.ndarray, noise: float) -> int:
    """Return with how many of the fastest clients asynchronous SGD is quickest.

    That is argmin over m of (1 + noise / m) / (mean of 1 / T_i over the m fastest), with noise =
    sigma^2 / eps: the variance of a client's gradient over the accuracy that is asked for.

    Reference: Maranjyan, Tyurin and Richtarik, arXiv:2501.16168 (naive optimal ASGD).

    Args:
        T: seconds per step of each client, in any order.
        noise: sigma^2 / eps.

    >>> best_m(np.array([1.0, 3.0, 9.0, 99.0]), noise=0.1), best_m(np.ones(4), noise=9.0)
    (1, 4)
    """
    m, sorted_ = np.arange(1, len(T) + 1), np.sort(T)
    rate = np.cumsum(sorted_[0] / sorted_) / m
    return int(np.argmin((1 + noise / m) / rate)) + 1
