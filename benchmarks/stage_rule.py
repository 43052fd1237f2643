"""How far the parameter-free stage rules are from the rule with known mu and c.

For each condition number, distribution of speeds and n0: the time to the statistical accuracy of
all data with each rule, at its better tau, over that with known constants (geometric mean).

    python benchmarks/stage_rule.py
"""

import math

import numpy as np

from flanp import Method, data, participation, problems, solvers, speeds, stopping, work
from flanp.simulator.simulate import prepare
from flanp.target import STATISTICAL_ACCURACY, resolve_target
from flanp.trying import attempt

RULES = {
    "known": stopping.StatisticalAccuracy(),
    "LossNoise": stopping.LossNoise(),
    "GradientNoise": stopping.GradientNoise(),
}
SPEEDS = {"uniform": speeds.Uniform(), "exponential": speeds.Exponential()}
SEEDS, ETA, TAUS = 4, 1.4, (1, 5)


def seconds(rule: stopping.StageRule, condition: float, T: speeds.Speeds, n0: int) -> float:
    """Return the time to the target with a rule at its better tau."""
    problem, times = problems.LinearRegression(), []
    for tau in TAUS:
        logs = []
        for seed in range(SEEDS):
            drawn = data.Synthetic(condition=condition).load(seed)
            method = Method(
                solvers.FedGATE(ETA), participation.Growing(n0), rule, work.Equal(tau=tau)
            )
            target = resolve_target(STATISTICAL_ACCURACY, problem, drawn)
            run = prepare(problem, drawn, method, T, seed=seed, target=target, max_rounds=3000)
            logs.append(math.log(attempt(run, least=200).time))
        times.append(float(np.exp(np.mean(logs))))
    return min(times)


for condition in (20.0, 200.0):
    for name, T in SPEEDS.items():
        for n0 in (1, 8):
            known = seconds(RULES["known"], condition, T, n0)
            ratios = {
                rule: seconds(RULES[rule], condition, T, n0) / known for rule in list(RULES)[1:]
            }
            words = ", ".join(f"{rule} {ratio:.2f}" for rule, ratio in ratios.items())
            print(f"condition {condition:g}, {name}, n0 = {n0}: {words}", flush=True)
