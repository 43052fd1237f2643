"""Convolutions and pooling as matrix products: the same values and gradients as JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from flanp import Method, prepare
from flanp.data import from_clients
from flanp.participation import Everyone
from flanp.problems import Custom
from flanp.simulator import probing
from flanp.simulator.convolving import by_matrices, count
from flanp.simulator.program import mean_loss
from flanp.solvers import FedAvg
from flanp.stopping import Never
from flanp.work import Equal

LETTERS = "DHW"


def compare(f, *args):
    """Compare values and gradients; return how many convolutions and poolings are left."""
    g = by_matrices(f)

    def both(*args):
        out, back = jax.vjp(f, *args)
        weights = jnp.cos(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape)
        ours, ours_back = jax.vjp(g, *args)
        return (out, *back(weights)), (ours, *ours_back(weights))

    for theirs, ours in zip(*jax.jit(both)(*args), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    return count(g, *args)


@st.composite
def convolutions(draw):
    dims = draw(st.integers(1, 3))
    few = st.integers(1, 3)
    each = st.lists(few, min_size=dims, max_size=dims)
    window, strides, dilation, stretched = (draw(each) for _ in range(4))
    size = [draw(st.integers(1, 6)) for _ in range(dims)]
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    features, outputs = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    pads = st.tuples(st.integers(-1, 2), st.integers(-1, 2))
    padding = draw(st.one_of(st.sampled_from(["SAME", "VALID"]), st.tuples(*[pads] * dims)))
    if padding == "SAME":
        stretched = [1] * dims
    letters = LETTERS[-dims:]
    spec = (
        "".join(draw(st.permutations(f"N{letters}C"))),
        "".join(draw(st.permutations(f"{letters}IO"))),
        "".join(draw(st.permutations(f"N{letters}C"))),
    )
    of = dict(zip(letters, size, strict=True)) | {"N": draw(few), "C": features}
    at = dict(zip(letters, window, strict=True)) | {"I": features // groups, "O": outputs}
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = jnp.array(rng.normal(size=[of[letter] for letter in spec[0]]), jnp.float32)
    kernel = jnp.array(rng.normal(size=[at[letter] for letter in spec[1]]), jnp.float32)
    options = {
        "window_strides": strides,
        "padding": padding,
        "lhs_dilation": stretched,
        "rhs_dilation": dilation,
        "dimension_numbers": spec,
        "feature_group_count": groups,
    }
    return x, kernel, options


@settings(max_examples=30)
@given(convolutions())
def test_any_convolution(case):
    x, kernel, options = case
    try:
        f = lambda x, kernel: lax.conv_general_dilated(x, kernel, **options)  # noqa: E731
        out = jax.eval_shape(f, x, kernel)
    except (TypeError, ValueError):  # no such convolution
        return
    if 0 in out.shape:
        return
    assert compare(f, x, kernel) == 0


@st.composite
def poolings(draw):
    dims = draw(st.integers(1, 4))
    few = st.integers(1, 3)
    size = [draw(st.integers(1, 7)) for _ in range(dims)]
    window = [draw(few) for _ in range(dims)]
    strides = [draw(few) for _ in range(dims)]
    pads = st.tuples(st.integers(0, 2), st.integers(0, 2))
    padding = draw(st.one_of(st.sampled_from(["SAME", "VALID"]), st.tuples(*[pads] * dims)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    ties = draw(st.booleans())
    x = rng.integers(-2, 2, size) if ties else rng.normal(size=size)
    return jnp.array(x, jnp.float32), window, strides, padding


@settings(max_examples=30)
@given(poolings(), st.sampled_from(["max", "min", "add"]))
def test_any_pooling_ties_included(case, kind):
    x, window, strides, padding = case
    start = {"max": -jnp.inf, "min": jnp.inf, "add": 0.0}[kind]
    f = lambda x: lax.reduce_window(x, start, getattr(lax, kind), window, strides, padding)  # noqa: E731
    if 0 in jax.eval_shape(f, x).shape or not np.isfinite(np.asarray(f(x))).all():
        return
    assert compare(f, x) == 0


def test_nan_is_not_lost():
    x = jnp.array([[1.0, jnp.nan, 2.0, 3.0]])
    f = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID")  # noqa: E731
    np.testing.assert_array_equal(by_matrices(f)(x), f(x))


def convolve(x, kernel):
    return lax.conv_general_dilated(x[None, :, None], kernel, (1,), "SAME", dimension_numbers=SPEC)


SPEC = ("NHC", "HIO", "NHC")
X, KERNEL = np.arange(6, dtype="f4"), np.arange(3, dtype="f4").reshape(3, 1, 1)


def repeated(x, kernel):
    step = lambda x, _: (jnp.tanh(convolve(x, kernel)[0, :, 0]), x.sum())  # noqa: E731
    return jnp.concatenate(lax.scan(step, x, None, length=3))


def chosen(x, kernel):
    return lax.cond(x[1] > 0, convolve, lambda x, kernel: x[None, :, None] * kernel[0], x, kernel)


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (jax.jit(convolve), X),
        (jax.checkpoint(convolve), X),
        (repeated, X),
        (chosen, X),
        (jax.vmap(convolve, (0, None)), np.stack([X, 2 * X])),
    ],
    ids=["jit", "checkpoint", "scan", "cond", "vmap"],
)
def test_convolutions_inside_of_other_things(f, x):
    assert compare(f, x, KERNEL) == 0


def test_what_cannot_be_rewritten_runs_as_before_with_a_line_that_says_so():
    def looped(x, kernel):
        step = lambda i, x: convolve(x, kernel)[0, :, 0]  # noqa: E731
        return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, step(*c)), (0, x))[1]

    with pytest.warns(UserWarning, match="convolution, or pooling, inside while: .* slower"):
        value = by_matrices(looped)(X, KERNEL)
    np.testing.assert_allclose(value, looped(X, KERNEL), rtol=1e-6)
    grouped = lambda x, k: lax.conv_general_dilated(  # noqa: E731
        x, k, (1,), "SAME", dimension_numbers=SPEC, batch_group_count=2
    )
    x, kernel = jnp.ones((2, 5, 1)), jnp.ones((3, 1, 2))
    with pytest.warns(UserWarning, match="conv_general_dilated with batch_group_count = 2"):
        value = by_matrices(grouped)(x, kernel)
    np.testing.assert_array_equal(value, grouped(x, kernel))


def test_windows_that_are_too_large_are_left_alone():
    long = lambda x: jnp.convolve(x, np.ones(200, "f4"), "same")  # noqa: E731
    x = np.arange(300, dtype="f4")
    with pytest.warns(UserWarning, match="conv_general_dilated with so large a window"):
        np.testing.assert_array_equal(by_matrices(long)(x), long(x))


def test_windows_larger_than_their_input_hold_nothing():
    f = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (9, 2), (1, 1), "VALID")  # noqa: E731
    x = np.ones((4, 4), "f4")
    assert by_matrices(f)(x).shape == f(x).shape == (0, 3)


def test_a_loss_without_convolutions_is_called_as_it_is():
    f = lambda x: jnp.tanh(x).sum()  # noqa: E731
    assert str(jax.make_jaxpr(by_matrices(f))(X)) == str(jax.make_jaxpr(f)(X))


def small_network(params, batch):
    x, y = batch
    h = lax.conv_general_dilated(
        x, params["k"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    h = lax.reduce_window(jax.nn.relu(h), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    z = h.reshape(len(h), -1) @ params["W"]
    return jnp.mean(jax.nn.logsumexp(z, axis=-1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0])


def network(key):
    return {
        "k": 0.3 * jax.random.normal(key, (3, 3, 2, 4)),
        "W": 0.1 * jax.random.normal(key, (4 * 3 * 3, 5)),
    }


def images(N=3, s=8):
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(s, 6, 6, 2)), rng.integers(0, 5, s)) for _ in range(N)]
    return from_clients([(x.astype(np.float32), y) for x, y in rows], classes=5)


def test_what_the_simulator_compiles_holds_no_convolution():
    problem, data = Custom(network, small_network), images()
    batch = tuple(jnp.asarray(a[0]) for a in data.batch)
    gradient = jax.grad(lambda p: mean_loss(problem, p, batch, jnp.ones(8)))
    params = network(jax.random.key(0))
    assert count(lambda p: small_network(p, batch), params) == 2
    assert count(gradient, params) == 0


def test_a_run_takes_the_steps_of_a_plain_loop():
    problem, data = Custom(network, small_network), images()
    method = Method(FedAvg(0.1), Everyone(), Never(), Equal(tau=2))
    run = prepare(problem, data, method, max_rounds=3)
    rows = list(run)
    w = run.engine.params(run.engine.start())
    for _ in range(3):
        ends = []
        for batch in zip(*data.batch, strict=True):
            w_i = w
            for _ in range(2):
                g = jax.grad(small_network)(w_i, batch)
                w_i = jax.tree.map(lambda a, b: a - 0.1 * b, w_i, g)
            ends.append(w_i)
        w = jax.tree.map(lambda *a: sum(a) / len(a), *ends)
    for name, value in run.engine.params(run.state.model).items():
        np.testing.assert_allclose(value, w[name], rtol=0, atol=1e-6)
    assert rows[-1].loss < rows[0].loss


def test_large_looks_are_taken_in_blocks(monkeypatch):
    def rows():
        method = Method(FedAvg(0.1), Everyone(), Never(), Equal(tau=2, batch=4))
        run = prepare(Custom(network, small_network), images(), method, max_rounds=3)
        return list(run), run.engine.machine._sight.block

    whole, all_of_them = rows()
    monkeypatch.setattr(probing, "MOST_NUMBERS", 1)
    one_by_one, block = rows()
    assert block == 1 < all_of_them
    for one, other in zip(one_by_one, whole, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.grad_norm_sq == pytest.approx(other.grad_norm_sq, rel=1e-4)
