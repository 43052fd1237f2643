"""The simulator equals the readable single-file version."""

import jax
import numpy as np
import pytest

from flanp.data import from_clients
from flanp.method import Method
from flanp.participation import Growing
from flanp.problems import LinearRegression
from flanp.simulator.engine import Simulator
from flanp.simulator.sampling import sample_order
from flanp.simulator.world import World
from flanp.solvers import FedGATE
from flanp.stopping import StatisticalAccuracy
from flanp.work import Equal

from small import rounds_of

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def draw_clients(N, s, d, rng, unequal=False):
    sizes = rng.integers(1, 2 * s, N) if unequal else np.full(N, s)
    w = rng.standard_normal(d)
    xs = [rng.standard_normal((size, d)) for size in sizes]
    return [(x, x @ w + 0.5 * rng.standard_normal(len(x))) for x in xs]


def batches(seed, sizes, batch):
    """Return rows(i, k, t) of the oracle: the simulator's order of the samples."""

    def rows(i, k, t):
        per_epoch = -(-sizes[i] // batch)
        epoch, place = divmod(t, per_epoch)
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), k)
        room = -(-max(sizes) // batch) * batch
        order = np.asarray(sample_order(key, i, epoch, sizes[i], room=room))
        return order[: sizes[i]][place * batch : (place + 1) * batch]

    return rows


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize(
    ("N", "n0", "growth", "batch", "unequal"),
    [
        (1, 1, 2, None, False),
        (2, 1, 2, 4, False),
        (7, 2, 1.5, None, True),
        (7, 3, 3, 5, True),
        (37, 5, 2, None, False),
        (37, 1, 3, 8, True),
    ],
)
def test_equals_the_single_file_version(oracle, precision, N, n0, growth, batch, unequal):
    for seed in range(2):
        rng = np.random.default_rng([seed, N])
        clients = draw_clients(N, s=30, d=3, rng=rng, unequal=unequal)
        T = rng.exponential(size=N)
        mu, c = 0.5, 2.0
        settings = {"eta": 0.05, "gamma": 0.8}
        _, expected = oracle.flanp(
            oracle.grad_linear,
            clients,
            T,
            np.zeros(3),
            tau=7,
            n0=n0,
            growth=growth,
            mu=mu,
            c=c,
            rows=None if batch is None else batches(seed, [len(y) for _, y in clients], batch),
            max_rounds=60,
            **settings,
        )
        method = Method(
            FedGATE(**settings),
            Growing(n0, growth),
            StatisticalAccuracy(mu, c),
            Equal(tau=7, batch=batch),
        )
        engine = Simulator(
            LinearRegression(),
            from_clients(clients),
            method.solver,
            World(T, seed=seed),
            batch=batch,
            seed=seed,
            precision=precision,
        )
        got = [
            (len(state.active), arrays["w"], state.clock.time)
            for state, arrays in rounds_of(engine, method, seed, rounds=60)
        ]
        assert [n for n, _, _ in got] == [n for n, _, _ in expected]
        for (_, w, time), (_, w_expected, time_expected) in zip(got, expected, strict=True):
            np.testing.assert_allclose(w, w_expected, rtol=0, atol=TOLERANCE[precision])
            assert time == pytest.approx(time_expected, rel=1e-12)
