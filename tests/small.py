"""Small problems that the tests share, so that they share compilations too."""

import numpy as np

from flanp.algorithm import Method, State, flanp
from flanp.data import from_clients
from flanp.participation import Everyone
from flanp.problems import LinearRegression
from flanp.simulator import Simulator
from flanp.solvers import FedGATE
from flanp.speeds import Clock
from flanp.stopping import FixedRounds
from flanp.work import Equal


def linear_clients(N, seed=0, s=20, d=3, unequal=False):
    """Return (x_i, y_i) of N clients, with 1 to 2s samples each where unequal."""
    rng = np.random.default_rng([seed, N])
    sizes = rng.integers(1, 2 * s, N) if unequal else np.full(N, s)
    sizes[0] = 2 * s - 1 if unequal else s  # one padded length for all seeds
    w = rng.standard_normal(d)
    xs = [rng.standard_normal((size, d)) for size in sizes]
    return [(x, x @ w + 0.5 * rng.standard_normal(len(x))) for x in xs]


def speeds(N, seed=0):
    return np.random.default_rng([seed, 99]).exponential(size=N)


def run(
    N=7,
    solver=FedGATE(eta=0.05),  # noqa: B008
    participation=Everyone(),  # noqa: B008
    stop=FixedRounds(5),  # noqa: B008
    work=Equal(tau=4),  # noqa: B008
    seed=0,
    unequal=False,
    precision="float64",
    rounds=100,
    T=None,
    chunk=None,
):
    """Return the engine and, for each round, (state without its arrays, saved arrays)."""
    data = from_clients(linear_clients(N, seed, unequal=unequal))
    clock = Clock(speeds(N, seed) if T is None else np.asarray(T, float), 0.0, seed)
    engine = Simulator(
        LinearRegression(),
        data,
        solver,
        clock.ranking,
        batch=work.batch,
        seed=seed,
        precision=precision,
        chunk=chunk,
    )
    method = Method(solver, participation, stop, work)
    states = flanp(engine, method, clock, State(engine.start()))
    trace = [
        (state._replace(model=None), engine.save(state.model))
        for state, _ in zip(states, range(rounds), strict=False)
    ]
    return engine, trace


def models(trace):
    return np.array([arrays["w"] for _, arrays in trace])
