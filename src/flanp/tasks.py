"""Work that its round does not wait for."""

from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Tasks:
    """Some clients' tasks: of each array an entry for each task."""

    client: np.ndarray
    number: np.ndarray
    """The round that it was asked for in, whose model it is done from."""
    began: np.ndarray
    until: np.ndarray
    """When it is done, or lost."""
    tau: np.ndarray
    eta: np.ndarray
    T: np.ndarray
    """Seconds of a step."""
    exchange: np.ndarray
    """Seconds of the messages' ways."""
    ok: np.ndarray
    """Whether it will be done."""

    @classmethod
    def none(cls) -> "Tasks":
        """Return no tasks."""
        whole, real = np.zeros(0, int), np.zeros(0)
        return cls(whole, whole, real, real, whole, real, real, real, np.zeros(0, bool))

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """Its arrays."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def __len__(self) -> int:
        """How many there are."""
        return len(self.client)

    def __getitem__(self, which: np.ndarray) -> "Tasks":
        """Return some of them."""
        return Tasks(*(column[which] for column in self.columns))

    def __add__(self, more: "Tasks") -> "Tasks":
        """Return them and others."""
        if not len(more):
            return self
        if not len(self):
            return more
        pairs = zip(self.columns, more.columns, strict=True)
        return Tasks(*(np.concatenate(pair) for pair in pairs))

    def within(self, begin: float, end: float) -> tuple[np.ndarray, np.ndarray]:
        """Return each one's seconds of work and of transfer between two times."""
        seconds = np.minimum(self.until, end) - np.maximum(self.began, begin)
        seconds = np.maximum(seconds, 0.0)
        transfer = seconds * self.exchange / (self.tau * self.T + self.exchange)
        return seconds - transfer, transfer


NO_TASKS = Tasks.none()
