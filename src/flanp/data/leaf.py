"""FEMNIST: handwritten letters and digits by thousands of writers, in the files that LEAF makes."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np

from flanp.checks import BadInput, first_line, require
from flanp.data.federated import FederatedData, from_clients
from flanp.data.images import Labelled
from flanp.data.sources import Source
from flanp.parts import Many, Within
from flanp.streams import Stream, generator

CLASSES, PIXELS = 62, 784
HOW_TO_GET = (
    "LEAF makes the files: git clone https://github.com/TalwalkarLab/leaf, cd leaf/data/femnist, "
    "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample; then name its folder `data`"
)


class MissingData(BadInput):
    """The data is not there, and cannot be downloaded."""


@final
@dataclass(frozen=True)
class FEMNIST(Source):
    """FEMNIST, images of 28x28 of 62 letters and digits, scaled to [-1, 1], split by writer.

    Reference: Caldas et al., LEAF: A Benchmark for Federated Settings, arXiv:1812.01097.
    """

    clients: Many | None = None
    """Writers are dealt out to so many clients; each writer is one if left out."""
    folder: Path | None = None
    """A folder with LEAF's JSON files, or with its folders `train` and `test`, or `all_data`."""
    test_fraction: Annotated[float, Within(0, 0.9)] = 0.1
    """Share of each writer's images that is held out, where LEAF has not done so."""

    def load(self, seed: int = 0) -> FederatedData:
        """Read the images and deal the writers out."""
        train, test = _find(self.folder)
        writers, rng = read_writers(train), generator(seed, Stream.FEMNIST)
        if test is not None:
            held_out = [*read_writers(test).values()]
        else:
            split = {name: self._hold_out(images, rng) for name, images in writers.items()}
            writers = {name: kept for name, (kept, _) in split.items()}
            held_out = [out for _, out in split.values()]
        names = sorted(writers)
        hands = [[name] for name in names]
        if self.clients is not None:
            allowed = f"at most {len(names)}, the number of writers"
            require(self.clients <= len(names), "clients", self.clients, allowed)
            hands = [list(hand) for hand in np.array_split(rng.permutation(names), self.clients)]
        clients = [_joined([writers[name] for name in hand]) for hand in hands]
        ids = names if self.clients is None else range(len(hands))
        x, y = _joined(held_out)
        return from_clients(clients, list(ids), (x, y) if len(x) else None, CLASSES)

    def _hold_out(self, images: Labelled, rng: np.random.Generator) -> tuple[Labelled, Labelled]:
        """Return a writer's images in two parts, the first of which is not empty."""
        x, y = images
        order = rng.permutation(len(x))
        kept = max(1, len(x) - round(self.test_fraction * len(x)))
        return (x[order[:kept]], y[order[:kept]]), (x[order[kept:]], y[order[kept:]])


@lru_cache(maxsize=2)  # reading takes longer than many a run, and each seed asks for it
def read_writers(paths: tuple[Path, ...]) -> dict[str, Labelled]:
    """Return each writer's images, flat and scaled to [-1, 1], with their labels."""
    found: dict[str, list[Labelled]] = {}
    for path in paths:
        try:
            content = json.loads(path.read_text("utf-8"))
            for writer, number in zip(content["users"], content["num_samples"], strict=True):
                images = _images(content["user_data"][writer], number)
                found.setdefault(str(writer), []).append(images)
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise BadInput(f"{path} is damaged, or not LEAF's: {first_line(error)}") from error
    return {writer: _joined(parts) for writer, parts in found.items() if len(_joined(parts)[0])}


def _images(given: Any, number: int) -> Labelled:
    x = np.asarray(given["x"], np.float32).reshape(-1, PIXELS)
    y = np.asarray(given["y"])
    if len(x) != number or y.shape != (number,) or (number and y.dtype.kind not in "iu"):
        raise ValueError(f"{len(x)} images and labels of shape {y.shape}, instead of {number}")
    if number and (x.min() < 0 or x.max() > 1 or y.min() < 0 or y.max() >= CLASSES):
        raise ValueError(f"pixels must be 0 to 1, labels 0 to {CLASSES - 1}")
    return 2 * x - 1, y.astype(np.int32)


def _joined(parts: list[Labelled]) -> Labelled:
    empty = np.zeros((0, PIXELS), np.float32), np.zeros(0, np.int32)
    x, y = zip(empty, *parts, strict=True)
    return np.concatenate(x), np.concatenate(y)


def _find(folder: Path | None) -> tuple[tuple[Path, ...], tuple[Path, ...] | None]:
    """Return the files to train with and, where LEAF has divided them, those to test with."""
    if folder is None:
        raise MissingData(f"FEMNIST cannot be downloaded: give data.folder. {HOW_TO_GET}")
    for place in (folder, folder / "femnist"):
        train, test = (_json_files(place / name) for name in ("train", "test"))
        if train and test:
            return train, test
        for files in (_json_files(place / "all_data"), _json_files(place)):
            if files:
                return files, None
    raise MissingData(
        f"{folder}: no JSON files there, nor in train/ and test/, all_data/ or femnist/ below it. "
        f"{HOW_TO_GET}"
    )


def _json_files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob("*.json"))) if folder.is_dir() else ()
