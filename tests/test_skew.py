"""Data that differ from client to client: in number, in kind, and with their speed."""

import numpy as np
import pytest

from flanp.checks import BadInput
from flanp.data import Apart, Digits, Synthetic, Unequal
from flanp.speeds import Uniform
from flanp.streams import Stream, generator

RNG = np.random.default_rng


def test_unequal_hands_hold_everything_once_and_nobody_nothing():
    hands = Unequal(sigma=1.5).deal(np.zeros(300), 40, RNG(1))
    assert sorted(np.concatenate(hands).tolist()) == list(range(300))
    sizes = [len(hand) for hand in hands]
    assert min(sizes) >= 1
    assert max(sizes) > 4 * np.median(sizes)
    equal = [len(hand) for hand in Unequal(sigma=0.0).deal(np.zeros(300), 40, RNG(1))]
    assert max(equal) - min(equal) <= 1


def test_the_last_clients_hold_the_last_labels_alone():
    y = np.arange(500) % 10
    hands = Apart(share=0.3, labels=3).deal(y, 10, RNG(0))
    assert sorted(np.concatenate(hands).tolist()) == list(range(500))
    assert {*np.concatenate([y[h] for h in hands[:7]]).tolist()} == set(range(7))
    assert {*np.concatenate([y[h] for h in hands[7:]]).tolist()} == {7, 8, 9}
    with pytest.raises(BadInput, match="fewer than the 10 labels"):
        Apart(labels=10).deal(y, 10, RNG(0))


def test_speeds_in_order_make_them_the_slow_ones():
    ids = tuple(str(i) for i in range(10))
    T = Uniform(in_order=True).seconds_of(ids, generator(3, Stream.SPEEDS))
    assert (np.diff(T) > 0).all()
    drawn = Uniform().seconds_of(ids, generator(3, Stream.SPEEDS))
    assert sorted(drawn.tolist()) == T.tolist()
    y = Digits(clients=10, split=Apart()).load(3).batch[1]
    assert y[:7].max() == 6


def minimiser(data, i):
    x, y = (a[i][data.weights[i] > 0] for a in data.batch)
    return np.linalg.lstsq(x, y, rcond=None)[0]


def test_linear_data_differ_as_asked():
    plain = Synthetic(clients=10, samples=400, dim=3, noise=0.0)
    one = minimiser(plain.load(2), 0)
    np.testing.assert_allclose([minimiser(plain.load(2), i) for i in range(10)], [one] * 10)
    shifted = Synthetic(clients=10, samples=400, dim=3, noise=0.0, shift=0.5).load(2)
    own = np.array([minimiser(shifted, i) for i in range(10)])
    assert 0.2 < (own - one).std() < 0.9
    apart = Synthetic(clients=10, samples=400, dim=3, noise=0.0, shift=1.0, apart=0.3).load(2)
    own = np.array([minimiser(apart, i) for i in range(10)])
    np.testing.assert_allclose(own[:7], [one] * 7, atol=1e-9)
    np.testing.assert_allclose(own[7:], [own[7]] * 3, atol=1e-9)
    assert np.abs(own[7] - one).max() > 0.1


def test_linear_data_of_unequal_size_keep_their_samples():
    data = Synthetic(clients=10, samples=40, dim=3, spread=1.0).load(2)
    assert data.s.sum() == 400
    assert data.s.max() > 2 * data.s.min()
    rows = np.sort(data.samples()[1])
    np.testing.assert_array_equal(rows, np.sort(Synthetic(10, 40, 3).load(2).samples()[1]))
