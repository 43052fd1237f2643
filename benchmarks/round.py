"""How fast the simulator is, as ratios measured in one run.

    python benchmarks/round.py

1. One round of 20 clients x 30 steps of batch 100 on the MLP 784-128-64-10, as a share of this
   machine's own float32 GEMM rate (a matrix product of the whole machine, measured in between).
2. The same for many small clients: logistic regression, 1,000 clients of 60 samples.
3. FLANP from n0 = 1 to N = 1000: how often the round is compiled.
4. What Python adds to a round.
5. The peak of memory, in copies of (clients x parameters), in a process of its own.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import flanp
from flanp.data import FederatedData, from_clients
from flanp.engine import Round
from flanp.measurement import Look
from flanp.patience import All
from flanp.simulator.engine import Model, Simulator
from flanp.simulator.rounds import round_
from flanp.simulator.world import World

REPEATS = 9


def main() -> None:
    share_of_gemm()
    many_small_clients()
    compilations()
    python_overhead()
    memory()


def images(N: int, S: int) -> FederatedData:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, S, 784), dtype=np.float32)
    y = rng.integers(0, 10, (N, S)).astype(np.int32)
    return from_clients(list(zip(x, y, strict=True)), classes=10)


def one_round(
    engine: Simulator, model: Model, number: int, active: np.ndarray, tau: int, eta: float
) -> Model:
    """Return the model after a round, without a look at it."""
    steps, pool = np.full(len(active), tau), float(engine.s.sum())
    ends, T = All().ends(len(active)), engine.world.T
    upcoming = Round(number, active, steps, eta, 1.0, pool, at=0.0, T=T, ends=ends)
    return engine.apply(model, engine.ask(model, upcoming, Look.NOTHING))


def share_of_gemm() -> None:
    N, S, batch, tau = 20, 3000, 100, 30
    data, everyone = images(N, S), np.arange(N)
    layers = [(784, 128), (128, 64), (64, 10)]
    # Forward, and backward by weights and by inputs; the first layer's inputs need no gradient.
    per_step = 2 * batch * (3 * sum(a * b for a, b in layers) - layers[0][0] * layers[0][1])
    flop = N * tau * per_step
    A = np.random.default_rng(0).standard_normal((2500, 2500), dtype=np.float32)
    engines = {}
    for solver in (flanp.solvers.FedGATE(eta=0.05), flanp.solvers.FedAvg(eta=0.05)):
        engine = Simulator(flanp.problems.MLP(), data, solver, World(np.ones(N)), batch=batch)
        engines[type(solver).__name__] = engine, engine.start()
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    gemm = []
    for number in range(REPEATS):
        for name, (engine, model) in engines.items():
            start = time.perf_counter()
            model = one_round(engine, model, number, everyone, tau, eta=0.05)
            model.w.block_until_ready()
            seconds[name].append(time.perf_counter() - start)
            engines[name] = engine, model
        start = time.perf_counter()
        A @ A
        gemm.append(2 * 2500**3 / (time.perf_counter() - start))
        time.sleep(0.3)  # the BLAS threads spin for a while, which would slow the next round
    rate = max(gemm[1:])
    print(f"GEMM: {rate / 1e9:.0f} GFLOP/s (best), {np.median(gemm[1:]) / 1e9:.0f} (median)")
    for name, times in seconds.items():
        best, median = min(times[1:]), float(np.median(times[1:]))
        print(
            f"MLP round, {name}: {best * 1e3:.0f} ms = {flop / best / rate:.0%} of GEMM (best of "
            f"both), {median * 1e3:.0f} ms = {flop / median / np.median(gemm[1:]):.0%} (medians)"
        )


def many_small_clients() -> None:
    N, S = 1000, 60
    problem = flanp.problems.LogisticRegression(l2=0.0)
    engine = Simulator(
        problem, images(N, S), flanp.solvers.FedAvg(eta=0.01), World(np.ones(N)), batch=10
    )
    rng = np.random.default_rng(0)
    for k in (N, 10):
        model, times = engine.start(), []
        for number in range(REPEATS):
            active = rng.choice(N, k, replace=False)
            start = time.perf_counter()
            model = one_round(engine, model, number, active, tau=6, eta=0.01)
            model.w.block_until_ready()
            times.append(time.perf_counter() - start)
        print(f"logistic regression, {k} of {N} clients: {min(times[1:]) * 1e3:.1f} ms a round")


def compilations() -> None:
    before = round_._cache_size()
    history = flanp.simulate(
        flanp.problems.LinearRegression(l2=0.01),
        flanp.data.Synthetic(clients=1000, samples=50, dim=10),
        flanp.Method(
            flanp.solvers.FedGATE(eta=0.05),
            flanp.participation.Growing(n0=1),
            flanp.stopping.FixedRounds(3),
        ),
    )
    sizes = [stage["n"] for stage in history.stages()]
    print(f"FLANP over n = {sizes}: {round_._cache_size() - before} compilation(s)")


def python_overhead() -> None:
    run = flanp.prepare(
        flanp.problems.LinearRegression(),
        flanp.data.Synthetic(clients=2, samples=4, dim=1),
        flanp.Method(
            flanp.solvers.FedGATE(eta=0.05),
            flanp.participation.Everyone(),
            flanp.stopping.Never(),
            flanp.work.Equal(tau=1),
        ),
        max_rounds=1500,
    )
    rows = iter(run)
    for _ in range(500):
        next(rows)
    start = time.perf_counter()
    for _ in range(1000):
        next(rows)
    whole = (time.perf_counter() - start) / 1000
    print(f"a round of no size, with its measurement and record: {whole * 1e3:.2f} ms, all of it")


def memory() -> None:
    done = subprocess.run(
        [sys.executable, __file__, "memory"], capture_output=True, text=True, check=True
    )
    copies = json.loads(done.stdout)["copies"]
    print(f"peak memory of FLANP with FedGATE, 1000 clients: data + {copies:.1f} copies of N x d")


def measure_memory() -> None:
    """Print the peak above what start-up holds and the data, in copies of clients x parameters.

    The peak includes what the compiler needs for a while.
    """
    N = 1000
    two, gate = np.arange(2), flanp.solvers.FedGATE(eta=0.1)
    warm = Simulator(flanp.problems.MLP(), images(2, 60), gate, World(np.ones(2)), batch=10)
    model = one_round(warm, warm.start(), 0, two, tau=2, eta=0.1)
    warm.look(model, two, Look.ACTIVE | Look.WHOLE)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    data = images(N, 60)
    run = flanp.prepare(
        flanp.problems.MLP(),
        data,
        flanp.Method(
            gate,
            flanp.participation.Growing(n0=100),
            flanp.stopping.FixedRounds(2),
            flanp.work.Equal(tau=2, batch=10),
        ),
    )
    for _ in run:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = sum(a.nbytes for a in data.batch)
    copy = N * run.engine.machine.layout.size * 4
    print(json.dumps({"copies": (peak - before - size) / copy}))


if __name__ == "__main__":
    measure_memory() if sys.argv[1:] == ["memory"] else main()
