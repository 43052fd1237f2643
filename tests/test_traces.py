import bisect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp.checks import BadInput
from flanp.planning import plan
from flanp.speeds import Measured, Trace, read_trace

HEADER = "client,time,seconds,kbits\n"


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "trace.csv"
        path.write_text(text)
        return path

    return write


def test_values_hold_until_the_next_line_and_the_last_ones_stay(write):
    path = write(HEADER + "a,0,1,100\na,10,2,50\nb,-5,3,70\nb,10,4,80\nb,20,5,90\n")
    T = Trace(path).course(["b", "a"])
    at = [0, 9.99, 10, 15, 20, 1e9, 12, 3]
    expected = [[3, 1], [3, 1], [4, 2], [4, 2], [5, 2], [5, 2], [4, 2], [3, 1]]
    assert [T(t).tolist() for t in at] == expected
    assert Trace(path).draw(["a", "b"], np.random.default_rng(0)).tolist() == [1, 3]
    kbits = read_trace(path).steps("kbits", ["a", "b"])
    assert [kbits(t).tolist() for t in (0, 10, 20)] == [[100, 70], [50, 80], [50, 90]]


def test_bandwidths_or_speeds_may_lack(write):
    only = write("client,time,seconds\na,0,1\n")
    assert Trace(only).course(["a"])(3.0).tolist() == [1]
    with pytest.raises(BadInput, match="no column 'kbits'; add it to the header"):
        read_trace(only).steps("kbits", ["a"])
    only = write("client,time,kbits\na,0,1\n")
    assert read_trace(only).steps("kbits", ["a"])(3.0).tolist() == [1]
    with pytest.raises(BadInput, match="no column 'seconds'; add it to the header"):
        Trace(only).course(["a"])


@pytest.mark.parametrize(
    "text",
    [
        "device;time;kbps;seconds per step\na;0;7;1.5\n",
        "Time,Seconds,Client ID,battery,kbit/s\n0,1.5,a,full,7\n",
        "\ufeffclient\ttimestamp\tT_i\tkbits\na\t0\t1.5\t7\n\t\t\t\n",
    ],
)
def test_headers_in_other_dress(write, text):
    trace = read_trace(write(text))
    assert trace.steps("seconds", ["a"])(0.0).tolist() == [1.5]
    assert trace.steps("kbits", ["a"])(0.0).tolist() == [7]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it must hold a header, such as 'client,time,seconds,kbits', and lines"),
        (HEADER, "it must hold a header"),
        ("a,0,1,100\nb,0,1,100\n", "no column 'client'; its first line, 'a,0,1,100', must name"),
        ("client,seconds\na,1\nb,1\n", "no column 'time'; its first line"),
        ("client,t,seconds\na,0,1\n", "no column 'time'"),
        ("client,time\na,0\nb,0\n", "it has neither a column 'seconds' nor one 'kbits'"),
        ("client,time,seconds,Seconds\na,0,1,1\n", "'seconds', 'Seconds': give 'seconds' one col"),
        (HEADER + "a,0,1\n", "line 2: 3 cells; the header has 4"),
        (HEADER + ",0,1,100\n", "line 2: the client has no name"),
        (HEADER + "a,0,1,100\nb,3,1,100\n", "line 3: client 'b' begins at time 3.0, a gap at the"),
        (
            HEADER + "a,0,1,1\nb,0,1,1\na,5,1,1\na,4,1,1\n",
            "line 5: client 'a' is at time 4.0 after time 5.0; sort its lines by time",
        ),
        (HEADER + "a,0,1,1\na,0,2,1\n", "line 3: client 'a' is at time 0.0 after time 0.0"),
        (HEADER + "a,0,0,1\n", "line 2: seconds = 0.0: it must be a number from 1e-09 to"),
        (HEADER + "a,0,-2,1\n", "line 2: seconds = -2.0: it must be a number"),
        (HEADER + "a,0,1,1\nb,0,1,-7\n", "line 3: kbits = -7.0: it must be a number from 0.001"),
        (HEADER + "a,0,1,0\n", "line 2: kbits = 0.0: it must be a number from 0.001"),
        (HEADER + "a,0,nan,1\n", "line 2: seconds: 'nan' is not a number"),
        (HEADER + "a,0,1,inf\n", "line 2: kbits: 'inf' is not a number"),
        (HEADER + "a,0,1e999,1\n", "line 2: seconds: 1e999 is too large"),
        (HEADER + "a,soon,1,1\n", "line 2: time: 'soon' is not a number"),
        (HEADER + "a,,1,1\n", "line 2: time: the cell is empty"),
        (HEADER + "a,0,1,1\n", "no line for client 'b'; add a line 'client,time,seconds' for each"),
        (
            HEADER + "a,0,1,1\nb,0,1,1\nbb,0,1,1\n",
            "client 'bb' not among the clients of the data; did you mean 'b'",
        ),
    ],
)
def test_bad_traces_are_refused_in_a_line(write, text, words):
    with pytest.raises(BadInput) as error:
        Trace(write(text)).draw(["a", "b"], np.random.default_rng(0))
    assert words in str(error.value)
    assert "trace.csv" in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_files(tmp_path):
    with pytest.raises(BadInput, match="there is no such file"):
        read_trace(tmp_path / "nothing.csv")
    with pytest.raises(BadInput, match="it is a folder"):
        read_trace(tmp_path)


def test_a_file_is_read_again_when_it_has_changed(write):
    ids = ["a"]
    for seconds in (1, 2, 1):
        assert Trace(write(f"client,time,seconds\na,0,{seconds}\n")).course(ids)(0.0) == [seconds]
    path = write(HEADER + "a,0,1,1\n")
    assert read_trace(path) is read_trace(path)


def test_plans_take_the_speeds_of_the_start(write):
    path = write("client,time,seconds\n0,0,1\n0,5,100\n1,0,7\n")
    assert plan(Trace(path), 2, 100) == plan(Measured((1.0, 7.0)), 2, 100)


TIMES = st.lists(st.integers(1, 1000), max_size=5, unique=True).map(sorted)
SECONDS = st.floats(1e-3, 1e3)


@given(
    st.lists(TIMES.flatmap(lambda t: st.tuples(st.just([0, *t]), st.lists(SECONDS, min_size=6))),
             min_size=1, max_size=6),
    st.lists(st.floats(0, 1100), min_size=1, max_size=10),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_any_trace_is_what_bisection_finds(tmp_path_factory, clients, asked, random):
    rows = [
        (time, f"c{i}", seconds)
        for i, (times, column) in enumerate(clients)
        for time, seconds in zip(times, column, strict=False)
    ]
    random.shuffle(rows)
    path = tmp_path_factory.getbasetemp() / "any.csv"
    lines = [f"{name},{time},{seconds!r}\n" for time, name, seconds in sorted(rows)]
    path.write_text("client,time,seconds\n" + "".join(lines))
    T = Trace(path).course([f"c{i}" for i in range(len(clients))])
    for t in asked:
        expected = [column[bisect.bisect(times, t) - 1] for times, column in clients]
        assert T(t).tolist() == expected
