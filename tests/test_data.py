import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flanp.checks import BadInput
from flanp.data import (
    CIFAR10,
    CSV,
    IID,
    MNIST,
    ByLabel,
    Digits,
    Dirichlet,
    Synthetic,
    from_arrays,
    from_clients,
    images,
)

SHARED = Path(__file__).parents[2] / "shared" / "data"
needs_images = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"MNIST and CIFAR-10 are not in {SHARED}"
)


@pytest.mark.parametrize("split", [IID(), Dirichlet(0.1), Dirichlet(10.0), ByLabel(2)])
@given(clients=st.integers(1, 20), extra=st.integers(0, 100), seed=st.integers(0, 100))
@settings(max_examples=25)
def test_splits_deal_every_sample_once_and_leave_nobody_empty(split, clients, extra, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, 2 * clients + extra)
    hands = split.deal(y, clients, rng)
    assert len(hands) == clients
    assert min(len(hand) for hand in hands) >= 1
    assert sorted(np.concatenate(hands)) == list(range(len(y)))


def test_iid_is_even_and_by_label_is_not():
    y = np.repeat(np.arange(10), 50)
    rng = np.random.default_rng(0)
    assert {len(hand) for hand in IID().deal(y, 25, rng)} == {20}
    assert all(len(np.unique(y[hand])) <= 3 for hand in ByLabel(2).deal(y, 25, rng))
    sizes = [len(hand) for hand in Dirichlet(0.1).deal(y, 25, rng)]
    assert max(sizes) > 3 * np.mean(sizes)


def test_label_splits_need_labels():
    for split in (Dirichlet(), ByLabel()):
        with pytest.raises(BadInput, match="needs whole-number labels"):
            split.deal(np.array([0.5, 1.5]), 2, np.random.default_rng(0))
    with pytest.raises(BadInput, match="more than the 3 samples"):
        ByLabel(2).deal(np.zeros(3, int), 2, np.random.default_rng(0))


def test_from_clients_pads_and_sorts_by_id():
    data = from_clients(
        [(np.full((2, 1), 10.0), np.zeros(2)), (np.full((3, 1), 9.0), np.zeros(3))], ids=[10, 9]
    )
    assert data.ids == ("9", "10")
    assert data.s.tolist() == [3, 2]
    assert data.batch[0][1].ravel().tolist() == [10, 10, 10]  # padding repeats a row
    assert len(data.samples()[0]) == 5


@pytest.mark.parametrize(
    ("clients", "ids", "message"),
    [
        ([], None, "no clients"),
        ([(np.zeros((0, 2)), np.zeros(0))], None, "client '0' has no samples"),
        ([(np.zeros((2, 2)), np.zeros(3))], None, "differ in rows"),
        (
            [(np.zeros((2, 2)), np.zeros(2)), (np.zeros((2, 3)), np.zeros(2))],
            None,
            "differ in shape",
        ),
        ([(np.zeros((2, 2)), np.zeros(2))] * 2, ["a", "a"], "different ids"),
        ([(np.full((2, 2), np.nan), np.zeros(2))], None, "NaN or Inf"),
    ],
)
def test_bad_clients(clients, ids, message):
    with pytest.raises(BadInput, match=message):
        from_clients(clients, ids)


def test_more_clients_than_samples():
    with pytest.raises(BadInput, match="clients = 11: it must be at most 10"):
        from_arrays(np.zeros((10, 1)), np.zeros(10), IID(), clients=11)
    with pytest.raises(BadInput, match="at most 10 in all"):
        from_arrays(np.zeros((10, 1)), np.zeros(10), IID(), clients=4, samples=3)
    with pytest.raises(BadInput, match="clients = 0"):
        from_arrays(np.zeros((10, 1)), np.zeros(10), IID(), clients=0)


def test_synthetic_has_the_condition_number_it_says():
    data = Synthetic(clients=50, samples=400, dim=5, condition=30.0, noise=0.5).load(seed=1)
    x, y = data.samples()
    eigenvalues = np.linalg.eigvalsh(x.T @ x / len(x))
    assert eigenvalues[-1] / eigenvalues[0] == pytest.approx(30, rel=0.1)
    residual = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    assert residual.std() == pytest.approx(0.5, rel=0.05)


