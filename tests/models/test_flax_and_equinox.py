"""Models of Flax and Equinox as problems: trained as by hand, refused in words."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import flanp
from flanp import Method, prepare
from flanp.checks import BadInput
from flanp.data import Digits, from_clients
from flanp.participation import Everyone
from flanp.problems import Custom, Equinox, Flax
from flanp.solvers import FedAvg
from flanp.stopping import Never
from flanp.work import Equal

from small import history_bytes

WITHOUT_FLAX = "Flax is not installed: pip install 'flanp[flax]'"
linen = pytest.importorskip("flax.linen", reason=WITHOUT_FLAX)
nnx = pytest.importorskip("flax.nnx", reason=WITHOUT_FLAX)
eqx = pytest.importorskip(
    "equinox", reason="Equinox is not installed: pip install 'flanp[equinox]'"
)

CROSS_ENTROPY = optax.softmax_cross_entropy_with_integer_labels
DIGITS = Digits(clients=4, samples=20)
METHOD = Method(FedAvg(eta=0.1), Everyone(), Never(), Equal(tau=2, batch=8))


class LinenNet(linen.Module):
    drop: float = 0.0

    @linen.compact
    def __call__(self, x, train: bool):
        x = linen.relu(linen.Dense(9)(x))
        return linen.Dense(10)(linen.Dropout(self.drop)(x, deterministic=not train))


class NNXNet(nnx.Module):
    def __init__(self, drop=0.0, *, rngs):
        self.layers = nnx.List([nnx.Linear(64, 9, rngs=rngs), nnx.Linear(9, 10, rngs=rngs)])
        self.drop = nnx.Dropout(drop, rngs=rngs)

    def __call__(self, x):
        return self.layers[1](self.drop(nnx.relu(self.layers[0](x))))


class EquinoxNet(eqx.Module):
    layers: tuple
    drop: eqx.nn.Dropout

    def __init__(self, drop=0.0, *, key):
        first, second = jax.random.split(key)
        self.layers = (eqx.nn.Linear(64, 9, key=first), eqx.nn.Linear(9, 10, key=second))
        self.drop = eqx.nn.Dropout(drop)

    def __call__(self, x, key):
        x = self.drop(jax.nn.relu(self.layers[0](x)), key=key)
        return self.layers[1](x)


def of_linen(drop):
    return Flax(LinenNet(drop), CROSS_ENTROPY)


def of_nnx(drop):
    return Flax(partial(NNXNet, drop), CROSS_ENTROPY)


def of_equinox(drop):
    return Equinox(partial(EquinoxNet, drop), CROSS_ENTROPY)


ALL = pytest.mark.parametrize("make", [of_linen, of_nnx, of_equinox])


def by_hand(params, batch):
    """The same network, of its four arrays in the order of their sizes."""
    b_1, b_2, W_2, W_1 = sorted(jax.tree.leaves(params), key=lambda leaf: leaf.size)
    W_1, W_2 = (W if W.shape in ((64, 9), (9, 10)) else W.T for W in (W_1, W_2))
    x, y = batch
    return CROSS_ENTROPY(jax.nn.relu(x @ W_1 + b_1) @ W_2 + b_2, y).mean()


@ALL
def test_a_run_is_that_of_the_same_network_by_hand(make):
    problem = make(0.0)
    run = prepare(problem, DIGITS, METHOD, max_rounds=4)
    rows = list(run)
    start = problem.init(jax.random.fold_in(jax.random.key(0), 0), DIGITS.load(0))
    theirs = list(prepare(Custom(lambda key: start, by_hand), DIGITS, METHOD, max_rounds=4))
    assert [row.loss for row in rows] == pytest.approx([row.loss for row in theirs], rel=1e-5)
    assert rows[-1].loss < rows[0].loss


@ALL
def test_dropout_is_in_local_steps_and_not_in_looks(make, tmp_path):
    runs = [prepare(make(drop), DIGITS, METHOD, max_rounds=3) for drop in (0.5, 0.5, 0.0)]
    saved = [history_bytes(run, tmp_path / str(i)) for i, run in enumerate(runs)]
    assert saved[0] == saved[1]
    first, _, without = (run.history.column("loss") for run in runs)
    assert first[0] == without[0]  # a look at the same start
    assert first[-1] != without[-1]


@ALL
def test_rows_drop_apart_and_by_key(make):
    problem = make(0.5)
    assert problem.draws
    params = problem.init(jax.random.key(1), DIGITS.load(0))
    x = jnp.asarray(DIGITS.load(0).batch[0][0, :1])
    with_key = [problem.outputs(params, x, jax.random.key(i)) for i in (0, 0, 1)]
    np.testing.assert_array_equal(with_key[0], with_key[1])
    assert (with_key[0] != with_key[2]).any()
    np.testing.assert_array_equal(problem.outputs(params, x), problem.outputs(params, x))


@ALL
def test_a_loss_may_be_a_mean_or_one_number_a_row(make):
    rows = make(0.0)
    mean = type(rows)(rows.model, lambda outputs, y: CROSS_ENTROPY(outputs, y).mean())
    data = DIGITS.load(0)
    params = rows.init(jax.random.key(0), data)
    batch = tuple(jnp.asarray(a[0]) for a in data.batch)
    assert rows.loss(params, batch) == pytest.approx(mean.loss(params, batch))
    assert rows.loss(params, batch).shape == ()


@ALL
def test_a_metric_sees_outputs_and_targets(make):
    problem = make(0.0)
    accuracy = problem.metric("accuracy", lambda z, y: z.argmax(axis=-1) == y, True)
    history = flanp.simulate(problem, DIGITS, METHOD, max_rounds=8, metrics=[accuracy])
    x, y = DIGITS.load(0).test
    by_hand = (np.asarray(problem.outputs(history.params, x)).argmax(axis=-1) == y).mean()
    assert history.rows[-1].metrics["accuracy"] == pytest.approx(by_hand, abs=0.005)


def test_modules_that_are_given_start_from_their_own_parameters():
    data = DIGITS.load(0)
    ours = NNXNet(rngs=nnx.Rngs(7))
    params = Flax(ours, CROSS_ENTROPY).init(jax.random.key(0), data)
    np.testing.assert_array_equal(params["layers"][0]["kernel"], ours.layers[0].kernel[...])
    module = EquinoxNet(key=jax.random.key(7))
    params = Equinox(module, CROSS_ENTROPY).init(jax.random.key(0), data)
    np.testing.assert_array_equal(params.layers[0].weight, module.layers[0].weight)


def test_many_numbered_layers_keep_their_places():
    class Deep(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([nnx.Linear(1, 1, rngs=rngs) for _ in range(12)])

        def __call__(self, x):
            return sum(i * layer(x) for i, layer in enumerate(self.layers))

    model = Deep(rngs=nnx.Rngs(0))
    problem = Flax(model, optax.squared_error)
    data = from_clients([(np.ones((3, 1), np.float32), np.ones((3, 1), np.float32))])
    params = problem.init(jax.random.key(0), data)
    np.testing.assert_allclose(problem.outputs(params, jnp.ones((1, 1))), model(jnp.ones((1, 1))))


class LinenNorm(linen.Module):
    @linen.compact
    def __call__(self, x, train: bool):
        return linen.BatchNorm(use_running_average=not train)(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Flax(LinenNorm(), CROSS_ENTROPY), "the model keeps 'batch_stats', which no grad"),
        (
            lambda: Flax(lambda rngs: nnx.BatchNorm(64, rngs=rngs), CROSS_ENTROPY),
            "the model keeps 'mean', which no gradient trains .* GroupNorm or LayerNorm",
        ),
        (
            lambda: Equinox(lambda key: eqx.nn.BatchNorm(64, "rows", mode="batch"), CROSS_ENTROPY),
            "the model keeps a state",
        ),
        (lambda: Flax(3, CROSS_ENTROPY), "model = 3: it must be a Flax module"),
        (lambda: Flax(lambda rngs: 3, CROSS_ENTROPY), "it must be what makes an nnx module"),
        (lambda: Equinox(3, CROSS_ENTROPY), "model = 3: it must be an Equinox module"),
        (lambda: Equinox(lambda key: 3, CROSS_ENTROPY), "it must be what makes an Equinox module"),
        (lambda: Flax(LinenNet(), 3), "loss_fn = 3: it must be a function"),
        (
            lambda: Equinox(lambda key: Counting(jnp.arange(3)), CROSS_ENTROPY),
            "an array of type int32, which cannot be trained",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_in_words(make, message):
    with pytest.raises(BadInput, match=message):
        prepare(make(), DIGITS, METHOD)


class Counting(eqx.Module):
    table: jax.Array

    def __call__(self, x):
        return x


def test_data_must_be_inputs_and_targets():
    data = from_clients([(np.ones((3, 64), np.float32),)])
    with pytest.raises(BadInput, match="needs inputs and targets; the data has 1 arrays"):
        prepare(of_linen(0.0), data, METHOD)
