"""Sources of data, and how it is dealt out."""

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
