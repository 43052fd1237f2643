import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp import prepare
from flanp.checks import BadInput
from flanp.config.building import build_part
from flanp.describe import describe
from flanp.method import Method
from flanp.network import FREE, Exchange, Free, FromTrace, Lines, Phones
from flanp.problems import LinearRegression
from flanp.solvers import FedAvg

from small import SIX

IDS = ["a", "b", "c"]


def links(network, seed=0, step=1.0, ids=IDS):
    return network.links(ids, np.random.default_rng(seed), step)


def test_bytes_over_bandwidth_and_a_latency_each_way():
    down, up = links(Lines(down=80.0, up=20.0, latency=0.5)).seconds(0.0, to=10_000, back=5_000)
    assert down.tolist() == [1.5] * 3  # 80,000 bits at 80,000 bits a second
    assert up.tolist() == [2.5] * 3


@given(
    st.floats(1e-3, 1e9), st.floats(1e-3, 1e9), st.floats(0, 1e3), st.integers(0, 2**40), st.data()
)
def test_seconds_of_any_line(down, up, latency, to, data):
    back = data.draw(st.integers(0, 2**40))
    there, here = links(Lines(down, up, latency)).seconds(7.0, to, back)
    np.testing.assert_allclose(there, latency + 8 * to / (1000 * down), rtol=1e-12)
    np.testing.assert_allclose(here, latency + 8 * back / (1000 * up), rtol=1e-12)


@given(st.floats(0, 1e6), st.floats(1e-9, 1e9), st.integers(0, 2**40))
def test_an_exchange_takes_steps_of_the_median_client_whatever_its_bytes(steps, step, size):
    there, here = links(Exchange(steps), step=step).seconds(3.0, size, 3 * size)
    np.testing.assert_allclose(there + here, steps * step, rtol=1e-12, atol=1e-300)
    assert there.shape == (3,)


def test_free_exchanges_have_no_links():
    assert links(FREE) is None
    assert Free() == FREE


def test_phones_differ_and_are_drawn_by_the_seed():
    ids = [str(i) for i in range(500)]
    one, two, other = (links(Phones(up=0.5), seed, ids=ids) for seed in (0, 0, 1))
    kbits = one.down(0.0)
    assert (kbits > 0).all()
    assert np.quantile(kbits, 0.9) > 3 * np.quantile(kbits, 0.1)
    assert kbits.tolist() == two.down(5.0).tolist() != other.down(0.0).tolist()
    there, here = one.seconds(0.0, 1000, 1000)
    np.testing.assert_allclose(here - 0.05, 2 * (there - 0.05))
    assert one.steady


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "trace.csv"
        path.write_text(text)
        return path

    return write


def test_recorded_bandwidths(write):
    path = write("client,time,kbits\na,0,8\nb,0,80\na,10,4\nc,-1,8\n")
    recorded = links(FromTrace(path, up=0.5, latency=0.25))
    assert not recorded.steady
    for time, a in [(10.0, 2.25), (0.0, 1.25), (9.9, 1.25), (1e9, 2.25)]:
        there, here = recorded.seconds(time, 1000, 1000)
        np.testing.assert_allclose(there, [a, 0.35, 1.25])
        np.testing.assert_allclose(here, [2 * a - 0.25, 0.45, 2.25])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("client,time,seconds\na,0,1\nb,0,1\nc,0,1\n", "no column 'kbits'; add it to the header"),
        ("client,time,kbits\na,0,1\nb,0,1\n", "no line for client 'c'"),
        ("client,time,kbits\na,0,-1\nb,0,1\nc,0,1\n", "line 2: kbits = -1.0: it must be a number"),
    ],
)
def test_bad_traces_are_refused_in_a_line(write, text, words):
    with pytest.raises(BadInput) as error:
        links(FromTrace(write(text)))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Lines(down=-1), "down = -1.0: it must be a number from 0.001 to"),
        (lambda: Lines(up=0), "up = 0.0: it must be a number from 0.001 to"),
        (lambda: Lines(up=float("nan")), "up = nan: it must be a number"),
        (lambda: Lines(latency=-0.1), "latency = -0.1: it must be a number from 0 to"),
        (lambda: Exchange(-1), "steps = -1.0: it must be a number from 0 to"),
        (lambda: Exchange(float("inf")), "steps = inf: it must be a number from 0 to"),
        (lambda: Phones(up=0), "up = 0.0: it must be a number from 0.001 to"),
        (lambda: FromTrace(3), "path = 3: it must be a path"),
        (
            lambda: prepare(LinearRegression(), SIX, Method(FedAvg(0.1)), network=10.0),
            "network = 10.0: it must be a Network",
        ),
    ],
)
def test_bad_networks_are_refused(make, words):
    with pytest.raises(BadInput) as error:
        make()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_networks_in_a_configuration(tmp_path):
    lines = build_part("network", {"name": "lines", "down": 100.0}, "network", tmp_path)
    assert lines == Lines(down=100.0)
    assert build_part("network", describe(lines), "network", tmp_path) == lines
    assert build_part("network", "free", "network", tmp_path) == FREE
    with pytest.raises(BadInput, match="network.latncy: unknown key; did you mean 'latency'"):
        build_part("network", {"name": "Lines", "latncy": 1.0}, "network", tmp_path)