def test_sources_depend_on_the_seed_alone():
    for source in (Synthetic(clients=3, samples=4), Digits(clients=3)):
        a, b, c = source.load(5), source.load(5), source.load(6)
        assert (a.batch[0] == b.batch[0]).all()
        assert (a.batch[0] != c.batch[0]).any()


def test_digits_of_s_samples_each():
    data = Digits(clients=6, samples=11).load()
    assert data.s.tolist() == [11] * 6
    assert -1 <= data.batch[0].min() < data.batch[0].max() <= 1


@needs_images
def test_mnist_from_a_folder():
    data = MNIST(clients=50, folder=SHARED).load()
    assert data.batch[0].shape == (50, 1200, 784)
    assert (data.batch[0].min(), data.batch[0].max()) == (-1, 1)
    assert len(data.test[0]) == 10_000
    assert np.bincount(data.samples()[1]).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]


@needs_images
def test_cifar10_from_a_folder():
    data = CIFAR10(clients=10, samples=100, folder=SHARED / "cifar10").load()
    assert data.batch[0].shape == (10, 100, 3072)
    assert np.bincount(data.test[1]).tolist() == [1000] * 10


def test_an_empty_folder_says_what_it_lacks(tmp_path):
    with pytest.raises(BadInput, match="no train-images-idx3-ubyte.gz there, nor in mnist/"):
        MNIST(folder=tmp_path).load()
    with pytest.raises(BadInput, match=r"cifar-10-python.tar.gz or cifar-10-python.tar.xz"):
        CIFAR10(folder=tmp_path).load()


class Evil:
    def __reduce__(self):
        return os.system, ("echo never",)


def test_the_pickle_loader_builds_nothing_but_arrays():
    good = pickle.dumps({b"data": np.arange(6).reshape(2, 3), b"labels": [1, 2]})
    loaded = images.ArrayUnpickler(io.BytesIO(good)).load()
    np.testing.assert_array_equal(loaded[b"data"], [[0, 1, 2], [3, 4, 5]])
    for bad in (Evil(), {b"data": [Evil()]}, np.array([Evil()], dtype=object)):
        with pytest.raises(pickle.UnpicklingError, match="refused to build"):
            images.ArrayUnpickler(io.BytesIO(pickle.dumps(bad))).load()


