"""Observers of a run: what shows it, saves it, or reports it elsewhere."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from flanp.checks import BadInput, first_line, is_ours
from flanp.ended import Ended, Reason
from flanp.history import Row
from flanp.parts import Within, check_is

if TYPE_CHECKING:
    from flanp.run import Run

    AnyRun = Run[Any]


class Hook:
    """Is told of what happens in a run; each method may be left out.

    A run calls its hooks in order. One that raises ends the run, which is saved before if
    another saves it.

    >>> class Last(Hook):
    ...     def on_row(self, run, row):
    ...         self.loss = row.loss
    """

    def on_round(self, run: "AnyRun") -> None:
        """A round is done: `run.state` is where the run is now."""

    def on_row(self, run: "AnyRun", row: Row) -> None:
        """A round was recorded."""

    def on_stage(self, run: "AnyRun", stage: dict[str, Any]) -> None:
        """A stage is over; `stage` is its summary, as in `History.stages`."""

    def on_end(self, run: "AnyRun", ended: Ended) -> None:
        """The run is over, for whatever reason."""


class Checkpointer(Hook):
    """Saves a run into a folder now and then, and at its end."""

    def __init__(self, folder: Path | str, every: float = 60.0):
        """Save into a folder, at most once in so many seconds; 0: after each round."""
        self.folder = check_is("folder", folder, Path)
        self.every = check_is("every", every, Annotated[float, Within(0, 1e9)])
        self._next = time.monotonic() + self.every

    def on_round(self, run: "AnyRun") -> None:
        """Save, if it is time to."""
        if time.monotonic() >= self._next and run.state.rounds:
            run.save(self.folder)
            self._next = time.monotonic() + self.every

    def on_end(self, run: "AnyRun", ended: Ended) -> None:
        """Save, with the model; of a run that diverged the history alone."""
        if not run.history.rows:
            return
        if ended.reason is Reason.DIVERGED:
            run.history.save(self.folder)
            return
        run.save(self.folder)
        run.save_params(self.folder)


def hooks_of(given: Any) -> tuple[Hook, ...]:
    """Return hooks that a user has given, or refuse them in words."""
    some = tuple(given) if isinstance(given, Iterable) else given
    hooks: tuple[Hook, ...] = check_is("hooks", some, tuple[Hook, ...], ". Give a list of them")
    return hooks


def tell(hooks: Iterable[Hook], event: str, run: "AnyRun", *what: Any) -> None:
    """Tell all hooks of an event, then raise what the first one of them raised."""
    failures: list[Exception] = []
    for hook in hooks:
        try:
            getattr(hook, event)(run, *what)
        except Exception as error:
            if is_ours(hook) and isinstance(error, BadInput | OSError):
                failures.append(error)
                continue
            failed = BadInput(
                f"the hook {type(hook).__name__}.{event} failed ({first_line(error)}): mend it, "
                "or run without it"
            )
            failed.__cause__ = error
            failures.append(failed)
    if failures:
        raise failures[0]
