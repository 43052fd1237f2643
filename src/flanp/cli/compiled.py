"""Keeping compiled programs from one command to the next, which spares a user most of the start."""

import os
from contextlib import suppress

FOLDER = "JAX_COMPILATION_CACHE_DIR"
SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(512 * 2**20),
}
"""JAX's own names. A small program is loaded in a millisecond; the oldest make room for others."""


def keep_compiled() -> None:
    """Let JAX, in this process and those it starts, keep its programs in the cache folder.

    A folder that the user has named to JAX stays; where none can be made, nothing is kept.
    """
    from flanp.cache import cache_folder

    if FOLDER in os.environ:
        return
    folder = cache_folder() / "compiled"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            os.environ |= SETTINGS | {FOLDER: str(folder)}
