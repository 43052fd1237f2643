"""The bundled convolutional networks: their shapes, and how they see data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp.checks import BadInput
from flanp.config import build
from flanp.data import Digits, from_clients
from flanp.problems import CNN, LeNet
from flanp.problems.convolutional import as_images, cnn_logits, lenet_logits
from flanp.simulator.convolving import count
from flanp.simulator.program import mean_loss


def images(*shape, rows=4, classes=10):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, *shape)).astype(np.float32)
    return from_clients([(x, np.arange(rows) % classes)], classes=classes)


def shapes(problem, data):
    return [layer["W"].shape for layer in problem.init(jax.random.key(0), data)]


def test_the_layers_of_a_cnn():
    assert shapes(CNN(), images(784)) == [(3, 3, 1, 16), (3, 3, 16, 32), (7 * 7 * 32, 10)]
    assert shapes(CNN((4,), 5), images(3072)) == [(5, 5, 3, 4), (16 * 16 * 4, 10)]
    assert shapes(CNN(), Digits(clients=2).load())[-1] == (2 * 2 * 32, 10)


@pytest.mark.parametrize("shape", [(784,), (28, 28), (28, 28, 1), (32, 32, 1), (64,)])
def test_lenet_is_the_published_network(shape):
    """61,706 parameters: 156 + 2,416 + 48,120 + 10,164 + 850."""
    params = LeNet().init(jax.random.key(0), images(*shape))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 61_706
    assert lenet_logits(params, jnp.zeros((3, *shape))).shape == (3, 10)


@given(st.integers(1, 9), st.integers(1, 3))
def test_flat_rows_are_the_images_that_were_flattened(side, rows):
    rng = np.random.default_rng(side)
    planes = rng.normal(size=(rows, 3, side, side)).astype(np.float32)
    np.testing.assert_array_equal(
        as_images(jnp.asarray(planes.reshape(rows, -1))), planes.transpose(0, 2, 3, 1)
    )
    grey = planes[:, 0]
    for x in (grey, grey.reshape(rows, -1), grey[..., None]):
        np.testing.assert_array_equal(as_images(jnp.asarray(x)), grey[..., None])


@pytest.mark.parametrize(
    ("problem", "logits"), [(CNN(), cnn_logits), (LeNet(l2=0.1), lenet_logits)]
)
def test_losses_start_near_chance_and_hold_no_convolution_in_the_simulator(problem, logits):
    data = Digits(clients=2).load()
    params = problem.init(jax.random.key(0), data)
    batch = tuple(jnp.asarray(a[:3]) for a in data.test)
    assert logits(params, batch[0]).shape == (3, 10)
    zero = jax.tree.map(jnp.zeros_like, params)
    assert problem.loss(zero, batch) == pytest.approx(np.log(10))
    gradient = jax.grad(lambda p: mean_loss(problem, p, batch, jnp.ones(3)))
    assert count(gradient, params) == 0


@pytest.mark.parametrize("name", ["CNN", "LeNet"])
def test_a_configuration_names_them(name, tmp_path):
    tables = {
        "max_rounds": 3,
        "problem": {"name": name},
        "data": {"name": "Digits", "clients": 2, "samples": 20},
        "solver": {"name": "FedAvg", "eta": 0.1},
    }
    config = build(tables, tmp_path)
    rows = list(config.simulation(*config.methods.values()))
    assert rows[-1].loss < rows[0].loss
    assert 0 <= rows[-1].metrics["test_error"] <= 1


@pytest.mark.parametrize(
    ("problem", "data", "message"),
    [
        (CNN(), images(5), r"rows of shape \[5\], which are no images"),
        (LeNet(), images(2, 2, 2, 2), "which are no images"),
        (CNN((2, 2, 2, 2)), images(64), r"channels = \(2, 2, 2, 2\): it must be fewer"),
        (LeNet(), from_clients([(np.ones((2, 64)), np.ones(2))]), "needs labels"),
    ],
)
def test_what_they_cannot_see_is_refused_in_words(problem, data, message):
    with pytest.raises(BadInput, match=message):
        problem.init(jax.random.key(0), data)


def test_channels_and_windows_have_ranges():
    for bad in (lambda: CNN(()), lambda: CNN((0,)), lambda: CNN(kernel=0), lambda: LeNet(-1.0)):
        with pytest.raises(BadInput):
            bad()


def test_channels_first_are_no_image_of_many_channels():
    with pytest.raises(BadInput, match="channels first: move them last"):
        LeNet().init(jax.random.key(0), images(3, 32, 32))
