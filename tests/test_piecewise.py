import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flanp.piecewise import Piecewise, window_of

TIMES = st.floats(-100, 100) | st.integers(-5, 5).map(float)


@given(
    st.lists(st.lists(TIMES, min_size=1, max_size=6, unique=True), min_size=1, max_size=5),
    st.lists(TIMES | st.sampled_from([-math.inf, math.inf]), min_size=1, max_size=20),
    st.randoms(use_true_random=False),
)
def test_the_value_is_that_of_each_clients_latest_row_whatever_was_asked_before(
    changes, asked, random
):
    rows = [(t, i, 100.0 * i + k) for i, times in enumerate(changes) for k, t in enumerate(times)]
    random.shuffle(rows)
    f = Piecewise(*(np.array(column) for column in zip(*rows, strict=True)))
    for t in asked:
        expected = []
        for i in range(len(changes)):
            own = sorted((time, value) for time, client, value in rows if client == i)
            before = [value for time, value in own if time <= t]
            expected.append(before[-1] if before else own[0][1])
        assert f(t).tolist() == expected


def test_rows_of_several_numbers():
    values = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    f = Piecewise(np.array([0.0, 7.0, 0.0]), np.array([1, 1, 0]), values)
    assert f(8.0).tolist() == [[5, 6], [3, 4]]
    assert f(6.0).tolist() == [[5, 6], [1, 2]]


def test_what_was_returned_stays_as_it_was():
    f = Piecewise(np.array([0.0, 1.0]), np.array([0, 0]), np.array([5.0, 6.0]))
    before = f(0.5)
    assert f(1.0).tolist() == [6]
    assert before.tolist() == [5]
    assert not before.flags.writeable


@given(st.integers(0, 10**9), st.floats(1e-9, 1e9), st.floats(0, 1))
def test_windows_begin_where_they_are_said_to(k, length, share):
    assert window_of(k * length, length) == k
    t = (k + share) * length
    found = window_of(t, length)
    assert found * length <= t < (found + 1) * length


def test_windows_of_any_size():
    assert window_of(-1.0, 2.0) == 0
    assert window_of(1e100, 1e-9) > 1e108
