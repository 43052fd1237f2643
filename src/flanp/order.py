"""The order in which a client goes through its samples, without JAX.

A client may be a small machine that trains with NumPy or PyTorch, in a process that lives for one
message; importing JAX only to shuffle would cost it more than the shuffling. This is the same
generator (Threefry-2x32 with 20 rounds: Salmon et al., Parallel Random Numbers: As Easy as
1, 2, 3, SC 2011), with the same keys as the simulator's, so both see the same batches.
"""

from collections.abc import Iterator

import numpy as np

from flanp.streams import ORDER

Key = tuple[np.uint32, np.uint32]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def round_key(seed: int, number: int, use: int = ORDER) -> Key:
    """Return the key of a round."""
    return fold_in(fold_in((np.uint32(seed >> 32), np.uint32(seed & 0xFFFFFFFF)), use), number)


def batches(key: Key, client: int, rows: int, batch: int | None, tau: int) -> Iterator[np.ndarray]:
    """Yield the rows of each of tau mini-batches: epoch after epoch, each in a fresh order."""
    if batch is None:
        for _ in range(tau):
            yield np.arange(rows)
        return
    steps = max(1, -(-rows // batch))
    for t in range(tau):
        if t % steps == 0:
            order = sample_order(key, client, t // steps, rows)
        place = t % steps * batch
        yield order[place : place + batch]


def uniforms(key: Key, client: int, w: np.ndarray) -> np.ndarray:
    """Return numbers on [0, 1) for a client's message: the first 24 of 32 random bits each."""
    places = np.arange(len(w), dtype=np.uint32)
    low, high = threefry(fold_in(key, client), np.zeros(len(w), np.uint32), places)
    return ((low ^ high) >> np.uint32(8)).astype(w.dtype) * w.dtype.type(2.0**-24)


def sample_order(key: Key, client: int, epoch: int, rows: int) -> np.ndarray:
    """Return a random order of a client's rows for one pass over them."""
    key = fold_in(fold_in(key, client), epoch)
    low, high = threefry(key, np.zeros(rows, np.uint32), np.arange(rows, dtype=np.uint32))
    return np.argsort((low ^ high) >> np.uint32(1), kind="stable")


def fold_in(key: Key, number: int) -> Key:
    """Return a key made of a key and a number."""
    first, second = threefry(key, np.zeros(1, np.uint32), np.array([number], np.uint32))
    return first[0], second[0]


def threefry(key: Key, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encrypt the pairs (x, y) under a key."""
    keys = (key[0], key[1], np.uint32(key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)))
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))
            y = y ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y
