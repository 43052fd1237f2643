"""Ctrl-C between rounds rather than in the middle of one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold a first Ctrl-C back until the block is done; a second one gets through at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending = False

    def note(number: int, frame: Any) -> None:
        nonlocal pending
        if pending:
            signal.default_int_handler(number, frame)
        pending = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pending:
        raise KeyboardInterrupt