def test_downloads_are_checked_and_kept(tmp_path, monkeypatch):
    """A real download over a real socket, from a server on this machine."""
    import gzip
    import hashlib
    import threading
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    site = tmp_path / "site"
    site.mkdir()
    names = list(images.MNIST_FILES)
    for name in names:
        shape = (3, 2, 2) if "images" in name else (3,)
        header = b"\0\0\x08" + bytes([len(shape)]) + np.array(shape, ">i4").tobytes()
        (site / name).write_bytes(
            gzip.compress(header + bytes(np.arange(np.prod(shape)).astype(np.uint8)))
        )
    sums = {n: "md5:" + hashlib.md5((site / n).read_bytes()).hexdigest() for n in names}
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv("FLANP_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(images, "MNIST_URL", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setattr(images, "MNIST_FILES", sums)
        assert MNIST(clients=3).load().batch[0].shape == (3, 1, 4)
        monkeypatch.setattr(images, "MNIST_FILES", dict.fromkeys(names, "md5:" + "0" * 32))
        monkeypatch.setenv("FLANP_CACHE", str(tmp_path / "other"))
        with pytest.raises(BadInput, match="could not be downloaded .*does not match"):
            MNIST(clients=3).load()
    finally:
        server.shutdown()
        server.server_close()
    monkeypatch.setattr(images, "MNIST_FILES", sums)
    monkeypatch.setenv("FLANP_CACHE", str(tmp_path / "cache"))
    assert MNIST(clients=3).load().N == 3  # from the cache: the server is gone
    monkeypatch.setenv("FLANP_CACHE", str(tmp_path / "third"))
    with pytest.raises(BadInput, match=r"data\.folder"):
        MNIST(clients=3).load()


def test_csv_with_a_client_column(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("owner,x1,x2,y\nann,1,2,3\nbob,4,5,6\nann,7,8,9\n")
    data = CSV(path, target="y", client="owner").load()
    assert data.ids == ("ann", "bob")
    assert data.s.tolist() == [2, 1]
    assert sorted(data.batch[1][0].tolist()) == [3, 9]


def test_csv_dealt_out_with_labels_and_a_test_set(tmp_path):
    path = tmp_path / "table.csv"
    rows = "".join(f"{i},{i % 3}\n" for i in range(30))
    path.write_text("x,label\n" + rows)
    data = CSV(path, target="label", clients=4, labels=True, test_fraction=0.2).load()
    assert data.classes == 3
    assert data.s.sum() == 24
    assert len(data.test[0]) == 6


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("x,y\n1,2\n", {"target": "z", "clients": 1}, "no column 'z'"),
        ("feature,target\n1,2\n", {"target": "tarqet", "clients": 1}, "did you mean 'target'"),
        ("x,y\n1,two\n", {"target": "y", "clients": 1}, "column 'y' is not numeric"),
        ("x,y\n", {"target": "y", "clients": 1}, "a header and at least one row"),
        (
            "y\n1\n2\n",
            {"target": "y", "clients": 1},
            "no column is left",
        ),
        ("x,y\n1,0.5\n", {"target": "y", "clients": 1, "labels": True}, "labels in 'y'"),
        ("x,y\n1,2\n", {"target": "y"}, "either the name of the client column"),
        ("x,x,y\n1,2,3\n", {"target": "y", "clients": 1}, "several columns 'x'"),
        (",x,y\n0,1,2\n", {"target": "y", "clients": 1}, "column 1 has no name"),
        ("i,x,y\n0,5,2\n1,4,2\n2,7,2\n", {"target": "y", "clients": 1}, "'i' numbers the rows"),
        ("x,id,y\n0,8,2\n1,3,2\n", {"target": "y", "clients": 1}, "'id' numbers the rows"),
        ("x,n,y\n3,0,2\n5,1,2\n4,2,2\n", {"target": "y", "clients": 1}, "'n' numbers the rows"),
        ("n,x,y\n2,3,2\n1,5,2\n0,4,2\n", {"target": "y", "clients": 1}, "'n' numbers the rows"),
        ("x,y\n1,2\n,\n3,4\n", {"target": "y", "clients": 1}, "data row 2: the cell is empty"),
        ("x,sampleId,y\n0,8,2\n1,3,2\n", {"target": "y", "clients": 1}, "numbers the rows"),
        ("x,y\n1,2\n# 3,4\n", {"target": "y", "clients": 1}, "line 3: it begins with '#'"),
        ("x,y,who\n1,2,a\n1,2,NaN\n", {"target": "y", "client": "who"}, "no client but 'NaN'"),
        ("x,y,w\n1,2,a\n", {"target": "y", "client": "w", "split": Dirichlet()}, "split = "),
        ("1.5,2\n3,4\n", {"target": "2", "clients": 1}, "first line holds numbers"),
        ("x,y\n1,2,\n", {"target": "y", "clients": 1}, "3 cells; the header has 2"),
        ('x,y\n"1,5",2\n', {"target": "y", "clients": 1}, "'1,5' is not a number: write it"),
        ("x,y\n,2\n", {"target": "y", "clients": 1}, "data row 1: the cell is empty"),
        ("x,y\nNA,2\n", {"target": "y", "clients": 1}, "'NA' is not a number"),
        ("x,y\n1,1e9\n", {"target": "y", "clients": 1, "labels": True}, "labels in 'y'"),
        ("x,y\n1,2\n", {"target": "y", "clients": 1, "inputs": ["z"]}, "no column 'z'"),
        ("x,y\n1,2\n", {"target": "y", "clients": 1, "ignore": ["y"]}, "two purposes"),
        ("x,y,who\n1,2,\n", {"target": "y", "client": "who"}, "a row has no client"),
    ],
)
def test_bad_csv(tmp_path, text, options, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        CSV(path, **options).load()


def test_csv_as_spreadsheets_write_it(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes('\ufeff"a", "y", "who"\r\n"1.5", 2, "p q"\r\n\r\n3, 4, r\r\n'.encode())
    data = CSV(path, target="y", client="who", test_fraction=0.95).load()
    assert data.ids == ("p q", "r")  # nobody loses the last row to the test set
    path.write_text("a,y\n1,2\n3\n")
    with pytest.raises(BadInput, match="line 3: 1 cells; the header has 2"):
        CSV(path, target="y", clients=1).load()
    path.write_bytes(b"a,y\n\xff,2\n")
    with pytest.raises(BadInput, match="cannot be read as a CSV file in UTF-8"):
        CSV(path, target="y", clients=1).load()


def test_columns_are_chosen_by_name(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id;a;b;y\n1;5;6;0\n2;7;8;1\n3;9;9;1\n")
    for options in ({"ignore": ("id",)}, {"inputs": ("a", "b")}):
        data = CSV(path, target="y", clients=1, **options).load()
        assert sorted(data.batch[0][0].tolist()) == [[5, 6], [7, 8], [9, 9]]
    assert CSV(path, target="y", clients=1, inputs=["id"]).load().batch[0].shape == (1, 3, 1)
    path.write_text("year,x,y\n2000,1,2\n2001,1,3\n2002,2,2\n,,\n,,\n")
    assert CSV(path, target="y", clients=1).load().batch[0].shape == (1, 3, 2)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ({"a": (np.ones((2, 1)), np.ones(2))}, "clients is a dict: give list"),
        ("ab", "clients = 'ab': it must be"),
        ([np.ones((2, 1))], "client '0' is the class ndarray: give a tuple of arrays"),
        ([(np.ones((2, 1)), np.array(["cat", "dog"]))], "array 2 holds text: give numbers"),
        ([(np.ones((2, 1)), np.array([1j, 2j]))], "array 2 holds values of type complex128"),
        ([(np.ones((2, 1)), np.array([{}, {}]))], "array 2 holds values of type object"),
        ([(np.ones((2, 1)), 3.0)], "array 2 is a single number"),
        ([([[1.0], [1.0, 2.0]], np.ones(2))], "its rows differ in shape"),
        ([(np.ones((2, 1)), np.array([1, 2**40]))], "too large to count with"),
        ([()], "has no samples"),
    ],
)
def test_what_is_no_client(clients, message):
    with pytest.raises(BadInput, match=message):
        from_clients(clients)


def test_labels_become_whole_numbers_or_are_refused():
    data = from_clients([(np.ones((2, 1)), np.array([0.0, 2.0]))], classes=3)
    assert data.batch[1].dtype == np.int32
    for y in ([0.5, 1.0], [[0], [1]], [-1, 0]):
        with pytest.raises(BadInput, match="labels must be 0 to 2"):
            from_clients([(np.ones((2, 1)), np.array(y))], classes=3)
    with pytest.raises(BadInput, match="held-out data: its rows differ in shape"):
        from_clients([(np.ones((2, 1)), np.ones(2))], test=(np.ones((2, 3)), np.ones(2)))


def test_what_does_not_fit_this_machine_is_refused_at_once(monkeypatch):
    with pytest.raises(BadInput, match=r"takes about .* GB of memory, .* samples in all would fit"):
        Synthetic(clients=10**9, samples=10**9, dim=10**9).load()
    monkeypatch.setenv("FLANP_MEMORY", "1e9")
    with pytest.raises(BadInput, match=r"takes about 1.1 GB of memory"):
        Synthetic(clients=10**5, samples=20).load()
    monkeypatch.setenv("FLANP_MEMORY", "much")
    with pytest.raises(BadInput, match="environment variable FLANP_MEMORY: 'much' is not a number"):
        Synthetic().load()


def test_damaged_files_and_labels(tmp_path):
    for name in images.MNIST_FILES:
        (tmp_path / name).write_bytes(b"not gzip")
    with pytest.raises(BadInput, match="is damaged"):
        MNIST(folder=tmp_path).load()
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"not tar")
    with pytest.raises(BadInput, match="is damaged"):
        CIFAR10(folder=tmp_path).load()
    with pytest.raises(BadInput, match="labels must be 0 to 1"):
        from_clients([(np.zeros((2, 1)), np.array([0, 2]))], classes=2)
    with pytest.raises(BadInput, match="held-out data, array 1 holds NaN"):
        from_clients([(np.zeros((2, 1)), np.zeros(2))], test=(np.array([np.nan]),))


def test_missing_csv(tmp_path):
    with pytest.raises(BadInput, match="there is no such file"):
        CSV(tmp_path / "no.csv", target="y", clients=2).load()
