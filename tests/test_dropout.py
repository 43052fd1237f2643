"""Losses that draw random numbers: by seed, round, client and step, and by nothing else."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flanp import Method, prepare
from flanp.checks import BadInput
from flanp.data import from_clients
from flanp.participation import Everyone, Growing
from flanp.problems import Custom
from flanp.simulator.convolving import count
from flanp.simulator.program import mean_loss
from flanp.solvers import FedAsync, FedAvg, FedGATE
from flanp.speeds import Exponential
from flanp.stopping import FixedRounds, Never
from flanp.streams import DROPOUT, takes_key
from flanp.work import Equal

from small import history_bytes, linear_clients

KEEP = 0.7


def dropped(params, batch, key=None):
    x, y = batch
    if key is not None:
        x = x * jax.random.bernoulli(key, KEEP, x.shape) / KEEP
    return jnp.mean((x @ params - y) ** 2) / 2


PROBLEM = Custom(lambda key: jnp.zeros(3), dropped)


def run(order=range(5), solver=FedGATE(eta=0.05), **options):  # noqa: B008
    clients = linear_clients(5, unequal=True)
    data = from_clients([clients[i] for i in order], [f"c{i}" for i in order])
    method = Method(solver, Growing(2), FixedRounds(3), Equal(tau=4, batch=6))
    return prepare(PROBLEM, data, method, **{"speeds": Exponential(), "max_rounds": 9, **options})


def test_the_same_seed_gives_the_same_bytes_whatever_the_order_of_the_clients(tmp_path):
    first = history_bytes(run(), tmp_path / "first")
    assert first == history_bytes(run(), tmp_path / "again")
    assert first == history_bytes(run(order=[3, 0, 4, 2, 1]), tmp_path / "shuffled")
    assert first != history_bytes(run(seed=1), tmp_path / "other")


def test_a_resumed_run_draws_what_the_uninterrupted_one_does(tmp_path):
    whole = history_bytes(run(), tmp_path / "whole")
    history_bytes(run(max_rounds=4), tmp_path / "cut")
    again = run(resume=tmp_path / "cut")
    assert history_bytes(again, tmp_path / "again") == whole


@pytest.mark.parametrize("devices", [1, 2])
def test_each_step_draws_by_seed_round_client_and_step(devices):
    """A plain loop, with keys made by hand."""
    data = from_clients(linear_clients(3, s=7))
    method = Method(FedAvg(eta=0.1), Everyone(), Never(), Equal(tau=2))
    simulation = prepare(PROBLEM, data, method, max_rounds=3, seed=4, devices=devices)
    list(simulation)
    fold_in, w = jax.random.fold_in, jnp.zeros(3)
    for number in range(3):
        of_round = fold_in(fold_in(jax.random.key(4), DROPOUT), number)
        ends = []
        for i, batch in enumerate(zip(*data.batch, strict=True)):
            w_i = w
            for t in range(2):
                key = fold_in(fold_in(of_round, i), t)
                w_i = w_i - 0.1 * jax.grad(partial(mean_over_rows, batch=batch, key=key))(w_i)
            ends.append(w_i)
        w = jnp.mean(jnp.stack(ends), axis=0)
    np.testing.assert_allclose(simulation.history.params, w, rtol=1e-4)


def mean_over_rows(w, batch, key):
    x, y = batch
    keys = [jax.random.fold_in(key, place) for place in range(len(x))]
    rows = [(x[j : j + 1], y[j : j + 1]) for j in range(len(x))]
    losses = [dropped(w, row, key) for row, key in zip(rows, keys, strict=True)]
    return jnp.mean(jnp.stack(losses))


def test_looks_draw_nothing():
    simulation = run(max_rounds=5)
    rows = list(simulation)
    whole = from_clients(linear_clients(5, unequal=True)).samples()
    loss = float(dropped(simulation.history.params, whole))
    assert rows[-1].loss == pytest.approx(loss, rel=1e-5)


def test_solvers_without_rounds_draw_too():
    data = from_clients(linear_clients(5))
    plain = Custom(PROBLEM.init_fn, lambda params, batch: dropped(params, batch))
    losses = [
        list(prepare(problem, data, Method(FedAsync(eta=0.05)), max_rounds=4))[-1].loss
        for problem in (PROBLEM, PROBLEM, plain)
    ]
    assert losses[0] == losses[1] != losses[2]


def test_a_loss_that_cannot_do_without_a_key_is_refused_in_words():
    def always(params, batch, key):
        x, y = batch
        return jnp.mean((x * jax.random.normal(key, x.shape)) @ params - y)

    data, method = from_clients(linear_clients(2)), Method(FedAvg(eta=0.1))
    with pytest.raises(BadInput, match=r"loss_fn .*always\) failed .* with key = None, which asks"):
        prepare(Custom(lambda key: jnp.zeros(3), always), data, method)


def test_a_key_is_known_by_its_name():
    assert takes_key(dropped)
    assert takes_key(jax.jit(dropped))
    assert not takes_key(lambda params, batch, scale=1.0: 0.0)
    assert PROBLEM.draws
    assert not Custom(lambda key: jnp.zeros(3), lambda p, b: 0.0).draws


def test_convolutions_beside_dropout_are_rewritten():
    def convolved(params, batch, key=None):
        (x,) = batch
        keep = 1.0 if key is None else jax.random.bernoulli(key, KEEP, x.shape)
        return jnp.mean(jax.vmap(lambda row: jnp.convolve(row, params))(keep * x) ** 2)

    batch, w = (jnp.arange(12.0).reshape(3, 4),), jnp.array([1.0, -1.0])
    problem = Custom(lambda key: w, convolved)
    key, rows = jax.random.key(0), jnp.ones(3)
    gradient = jax.grad(lambda w: mean_loss(problem, w, batch, rows, key))
    assert count(gradient, w) == 0
    by_hand = jax.grad(
        lambda w: (
            sum(convolved(w, (batch[0][j : j + 1],), jax.random.fold_in(key, j)) for j in range(3))
            / 3
        )
    )
    np.testing.assert_allclose(gradient(w), by_hand(w), rtol=1e-5)
