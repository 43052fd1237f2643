"""Every file that is read: whatever is done to it, it is refused in words or read as it was."""

import csv
import io
import string

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flanp import Method, prepare
from flanp.checks import BadInput
from flanp.config import load_config
from flanp.data import CIFAR10, CSV, MNIST, Synthetic, images
from flanp.files import read_csv, write_sealed
from flanp.history import History
from flanp.paper.reproduce import results_in
from flanp.problems import LinearRegression
from flanp.solvers import FedGATE
from flanp.speeds import read_speeds

from test_hostile import tiny_images

EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "flip", "insert", "delete", "cut", "repeat"]),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=3,
)
"""Changes to a file: what, where (as a share of it), and the bytes that it takes."""


def edited(content, edits):
    """Return a file's content after some changes."""
    content = bytearray(content)
    for what, where, new in edits:
        i = int(where * len(content))
        if what == "set":
            content[i : i + len(new)] = new
        elif what == "flip" and content:
            content[i] ^= 1 << (new[0] % 8)
        elif what == "insert":
            content[i:i] = new
        elif what == "delete":
            del content[i : i + 1 + new[0]]
        elif what == "cut":
            del content[i:]
        elif what == "repeat":
            content[i:i] = content[i : i + 1 + new[0]]
    return bytes(content)


def result_of(function, *words):
    """Return what a function returns, or None if it refuses its input with some words."""
    try:
        return function()
    except BadInput as error:
        message = str(error)
    assert message
    assert all(str(word) in message for word in words), message
    return None


