"""Keeping compiled programs from one command to the next, which spares a user most of the start."""

import hashlib
import os
import platform
import warnings
from contextlib import suppress
from pathlib import Path

FOLDER = "JAX_COMPILATION_CACHE_DIR"
SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(512 * 2**20),
}
"""JAX's own names. A small program is loaded in a millisecond; the oldest make room for others."""
QUIET = ("Error reading persistent compilation", "Error writing persistent compilation")
"""What JAX warns of: a program that cannot be read or kept is compiled, as without the folder."""


def keep_compiled() -> None:
    """Let JAX, in this process and those it starts, keep its programs in the cache folder.

    A folder that the user has named to JAX stays; where none can be made, nothing is kept.
    """
    from flanp.cache import cache_folder

    if FOLDER in os.environ:
        return
    folder = cache_folder() / "compiled" / processor()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            remove_half_written(folder)
            others = os.environ.get("PYTHONWARNINGS", "").split(",")
            ignored = [f"ignore:{words}:UserWarning" for words in QUIET]
            warned = {"PYTHONWARNINGS": ",".join(filter(None, (*others, *ignored)))}
            os.environ.update(SETTINGS | {FOLDER: str(folder)} | warned)
            for words in QUIET:
                warnings.filterwarnings("ignore", words)


def processor() -> str:
    """Return a name for what programs are compiled for: a home can be shared by several machines.

    >>> len(processor())
    12
    """
    about = [platform.machine(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        about += [line for line in lines if line.startswith(("model name", "flags"))][:2]
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:12]


def remove_half_written(folder: Path) -> None:
    """Remove what a killed process, or a full disk, has left: JAX writes an entry's date last.

    Without a date it could not be read, and no other entry could be written. Whoever writes holds
    the folder's lock; then nothing is removed.
    """
    from filelock import FileLock, Timeout

    with suppress(Timeout), FileLock(folder / ".lockfile", timeout=0):
        for entry in folder.glob("*-cache"):
            if not entry.with_name(entry.name.removesuffix("-cache") + "-atime").exists():
                entry.unlink(missing_ok=True)
