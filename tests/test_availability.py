import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp.availability import Always, FromTrace, Intervals, Random, read_intervals
from flanp.checks import BadInput
from flanp.config.building import build_part

HEADER = "client,from,until\n"


def ids(N):
    return [str(i) for i in range(N)]


def test_everyone_is_always_there():
    assert Always().presence(ids(3), 1.0, 0) is None
    assert Random(away=0.0).presence(ids(3), 1.0, 0) is None
    assert Always().dropouts == 0


def test_a_share_is_away_in_each_window():
    here = Random(away=0.2, period=100.0).presence(ids(2000), 2.0, 3)
    windows = np.array([here.there(200.0 * k) for k in range(100)])
    np.testing.assert_allclose(windows.mean(axis=1), 0.8, atol=0.05)
    assert windows.mean() == pytest.approx(0.8, abs=0.005)
    assert (windows[1:] & windows[:-1]).mean() == pytest.approx(0.64, abs=0.01)
    assert (here.there(0.0) == here.there(199.9)).all()
    assert not here.there(0.0).flags.writeable


@given(
    st.floats(0.01, 0.95),
    st.floats(1, 1e6),
    st.floats(1e-6, 1e6),
    st.integers(0, 2**32 - 1),
    st.lists(st.floats(0, 300), min_size=1, max_size=5),
)
def test_random_presence_is_what_its_windows_say(away, period, step, seed, asked):
    here = Random(away, period).presence(ids(7), step, seed)
    length = period * step
    for window in asked:
        t = window * length
        there, gone, back = here.there(t), here.gone(t), here.back(t)
        k = max(k for k in range(302) if k * length <= t)
        for i in range(7):
            ahead = range(k + 1, k + 900)
            states = (here.there(j * length)[i] for j in ahead)
            end = next((j for j, s in zip(ahead, states, strict=True) if s != there[i]), None)
            if end is not None:
                assert gone[i] == (end * length if there[i] else t)
                assert back[i] == (t if there[i] else end * length)


@given(st.floats(0.01, 0.95), st.lists(st.floats(0, 1e5), min_size=1, max_size=10), st.randoms())
def test_presence_depends_on_the_time_alone(away, times, random):
    one, other = (Random(away, 10.0).presence(ids(5), 1.0, 0) for _ in range(2))
    answers = {
        t: (one.there(t).tolist(), one.gone(t).tolist(), one.back(t).tolist()) for t in times
    }
    random.shuffle(times)
    for t in times:
        again = other.there(t).tolist(), other.gone(t).tolist(), other.back(t).tolist()
        assert again == answers[t]


@given(st.floats(1e-6, 0.95), st.floats(1e-100, 1e100), st.floats(0, 1e100))
def test_a_state_ends_after_now_at_any_scale(away, step, t):
    here = Random(away, 1.0).presence(ids(5), step, 0)
    assert (here.until(t) > t).all()
    assert (np.maximum(here.gone(t), here.back(t)) == here.until(t)).all()


def test_a_look_ahead_ends():
    """Nobody is found to go within it, and nobody waits for ever."""
    here = Random(away=1e-9, period=1.0).presence(ids(5), 1.0, 0)
    assert here.gone(10.5).tolist() == [1024] * 5
    here = Random(away=0.95, period=1.0).presence(ids(5000), 1.0, 0)
    assert here.back(0.0).max() < 1000


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "there.csv"
        path.write_text(text)
        return path

    return write


def test_recorded_presence(write):
    path = write(HEADER + "a,0,10\na,20,30\nb,5,\na,30,35\n")
    here = FromTrace(path, dropouts=0.1).presence(["b", "a"], 1.0, 0)
    inf = math.inf
    for t, there, gone, back in [
        (0.0, [False, True], [0, 10], [5, 0]),
        (5.0, [True, True], [inf, 10], [5, 5]),
        (10.0, [True, False], [inf, 10], [10, 20]),
        (34.0, [True, True], [inf, 35], [34, 34]),
        (35.0, [True, False], [inf, 35], [35, inf]),
        (1.0, [False, True], [1, 10], [5, 1]),
    ]:
        assert here.there(t).tolist() == there
        assert here.gone(t).tolist() == gone
        assert here.back(t).tolist() == back


SPANS = st.lists(st.integers(0, 50), max_size=8, unique=True).map(
    lambda t: list(zip(sorted(t)[::2], sorted(t)[1::2], strict=False))
)


@given(st.lists(SPANS, min_size=1, max_size=5), st.lists(st.integers(-5, 110), min_size=1))
def test_intervals_are_what_a_search_finds(clients, halves):
    here = Intervals([[(float(a), float(b)) for a, b in spans] for spans in clients])
    for t in (half / 2 for half in halves):
        there = [any(a <= t < b for a, b in spans) for spans in clients]
        edges = [sorted(edge for span in spans for edge in span if edge > t) for spans in clients]
        assert here.there(t).tolist() == there
        assert here.until(t).tolist() == [e[0] if e else math.inf for e in edges]


def test_lines_that_go_on_are_one(write):
    text = "Node;Start;End\na;0;1\na;1;2.5\na;3;\n"
    assert read_intervals(write(text)) == {"a": [(0, 2.5), (3, math.inf)]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it must hold a header, such as 'client,from,until', and lines"),
        ("client,from\na,0\n", "no column 'until'; its first line, 'client,from', must name"),
        (HEADER + "a,0\n", "line 2: 2 cells; the header has 3"),
        (HEADER + "a,,5\n", "line 2: from: the cell is empty"),
        (HEADER + "a,0,noon\n", "line 2: until: 'noon' is not a number"),
        (HEADER + "a,5,5\n", "line 2: from 5.0 until 5.0: it must begin before it ends"),
        (HEADER + "a,5,4\n", "line 2: from 5.0 until 4.0: it must begin before it ends"),
        (
            HEADER + "a,0,5\nb,0,5\na,4,6\n",
            "line 4: client 'a' is there from 4.0, and in an earlier line until 5.0; sort its",
        ),
        (HEADER + "a,6,8\na,0,5\n", "line 3: client 'a' is there from 0.0, and in an earlier line"),
        (HEADER + "a,0,\na,7,8\n", "line 3: client 'a' is there from 7.0, and in an earlier line"),
        (HEADER + "a,0,\n", "no line for client 'b'; add a line 'client,from,until' for each"),
        (HEADER + "a,0,\nb,0,\nc,0,\n", "client 'c' not among the clients of the data"),
    ],
)
def test_bad_traces_are_refused_in_a_line(write, text, words):
    with pytest.raises(BadInput) as error:
        FromTrace(write(text)).presence(["a", "b"], 1.0, 0)
    assert words in str(error.value)
    assert "there.csv" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Random(away=0.96), "away = 0.96: it must be a number from 0 to 0.95"),
        (lambda: Random(period=0.5), "period = 0.5: it must be a number from 1 to"),
        (lambda: Always(dropouts=1.0), "dropouts = 1.0: it must be a number from 0 to 0.95"),
        (lambda: FromTrace(3), "path = 3: it must be a path"),
    ],
)
def test_bad_availability_is_refused(make, words):
    with pytest.raises(BadInput) as error:
        make()
    assert words in str(error.value)


def test_availability_in_a_configuration(tmp_path):
    (tmp_path / "there.csv").write_text(HEADER)
    table = {"name": "FromTrace", "path": "there.csv", "dropouts": 0.2}
    built = build_part("availability", table, "availability", tmp_path)
    assert built == FromTrace(tmp_path / "there.csv", dropouts=0.2)
    assert build_part("availability", "random", "availability", tmp_path) == Random()
