"""Layers of Flax and Equinox as matrix products: the same values and gradients as their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flanp.simulator.convolving import by_matrices, count

from test_convolving import compare

WITHOUT_FLAX = "Flax is not installed: pip install 'flanp[flax]'"
linen = pytest.importorskip("flax.linen", reason=WITHOUT_FLAX)
nnx = pytest.importorskip("flax.nnx", reason=WITHOUT_FLAX)
eqx = pytest.importorskip(
    "equinox", reason="Equinox is not installed: pip install 'flanp[equinox]'"
)

SIZES = {1: (9,), 2: (7, 6), 3: (5, 4, 4)}
KEY = jax.random.key(0)


def rows(dims, features=4, leading=(2,)):
    return jax.random.normal(KEY, (*leading, *SIZES[dims], features))


def no_convolution_is_left(f, x, params=()):
    """Compare a layer with itself rewritten, in its values and all its gradients."""
    leaves, structure = jax.tree.flatten(params)

    def layer(x, *leaves):
        return f(x, jax.tree.unflatten(structure, leaves))

    assert count(layer, x, *leaves) > 0
    assert compare(layer, x, *leaves) == 0


def linen_layer(layer, x):
    params = layer.init(KEY, x)
    no_convolution_is_left(lambda x, params: layer.apply(params, x), x, params)


def nnx_layer(layer, x):
    graph, params = nnx.split(layer)
    no_convolution_is_left(lambda x, params: nnx.merge(graph, params)(x), x, params)


def equinox_layer(layer, x):
    """Equinox's layers are of one row, with its channels first."""
    arrays, rest = eqx.partition(layer, eqx.is_inexact_array)
    no_convolution_is_left(
        lambda x, arrays: jax.vmap(eqx.combine(arrays, rest))(x), jnp.moveaxis(x, -1, 1), arrays
    )


@st.composite
def options(draw):
    dims = draw(st.integers(1, 3))
    of_each = st.tuples(*[st.integers(1, 2)] * dims)
    chosen = {
        "kernel_size": draw(st.tuples(*[st.integers(1, 3)] * dims)),
        "strides": draw(of_each),
        "kernel_dilation": draw(of_each),
        "padding": draw(st.sampled_from(["SAME", "VALID"])),
        "feature_group_count": draw(st.sampled_from([1, 2])),
    }
    return dims, chosen


@settings(max_examples=8)
@given(options())
def test_convolutions_of_linen_and_nnx(case):
    dims, chosen = case
    linen_layer(linen.Conv(6, **chosen), rows(dims))
    nnx_layer(nnx.Conv(4, 6, **chosen, rngs=nnx.Rngs(0)), rows(dims))


@settings(max_examples=4)
@given(options())
def test_transposed_convolutions_of_linen_and_nnx(case):
    dims, chosen = case
    del chosen["feature_group_count"]
    linen_layer(linen.ConvTranspose(3, **chosen), rows(dims))
    nnx_layer(nnx.ConvTranspose(4, 3, **chosen, rngs=nnx.Rngs(0)), rows(dims))


@settings(max_examples=8)
@given(options())
def test_convolutions_of_equinox(case):
    dims, chosen = case
    layer = getattr(eqx.nn, f"Conv{dims}d")(
        4,
        6,
        chosen["kernel_size"],
        chosen["strides"],
        padding=1,
        dilation=chosen["kernel_dilation"],
        groups=chosen["feature_group_count"],
        key=KEY,
    )
    equinox_layer(layer, rows(dims))


@pytest.mark.parametrize("dims", SIZES)
def test_transposed_convolutions_of_equinox(dims):
    layer = getattr(eqx.nn, f"ConvTranspose{dims}d")(4, 3, 3, stride=2, padding=1, key=KEY)
    equinox_layer(layer, rows(dims))


@pytest.mark.parametrize("dims", SIZES)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("pool", [linen.max_pool, linen.avg_pool, nnx.min_pool])
def test_pooling_of_flax(pool, dims, padding):
    window = (2,) * dims
    no_convolution_is_left(lambda x, _: pool(x, window, window, padding), rows(dims))


@pytest.mark.parametrize("dims", SIZES)
@pytest.mark.parametrize("kind", ["Max", "Avg"])
def test_pooling_of_equinox(kind, dims):
    layer = getattr(eqx.nn, f"{kind}Pool{dims}d")(kernel_size=3, stride=2, padding=1)
    equinox_layer(layer, rows(dims))


def test_depthwise_convolutions_and_those_of_several_batch_dimensions():
    linen_layer(linen.Conv(8, (3, 3), feature_group_count=4), rows(2))
    linen_layer(linen.Conv(5, (3, 3), padding="CIRCULAR"), rows(2, leading=(2, 3)))
    nnx_layer(nnx.Conv(4, 5, (3,), padding="CAUSAL", rngs=nnx.Rngs(0)), rows(1))


def test_adaptive_pooling_has_nothing_to_rewrite():
    pool, x = eqx.nn.AdaptiveAvgPool2d(2), rows(2)
    assert count(pool, x[0]) == 0
    np.testing.assert_array_equal(by_matrices(pool)(x[0]), pool(x[0]))
