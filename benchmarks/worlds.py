"""What FLANP loses where speeds are unknown, and keeps of its gain where clients drop out.

Linear regression of the bundled comparison, to the statistical accuracy of all data, each method
with the knobs that the league found for it (docs/league.md). Geometric means over 10 seeds.

    python benchmarks/worlds.py
"""

import numpy as np

from flanp import Method, availability, data, prepare, problems, solvers, speeds, work
from flanp.participation import Everyone, Growing
from flanp.target import resolve_target

SEEDS = 10
SPEEDS = {
    "uniform on [50, 500]": (speeds.Uniform, Growing(n0=8, growth=2), 1.68),
    "exponential": (speeds.Exponential, Growing(n0=2, growth=1.5), 1.41),
}
FEDGATE = Method(solvers.FedGATE(1.68), Everyone(), work=work.Equal(tau=1))


def time(method, drawn, dropouts=0.0):
    """Return the time to the target, as a geometric mean."""
    problem, times = problems.LinearRegression(), []
    for seed in range(SEEDS):
        loaded = data.Synthetic().loaded(seed)
        target = resolve_target("statistical accuracy", problem, loaded)
        options = {"availability": availability.Always(dropouts=dropouts), "target": target}
        history = prepare(problem, loaded, method, drawn, seed=seed, **options).to_the_end()
        times.append(history.rows[-1].time if str(history.ended) == "target reached" else np.inf)
    return float(np.exp(np.log(times).mean()))


def main():
    print("FLANP, unknown speeds over known ones; share of its gain over FedGATE with dropouts")
    for name, (kind, growing, eta) in SPEEDS.items():
        flanp = Method(solvers.FedGATE(eta), growing, work=work.Equal(tau=1))
        known = time(flanp, kind())
        unknown = time(flanp, kind(known=False))
        gain = time(FEDGATE, kind()) / known
        kept = time(FEDGATE, kind(), 0.2) / time(flanp, kind(), 0.2)
        print(
            f"{name}: unknown / known {unknown / known:.2f}; gain {gain:.2f}x, with 20% dropouts "
            f"{kept:.2f}x, {kept / gain:.0%} of it"
        )


if __name__ == "__main__":
    main()
