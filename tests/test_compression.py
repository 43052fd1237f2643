"""What compression promises: unbiased, bounded, nothing forgotten, the bytes it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp import Method, simulate
from flanp.compression import QSGD, Exact, TopK
from flanp.data import from_clients
from flanp.participation import Everyone
from flanp.problems import LinearRegression
from flanp.solvers import FedAvg
from flanp.stopping import FixedRounds

from small import linear_clients

vectors = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=40).map(
    lambda values: np.array(values, np.float32)
)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_qsgd_is_unbiased_within_its_variance(bits):
    rng = np.random.default_rng(bits)
    x, compression = rng.standard_normal(30), QSGD(bits=bits)
    sent = np.array([compression.send(x, (), rng.random(30))[0] for _ in range(20_000)])
    error = ((sent - x) ** 2).sum(axis=1).mean()
    assert error <= compression.variance(30) * (x @ x)
    np.testing.assert_allclose(sent.mean(axis=0), x, atol=5 * np.sqrt(error / 20_000))


@given(vectors, st.integers(2, 16), st.integers(0, 2**32 - 1))
def test_qsgd_has_as_many_levels_as_its_bits_tell_apart(x, bits, seed):
    u = np.random.default_rng(seed).random(len(x)).astype(np.float32)
    sent, left = QSGD(bits=bits).send(x, (), u)
    assert left == ()
    assert len(np.unique(sent)) <= 2**bits - 1
    assert np.isfinite(sent).all()
    assert (np.sign(sent) * np.sign(x) >= 0).all()


@given(vectors, vectors, st.floats(0.01, 1.0))
def test_top_k_forgets_nothing(x, error, share):
    n = min(len(x), len(error))
    x, error = x[:n], error[:n]
    compression = TopK(share=share)
    sent, left = compression.send(x, error, x)
    np.testing.assert_array_equal(sent + left, x + error)
    assert (sent != 0).sum() <= max(compression.kept(n), (np.abs(x + error) > 0).sum())
    assert np.abs(left).max() <= np.abs(x + error).max()


@pytest.mark.parametrize("compression", [Exact(), QSGD(bits=5), TopK(share=0.3)])
def test_numpy_and_jax_send_the_same(compression):
    rng = np.random.default_rng(0)
    x, u = rng.standard_normal((2, 50)).astype(np.float32)
    u = np.abs(u) % 1
    error = compression.start(x)
    ours, left = compression.send(x, error, u)
    theirs, left_there = jax.jit(compression.send)(jnp.array(x), error, jnp.array(u))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), left, left_there)


def test_the_bytes_of_messages_are_counted():
    data = from_clients(linear_clients(4))

    def sent(compression):
        solver = FedAvg(eta=0.05, compression=compression)
        method = Method(solver, Everyone(), FixedRounds(3))
        history = simulate(LinearRegression(), data, method, progress=False)
        return [row.sent for row in history.rows]

    assert sent(Exact()) == [0, 48, 96, 144]  # four clients, three numbers of four bytes
    assert sent(QSGD(bits=8)) == [0, 28, 56, 84]  # a byte a number, and the norm
    assert sent(TopK(share=0.3)) == [0, 32, 64, 96]  # a number and its place
