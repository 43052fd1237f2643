"""Showing that long work goes on: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bar

from flanp.history import Row
from flanp.hooks import Hook

if TYPE_CHECKING:
    from flanp.run import Run

FIRST, EVERY = 2.0, 5.0
"""Seconds until something is shown, and between plain lines."""


class Progress(Hook):
    """Shows the stage, participants, virtual time and loss of work that takes over two seconds.

    The work is one run, or `total` runs one after the other; `advance` ends one.
    """

    def __init__(self, title: str, total: int = 1, enabled: bool = True):
        self.title, self.total, self.done = title, total, 0
        self.enabled = enabled
        self._console = Console(file=sys.stderr)
        self._bar: Bar | None = None
        self._next = time.monotonic() + FIRST

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_row(self, run: "Run[Any]", row: Row) -> None:
        """Show where a run is."""
        if not self.enabled or time.monotonic() < self._next:
            return
        order = run.state.clock.order
        clients = 0 if order is None else len(order)
        stages = len(run.method.participation.sizes(clients))
        text = (
            f"{self.title}: stage {row.stage + 1}/{stages}, {row.n}/{clients} clients, "
            f"round {row.round}, time {row.time:,.0f}, loss {row.loss:.4g}"
        )
        if self._console.is_terminal:
            self._draw(text)
            self._next = time.monotonic() + 0.1
        else:
            part = f"[{self.done}/{self.total}] " if self.total > 1 else ""
            print(part + text, file=sys.stderr, flush=True)
            self._next = time.monotonic() + EVERY

    def note(self, text: str) -> None:
        """Show a line of one's own."""
        self.title = text
        if not self.enabled or time.monotonic() < self._next:
            return
        if self._console.is_terminal:
            self._draw(text)
        else:
            print(f"[{self.done}/{self.total}] {text}", file=sys.stderr, flush=True)
            self._next = time.monotonic() + EVERY

    def advance(self) -> None:
        """Count one run as done."""
        self.done += 1
        if self._bar is not None:
            self._bar.advance(self._bar.tasks[0].id)

    def _draw(self, text: str) -> None:
        if self._bar is None:
            self._bar = Bar(
                SpinnerColumn(),
                *([BarColumn(bar_width=20)] if self.total > 1 else []),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._bar.add_task(text, total=self.total, completed=self.done)
        self._bar.update(self._bar.tasks[0].id, description=text)


def download_progress() -> Bar:
    """Return a bar for a download."""
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(file=sys.stderr),
    )
