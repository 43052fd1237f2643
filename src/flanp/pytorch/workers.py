"""Processes of one thread each, which do jobs side by side; vectors go through shared memory."""

import ctypes
import multiprocessing
import os
import signal
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, NoReturn

import numpy as np

from flanp.checks import BadInput, first_line

METHOD = "fork" if sys.platform == "linux" else "spawn"
"""How processes are started."""
VECTORS = 2
"""How many vectors a job takes, and returns, at the most."""

PATIENCE_SECONDS = 5.0
"""How long a process has to end before it is killed."""


class Job(NamedTuple):
    """Something to do: a method of `Working`."""

    method: str
    vectors: tuple[np.ndarray, ...]
    numbers: tuple[Any, ...] = ()


class Done(NamedTuple):
    """What came of a job."""

    vectors: list[np.ndarray]
    numbers: tuple[Any, ...]


class Workers:
    """Does jobs in the order in which they were asked for, as many at a time as there are cores.

    On Linux the processes are forks of this one, so that data need not be copied and a script needs
    no `if __name__` guard. They end with it.
    """

    def __init__(self, count: int, setup: Any, length: int, dtype: np.dtype):
        """Start the processes.

        Args:
            count: how many.
            setup: what `Working` is made of.
            length: of the longest vector.
            dtype: of all vectors.
        """
        if multiprocessing.current_process().daemon:
            raise BadInput(
                "problems.Torch starts processes, which one of a multiprocessing.Pool may not: use "
                "concurrent.futures.ProcessPoolExecutor"
            )
        context: Any = multiprocessing.get_context(METHOD)
        self._connections: list[Connection] = []
        self._rooms: list[np.ndarray] = []
        processes: list[Any] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            memory = context.RawArray(ctypes.c_byte, 2 * VECTORS * length * dtype.itemsize)
            self._connections.append(ours)
            self._rooms.append(_room(memory, dtype))
            inherited = tuple(self._connections) if METHOD == "fork" else ()
            process = context.Process(
                target=_serve, args=(theirs, inherited, memory, dtype, setup), daemon=True
            )
            with warnings.catch_warnings():
                # JAX and Python warn of threads that a fork does not have: it needs none of them.
                warnings.simplefilter("ignore")
                process.start()
            theirs.close()
            processes.append(process)
        self._processes = processes
        self._at_work: dict[Connection, int] = {}
        self._waiting: deque[tuple[int, Job]] = deque()
        self._done: dict[int, Done] = {}
        self._wanted: set[int] = set()
        self._tickets = 0
        self.close = weakref.finalize(self, _end, processes, self._connections, os.getpid())

    def each(self, jobs: Iterable[Job]) -> Iterator[Done]:
        """Yield what comes of each job, in their order; few are taken in advance."""
        ahead: deque[int] = deque()
        try:
            for job in jobs:
                ahead.append(self.submit(job))
                if len(ahead) > 2 * len(self._processes):
                    yield self.collect(ahead.popleft())
            while ahead:
                yield self.collect(ahead.popleft())
        finally:
            self.forget(ahead)

    def submit(self, job: Job) -> int:
        """Ask for a job; return the ticket with which to collect what comes of it."""
        self._tickets += 1
        self._wanted.add(self._tickets)
        self._waiting.append((self._tickets, job))
        self._hand_out()
        return self._tickets

    def collect(self, ticket: int) -> Done:
        """Return what came of a job, when it is done."""
        while ticket not in self._done:
            if not self.close.alive:
                raise BadInput("the worker processes of this run have ended: start it anew")
            for connection in wait(list(self._at_work)):
                assert isinstance(connection, Connection)
                self._receive(connection)
            self._hand_out()
        self._wanted.discard(ticket)
        return self._done.pop(ticket)

    def forget(self, tickets: Iterable[int]) -> None:
        """Drop jobs that nobody will collect."""
        dropped = {*tickets}
        if dropped:
            self._wanted -= dropped
            self._waiting = deque(pair for pair in self._waiting if pair[0] not in dropped)
            self._done = {k: done for k, done in self._done.items() if k not in dropped}

    def _hand_out(self) -> None:
        for connection, room in zip(self._connections, self._rooms, strict=True):
            if not self._waiting or not self.close.alive:
                return
            if connection not in self._at_work:
                ticket, job = self._waiting[0]
                lengths = _write(room[:VECTORS], job.vectors)
                try:
                    connection.send((job.method, lengths, job.numbers))
                except ConnectionError:
                    self._killed(connection)
                # An interrupt may come anywhere: nothing is noted before it is so.
                self._at_work[connection] = ticket
                self._waiting.popleft()

    def _receive(self, connection: Connection) -> None:
        place = self._connections.index(connection)
        try:
            failure, lengths, numbers = connection.recv()
        except (EOFError, ConnectionError):
            self._killed(connection)
        ticket = self._at_work.pop(connection)
        if failure is not None:
            self.close()
            raise BadInput(failure)
        if ticket in self._wanted:
            vectors = [v.copy() for v in _read(self._rooms[place][VECTORS:], lengths)]
            self._done[ticket] = Done(vectors, numbers)

    def _killed(self, connection: Connection) -> NoReturn:
        """Say that a process is gone, and end the others."""
        process = self._processes[self._connections.index(connection)]
        process.join()
        self.close()
        raise RuntimeError(
            f"a worker process was killed (exit code {process.exitcode}), maybe for want of "
            "memory: use fewer with devices, or smaller batches"
        ) from None


def _serve(
    connection: Connection,
    inherited: tuple[Connection, ...],
    memory: Any,
    dtype: np.dtype,
    setup: Any,
) -> None:
    """Do jobs until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()  # as long as one is open here, nobody sees that the parent is gone
    import torch

    from flanp.pytorch.working import Working

    torch.set_num_threads(1)
    room, working = _room(memory, dtype), Working(setup)
    while True:
        try:
            method, lengths, numbers = connection.recv()
            vectors = _read(room[:VECTORS], lengths)
            with np.errstate(all="ignore"):
                failure, made = _try(working, method, vectors, numbers)
            connection.send((failure, _write(room[VECTORS:], made.vectors), made.numbers))
        except (EOFError, ConnectionError):
            return


def _try(
    working: Any, method: str, vectors: list[np.ndarray], numbers: tuple[Any, ...]
) -> tuple[str | None, Done]:
    """Return what comes of a job, or in words what went wrong."""
    try:
        return None, Done(*getattr(working, method)(*vectors, *numbers))
    except BadInput as error:
        return str(error), Done([], ())
    except Exception as error:  # a user's own solver may raise anything
        return f"a client's work failed ({first_line(error)})", Done([], ())


def _end(processes: list[Any], connections: list[Connection], owner: int) -> None:
    """End processes; not from a fork, which has inherited what is its parent's."""
    if os.getpid() != owner:
        return
    for connection in connections:
        connection.close()
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(PATIENCE_SECONDS)  # one that has just begun may not hear the signal
        process.kill()
        process.join()


def _room(memory: Any, dtype: np.dtype) -> np.ndarray:
    """Return shared memory as rows: vectors to a worker first, then those from it."""
    return np.frombuffer(memory, dtype).reshape(2 * VECTORS, -1)


def _write(room: np.ndarray, vectors: Iterable[np.ndarray]) -> list[int]:
    lengths = []
    for row, vector in zip(room, vectors, strict=False):
        row[: len(vector)] = vector
        lengths.append(len(vector))
    return lengths


def _read(room: np.ndarray, lengths: list[int]) -> list[np.ndarray]:
    return [row[:length] for row, length in zip(room, lengths, strict=False)]
