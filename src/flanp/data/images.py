"""MNIST and CIFAR-10: from a local folder, or downloaded once with checksums."""

import gzip
import io
import lzma
import os
import pickle
import tarfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pooch

from flanp.checks import BadInput

Labelled = tuple[np.ndarray, np.ndarray]

MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CIFAR10_FILE = {"cifar-10-python.tar.gz": "md5:c58f30108f718f92721af3b95e74349a"}
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/"


def load_mnist(folder: Path | None = None) -> tuple[Labelled, Labelled]:
    """Return (training, test) images, flat and scaled to [-1, 1], with their labels."""
    paths = [_find(folder, "mnist", (name,), MNIST_FILES, MNIST_URL) for name in MNIST_FILES]
    arrays = [read_idx(path) for path in paths]
    return _scaled(arrays[0], arrays[1]), _scaled(arrays[2], arrays[3])


def load_cifar10(folder: Path | None = None) -> tuple[Labelled, Labelled]:
    """Return (training, test) images, flat and scaled to [-1, 1], with their labels."""
    names = ("cifar-10-python.tar.gz", "cifar-10-python.tar.xz")
    path = _find(folder, "cifar10", names, CIFAR10_FILE, CIFAR10_URL)
    batches = _read_batches(path)
    train = [batches[f"data_batch_{i}"] for i in range(1, 6)]
    x, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return _scaled(x, y), _scaled(*batches["test_batch"])


@lru_cache(maxsize=1)  # unpacking takes longer than many a run, and each seed asks for it
def _read_batches(path: Path) -> dict[str, Labelled]:
    batches = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                file = archive.extractfile(member) if "_batch" in member.name else None
                if file is not None:
                    batch = ArrayUnpickler(io.BytesIO(file.read()), encoding="bytes").load()
                    batches[Path(member.name).name] = batch[b"data"], np.array(batch[b"labels"])
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, pickle.UnpicklingError) as error:
        raise BadInput(f"{path} is damaged: {error}") from error
    return batches


def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped file of unsigned bytes in the IDX format."""
    try:
        raw = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} is damaged: {error}") from error
    if raw[:3] != b"\0\0\x08":
        raise BadInput(f"{path}: not an IDX file of unsigned bytes")
    shape = np.frombuffer(raw, ">i4", count=raw[3], offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


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


def cache_folder() -> Path:
    """Return where downloads are kept: $FLANP_CACHE, or the user's cache folder."""
    return Path(os.environ.get("FLANP_CACHE") or pooch.os_cache("flanp"))


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


def _scaled(images: np.ndarray, labels: np.ndarray) -> Labelled:
    flat = images.reshape(len(images), -1)
    return flat.astype(np.float32) / 127.5 - 1, labels.astype(np.int32)
