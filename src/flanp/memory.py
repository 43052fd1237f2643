"""How much memory a run may still take, so that too large a one is refused before it starts."""

import os
import sys
from pathlib import Path

import psutil

from flanp.checks import BadInput
from flanp.files import read_number

LIMIT = "FLANP_MEMORY"
"""Environment variable with the bytes that a process may take, where less than all are yours."""
CGROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
"""Where Linux keeps a container's limit, what it uses, and what of that it can drop."""


def require_room(needed: float, what: str, amount: float, unit: str) -> None:
    """Raise BadInput if something needs more bytes than there are, and say what would fit.

    Args:
        needed: bytes.
        what: the fields and values that ask for them.
        amount: how many of something they are for.
        unit: of what.

    >>> require_room(1e9, "clients = 10", 10, "clients")
    """
    free = available()
    if needed > free:
        raise BadInput(
            f"{what}: that takes about {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB "
            f"are free here: about {int(amount * free / needed):,} {unit} would fit"
        )


def available() -> float:
    """Return the bytes that this process may still take: the least of all limits on it."""
    process = psutil.Process()
    room = [float(psutil.virtual_memory().available)]
    if os.environ.get(LIMIT):
        most = read_number(os.environ[LIMIT], f"the environment variable {LIMIT}")
        room.append(most - process.memory_info().rss)
    if sys.platform == "linux":
        soft, _ = process.rlimit(psutil.RLIMIT_AS)
        if soft != psutil.RLIM_INFINITY:
            room.append(soft - process.memory_info().vms)
        room += [_left_in(*group) for group in CGROUPS]
    return max(0.0, min(room))


def _left_in(folder: str, limit: str, used: str, droppable: str) -> float:
    """Return what a control group leaves to its processes; infinity where it sets no limit."""
    try:
        stat = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
        taken = int(Path(folder, used).read_text()) - int(stat[droppable])
        return float(Path(folder, limit).read_text()) - taken
    except (OSError, ValueError, KeyError):  # no such group, or "max"
        return float("inf")
