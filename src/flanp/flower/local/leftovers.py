"""Ends what a deployment's processes leave behind, also when their starter is killed.

Flower's commands start children in sessions of their own, and a ServerApp whose SuperLink was
killed may wait for it without end. They are known by FLWR_HOME in their environment.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

GRACE_SECONDS = 3.0


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def living_in(home: Path) -> list[int]:
    """Return the processes with this FLWR_HOME; none where there is no /proc."""
    mark, found = f"FLWR_HOME={home}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]


def kill_all(home: Path) -> None:
    """Kill the processes with this FLWR_HOME."""
    for pid in living_in(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def watch(groups: Iterable[str], home: Path) -> None:
    """Read process groups until their starter closes the stream or is gone; then end them all."""
    started = [int(line) for line in groups]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in started:
            signal_group(group, number)
        time.sleep(GRACE_SECONDS)
    kill_all(home)


if __name__ == "__main__":
    watch(sys.stdin, Path(sys.argv[1]))
