"""MNIST and CIFAR-10: from a local folder, or downloaded once with checksums."""

import gzip
import io
import lzma
import math
import pickle
import tarfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pooch

from flanp.cache import cache_folder
from flanp.checks import BadInput, first_line

Labelled = tuple[np.ndarray, np.ndarray]

MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CIFAR10_FILE = {"cifar-10-python.tar.gz": "md5:c58f30108f718f92721af3b95e74349a"}
CIFAR10_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/"


def load_mnist(folder: Path | None = None) -> tuple[Labelled, Labelled]:
    """Return (training, test) images, flat and scaled to [-1, 1], with their labels."""
    paths = [_find(folder, "mnist", (name,), MNIST_FILES, MNIST_URL) for name in MNIST_FILES]
    arrays = [read_idx(path) for path in paths]
    return _scaled(arrays[0], arrays[1], paths[0]), _scaled(arrays[2], arrays[3], paths[2])


def load_cifar10(folder: Path | None = None) -> tuple[Labelled, Labelled]:
    """Return (training, test) images, flat and scaled to [-1, 1], with their labels."""
    names = ("cifar-10-python.tar.gz", "cifar-10-python.tar.xz")
    path = _find(folder, "cifar10", names, CIFAR10_FILE, CIFAR10_URL)
    batches = _read_batches(path)
    missing = [name for name in CIFAR10_BATCHES if name not in batches]
    if missing:
        raise BadInput(f"{path} is damaged: it lacks {', '.join(missing)}")
    train = [batches[name] for name in CIFAR10_BATCHES[:-1]]
    x, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return _scaled(x, y, path), _scaled(*batches["test_batch"], path)


@lru_cache(maxsize=1)  # unpacking takes longer than many a run, and each seed asks for it
def _read_batches(path: Path) -> dict[str, Labelled]:
    batches = {}
    try:
        unpack = lzma.open if path.suffix == ".xz" else gzip.open
        with unpack(path) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as archive:
            for member in archive:
                file = archive.extractfile(member) if "_batch" in member.name else None
                if file is not None:
                    batches[Path(member.name).name] = _read_batch(file.read())
            while unpacked.read(2**20):  # the checksum comes at the end
                pass
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        raise BadInput(f"{path} is damaged: {error}") from error
    except Exception as error:  # a damaged pickle can raise anything
        raise BadInput(f"{path} is damaged: {first_line(error)}") from error
    return batches


def _read_batch(content: bytes) -> Labelled:
    batch = ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    images, labels = batch[b"data"], np.array(batch[b"labels"])
    if images.dtype != np.uint8 or images.shape[1:] != (3072,) or labels.dtype.kind not in "iu":
        raise ValueError(f"images of shape {images.shape} and labels of type {labels.dtype}")
    return images, labels


def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped file of unsigned bytes in the IDX format."""
    try:
        raw = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} is damaged: {error}") from error
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise BadInput(f"{path}: not an IDX file of unsigned bytes")
    start = 4 + 4 * raw[3]
    shape = [int.from_bytes(raw[i : i + 4]) for i in range(4, start, 4)]
    if not shape or min(shape) < 1 or len(raw) != start + math.prod(shape):
        raise BadInput(f"{path} is damaged: it says {shape}, and holds {len(raw) - start} bytes")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


class ArrayUnpickler(pickle.Unpickler):
    """Reads a pickle of containers, numbers, strings and NumPy arrays, and refuses all else."""

    ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the few allowed functions."""
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"refused to build {module}.{name}: only arrays may be")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _find(
    folder: Path | None, dataset: str, names: tuple[str, ...], known: dict[str, str], url: str
) -> Path:
    """Return the first of the names in the folder (or its sub-folder), else download it."""
    if folder is not None:
        for place in (Path(folder), Path(folder) / dataset):
            for name in names:
                if (place / name).is_file():
                    return place / name
        raise BadInput(f"{folder}: no {' or '.join(names)} there, nor in {dataset}/ below it")
    name = next(name for name in names if name in known)
    try:
        return Path(
            pooch.retrieve(
                url + name,
                known_hash=known[name],
                fname=name,
                path=cache_folder() / dataset,
                downloader=pooch.HTTPDownloader(progressbar=DownloadBar(), timeout=30),
            )
        )
    except (OSError, ValueError) as error:  # no network; a wrong checksum
        raise BadInput(
            f"{name} could not be downloaded ({type(error).__name__}: {error}). "
            "If you have the file, name its folder: data.folder"
        ) from error


class DownloadBar:
    """Shows a download's progress, in the form that pooch asks for."""

    def __init__(self) -> None:
        from flanp.progress import download_progress

        self._progress = download_progress()
        self.total = 0

    def update(self, amount: int) -> None:
        """Add bytes."""
        if not self._progress.tasks:
            self._progress.start()
            self._progress.add_task("downloading", total=self.total)
        self._progress.advance(self._progress.tasks[0].id, amount)

    def reset(self) -> None:
        """Start from zero."""
        for task in self._progress.tasks:
            self._progress.update(task.id, completed=0)

    def close(self) -> None:
        """Stop."""
        self._progress.stop()


def _scaled(images: np.ndarray, labels: np.ndarray, path: Path) -> Labelled:
    if labels.shape != (len(images),) or not len(images) or labels.min() < 0 or labels.max() > 9:
        raise BadInput(
            f"{path} is damaged: {len(images)} images and labels of shape {labels.shape}, which "
            "must be as many, each 0 to 9"
        )
    flat = images.reshape(len(images), -1)
    return flat.astype(np.float32) / 127.5 - 1, labels.astype(np.int32)