def simulation(resume=None):
    return prepare(
        LinearRegression(),
        Synthetic(clients=4, samples=6, dim=2),
        Method(FedGATE(eta=0.1)),
        max_rounds=4,
        resume=resume,
    )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A folder with a run that was stopped after two rounds; and how it would have ended."""
    folder = tmp_path_factory.mktemp("stopped")
    run = simulation()
    for row in run:
        if row.round == 2:
            run.save(folder)
    return folder, run.history.rows, run.history.params


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "history.csv", "history.json"])
@given(edits=EDITS, garbage=st.none() | st.binary(max_size=300))
@settings(max_examples=120)
def test_a_damaged_run_is_refused_or_goes_on_as_it_would_have(stopped, name, edits, garbage):
    folder, rows, params = stopped
    path = folder / name
    before = path.read_bytes()
    content = edited(before, edits) if garbage is None else garbage
    assume(content != before)
    path.write_bytes(content)
    try:
        run = result_of(lambda: simulation(resume=folder), folder)
    finally:
        path.write_bytes(before)
    if run is not None:
        assert list(run)
        assert run.history.rows == rows
        np.testing.assert_array_equal(run.history.params, params)


@given(edits=EDITS)
@settings(max_examples=100)
def test_a_damaged_history_is_refused_or_read_as_it_was(stopped, edits):
    folder, _, _ = stopped
    good = History.load(folder)
    for name in ("history.csv", "history.json"):
        path = folder / name
        before = path.read_bytes()
        path.write_bytes(edited(before, edits))
        try:
            assert result_of(lambda: History.load(folder), folder) in (good, None)
        finally:
            path.write_bytes(before)


def test_a_crash_between_the_files_of_a_save_loses_nothing(tmp_path):
    """The history is written first: a later one, or none, beside the checkpoint goes on."""
    run, saved = simulation(), {}
    for row in run:
        run.save(tmp_path)
        saved[row.round] = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    rows = run.history.rows
    for names in (["history.csv"], ["history.csv", "history.json"]):
        for path in tmp_path.iterdir():
            path.write_bytes(saved[2][path.name])
        for name in names:
            (tmp_path / name).write_bytes(saved[3][name])
        again = simulation(resume=tmp_path)
        assert list(again) == rows[3:]
        assert again.history.rows == rows
    for name in ("history.csv", "history.json"):
        (tmp_path / name).unlink()
    again = simulation(resume=tmp_path)
    assert again.history.rows == rows[:3]


SMALL = """
max_rounds = 2
problem = { name = "LinearRegression" }
data = { name = "Synthetic", clients = 4, samples = 6, dim = 2 }
[solver]
name = "FedGATE"
eta = 0.1
"""


@given(edits=EDITS, garbage=st.none() | st.binary(max_size=100) | st.text(max_size=100))
@settings(max_examples=300)
def test_a_damaged_configuration_is_refused_or_understood(tmp_path_factory, edits, garbage):
    path = tmp_path_factory.mktemp("toml") / "c.toml"
    content = edited(SMALL.encode(), edits) if garbage is None else garbage
    path.write_bytes(content.encode("utf-8", "ignore") if isinstance(content, str) else content)
    result_of(lambda: load_config(path))


@given(override=st.text(max_size=30) | st.sampled_from(["a" * 500 + "=1", "x=" + "[" * 9999]))
@settings(max_examples=200)
def test_any_override_is_refused_or_understood(override):
    result_of(lambda: load_config(None, [override]))


NAMES = st.text(string.ascii_letters + string.digits + " -._äß,;\"'", min_size=1, max_size=6)
NAMES = NAMES.map(str.strip).filter(bool)
CLIENTS = st.dictionaries(NAMES, st.floats(1e-6, 1e6), min_size=1, max_size=6)


def written(rows, separator, quoting, ends):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=ends).writerows(rows)
    return text.getvalue()


FORMS = st.tuples(
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\ufeff"]),
)


HEADERS = st.sampled_from([None, ("client", "seconds"), ("ID", "T")])


@given(clients=CLIENTS, form=FORMS, header=HEADERS)
def test_no_client_of_a_speeds_file_is_lost(tmp_path_factory, clients, form, header):
    separator, quoting, ends, mark = form
    rows = ([header] if header else []) + list(clients.items())
    path = tmp_path_factory.mktemp("csv") / "speeds.csv"
    path.write_bytes((mark + written(rows, separator, quoting, ends)).encode())
    speeds = result_of(lambda: read_speeds(path), path)
    # A name with another separator in it, in the first line and not in quotes, is refused.
    assert speeds == clients or any(sign in name for name in clients for sign in ';\t,"')
    assert speeds in (clients, None)


@given(edits=EDITS, garbage=st.none() | st.binary(max_size=60) | st.text(max_size=60))
@settings(max_examples=300)
def test_a_damaged_speeds_file_is_refused_or_has_a_client_for_each_line(
    tmp_path_factory, edits, garbage
):
    path = tmp_path_factory.mktemp("csv") / "speeds.csv"
    good = b'client,seconds\na,1.5\n"b",2\nc,3e1\nd,0.25\n'
    content = edited(good, edits) if garbage is None else garbage
    path.write_bytes(content.encode("utf-8", "ignore") if isinstance(content, str) else content)
    speeds = result_of(lambda: read_speeds(path), path)
    if speeds is None:
        return
    lines = [cells for _, cells in read_csv(path)]
    headers = [cells for cells in lines if {c.lower() for c in cells} & {"client", "seconds", "id"}]
    assert len(speeds) == len(lines) - len(headers)


@given(
    table=st.integers(1, 4).flatmap(
        lambda d: st.lists(
            st.lists(st.floats(-1e6, 1e6), min_size=d + 1, max_size=d + 1), min_size=2, max_size=6
        )
    ),
    form=FORMS,
)
def test_every_cell_of_a_table_arrives(tmp_path_factory, table, form):
    separator, quoting, ends, mark = form
    names = [f"x{i}" for i in range(len(table[0]) - 1)] + ["y"]
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    path.write_bytes((mark + written([names, *table], separator, quoting, ends)).encode())
    data = result_of(CSV(path, target="y", clients=1).load, "numbers the rows")
    if data is None:
        return
    x, y = data.samples()
    assert sorted(map(tuple, np.column_stack([x, y]).tolist())) == sorted(map(tuple, table))


@given(edits=EDITS, garbage=st.none() | st.binary(max_size=60) | st.text(max_size=60))
@settings(max_examples=200)
def test_a_damaged_table_is_refused_or_has_a_sample_for_each_line(tmp_path_factory, edits, garbage):
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    good = b'who,x,"z",y\nann,1,2,3\nbob,4.5,5,6\nann,7,-8e2,9\n'
    content = edited(good, edits) if garbage is None else garbage
    path.write_bytes(content.encode("utf-8", "ignore") if isinstance(content, str) else content)
    data = result_of(CSV(path, target="y", client="who").load, path)
    if data is None:
        return
    assert data.s.sum() == len(read_csv(path)) - 1
    assert data.batch[0].shape[2] == len(read_csv(path)[0][1]) - 2


@pytest.mark.parametrize(
    ("source", "files"),
    [(MNIST, list(images.MNIST_FILES)), (CIFAR10, ["cifar-10-python.tar.gz"])],
)
@given(edits=EDITS, which=st.integers(0, 3), garbage=st.none() | st.binary(max_size=60))
@settings(max_examples=150)
def test_damaged_images_are_refused_or_read_as_they_were(
    tmp_path_factory, source, files, edits, which, garbage
):
    folder = tmp_path_factory.getbasetemp() / "images"
    if not folder.exists():
        folder.mkdir()
        tiny_images(folder)
    good = source(clients=2, folder=folder).load()
    path = folder / files[which % len(files)]
    before = path.read_bytes()
    path.write_bytes(edited(before, edits) if garbage is None else garbage)
    images._read_batches.cache_clear()
    try:
        loaded = result_of(source(clients=2, folder=folder).load, folder)
    finally:
        path.write_bytes(before)
        images._read_batches.cache_clear()
    for a, b in zip(good.batch, loaded.batch if loaded else good.batch, strict=True):
        np.testing.assert_array_equal(a, b)


@given(edits=EDITS, garbage=st.none() | st.binary(max_size=60))
@settings(max_examples=100)
def test_damaged_results_of_experiments_are_refused(tmp_path_factory, edits, garbage):
    folder = tmp_path_factory.mktemp("results")
    write_sealed(folder / "fig1.json", {"name": "fig1", "seconds": 1.5, "findings": [{"ours": 2}]})
    (good,) = results_in(folder)
    before = (folder / "fig1.json").read_bytes()
    (folder / "fig1.json").write_bytes(edited(before, edits) if garbage is None else garbage)
    assert result_of(lambda: results_in(folder), folder) in ([good], None)
