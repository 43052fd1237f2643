"""Small problems that the tests share, so that they share compilations too."""

import json

import numpy as np

from flanp import prepare
from flanp.algorithm import State, flanp
from flanp.clock import Clock
from flanp.data import Synthetic, from_clients
from flanp.engine import Round
from flanp.measurement import Look
from flanp.method import Method
from flanp.participation import Everyone, Growing
from flanp.patience import All
from flanp.problems import LinearRegression
from flanp.simulator.engine import Simulator
from flanp.simulator.world import World
from flanp.solvers import FedAvg, FedGATE
from flanp.speeds import Exponential
from flanp.stopping import FixedRounds, Never
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
    world = World(speeds(N, seed) if T is None else np.asarray(T, float), seed=seed)
    engine = Simulator(
        LinearRegression(),
        data,
        solver,
        world,
        batch=work.batch,
        seed=seed,
        precision=precision,
        chunk=chunk,
    )
    return engine, rounds_of(engine, Method(solver, participation, stop, work), seed, rounds)


def rounds_of(engine, method, seed, rounds):
    """Return, for each round of Algorithm 1, (state without its arrays, saved arrays)."""
    trace = []

    def watch(state):
        if state.rounds > len(trace):
            trace.append((state._replace(model=None), engine.save(state.model, state.clock)))
        return Look.NOTHING if state.rounds < rounds else None

    start = State(engine.start(), Clock(given=engine.world.T))
    for _ in flanp(engine, method, start, seed, watch):
        pass
    return trace


def one_round(engine, model, number, active, tau, eta, gamma):
    """Return the model after a round of a stage in which the active clients are all there are."""
    pool, ends = float(engine.s[active].sum()), All().ends(len(active))
    T, exchange = engine.world.T, engine.exchange()
    round_ = Round(number, active, tau, eta, gamma, pool, 0.0, T, exchange, ends)
    return engine.apply(model, engine.ask(model, round_, Look.NOTHING))


def models(trace):
    return np.array([arrays["w"] for _, arrays in trace])


def simulation(order=None, N=7, seed=0, solver=FedGATE(eta=0.05), shift=0.0, **options):  # noqa: B008
    """Return FLANP with mini-batches on clients with unequally many samples."""
    clients = [(x, y + shift) for x, y in linear_clients(N, unequal=True)]
    order = range(N) if order is None else order
    data = from_clients([clients[i] for i in order], [f"c{i}" for i in order])
    parts = {"participation": Growing(2), "stop": FixedRounds(3), "work": Equal(tau=4, batch=6)}
    method = Method(solver, **{name: options.pop(name, part) for name, part in parts.items()})
    options = {"speeds": Exponential(), **options}
    return prepare(LinearRegression(), data, method, seed=seed, **options)


def history_bytes(run, folder):
    """Return what a run to its end has saved."""
    list(run)
    run.save(folder)
    return {
        name: (folder / name).read_bytes() for name in ("history.csv", "checkpoint.safetensors")
    }


def leaf_file(path, writers):
    """Write a file as LEAF does, with so many images of each writer."""
    rng = np.random.default_rng(len(writers))
    content = {
        "users": list(writers),
        "num_samples": list(writers.values()),
        "user_data": {
            name: {"x": rng.random((s, 784)).round(3).tolist(), "y": [*range(s)]}
            for name, s in writers.items()
        },
    }
    path.write_text(json.dumps(content))


SIX = Synthetic(clients=6, samples=10, dim=3)


def short_run(solver=FedAvg(eta=0.05), stop=Never(), **options):  # noqa: B008
    """Return a run of three rounds of everyone."""
    parts = {"participation": Everyone(), "work": Equal(tau=2)}
    method = Method(solver, stop=stop, **{name: options.pop(name, parts[name]) for name in parts})
    problem = options.pop("problem", LinearRegression())
    return prepare(problem, SIX, method, **{"max_rounds": 3, **options})
