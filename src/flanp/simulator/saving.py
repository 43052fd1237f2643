"""A simulated model as named arrays, and back."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from flanp.checks import BadInput
from flanp.clock import Clock
from flanp.simulator.backend import Storage
from flanp.simulator.kept import Model, Past
from flanp.tasks import NO_TASKS, Tasks
from flanp.trees import Tree, leaves, rebuild

SERVER, CLIENTS, LATE, PAST = "server", "clients", "under way", "past"
REPORTS, ORDER, HEARD = "clock.reports", "clock.order", "heard"


def save_arrays(model: Model, clock: Clock, place: Storage) -> dict[str, np.ndarray]:
    """Return w, the states by name, with a row for each client by id, and what is under way."""
    arrays = {"w": model.w} | leaves(model.server, SERVER)
    named = {name: np.asarray(a) for name, a in arrays.items()}
    for name, rows in leaves(model.clients, CLIENTS).items():
        named[name] = np.asarray(rows)[place.row_of_client]
    if len(model.under_way):
        named[LATE] = np.array(model.under_way.columns, float)
    for number, past in model.past.items():
        kept = leaves(past._asdict(), f"{PAST}.{number}")
        named |= {name: np.asarray(a) for name, a in kept.items()}
    if len(model.heard):
        named[HEARD] = model.heard
    return named | save_clock(clock)


def save_clock(clock: Clock) -> dict[str, np.ndarray]:
    """Return what a clock remembers."""
    if clock.given is not None:
        return {}
    heard = [(i, *report) for i, reports in clock.reports.items() for report in reports]
    arrays = {REPORTS: np.array(heard, float).reshape(-1, 3)}
    return arrays if clock.order is None else arrays | {ORDER: clock.order}


def load_clock(arrays: dict[str, np.ndarray], clock: Clock) -> Clock:
    """Return a clock with what it remembered."""
    if REPORTS not in arrays:
        return clock
    heard = [(int(i), T, exchange) for i, T, exchange in arrays[REPORTS].tolist()]
    return replace(clock.hearing(heard), order=arrays.get(ORDER))


def require_names(arrays: dict[str, np.ndarray], names: Iterable[str]) -> set[str]:
    """Return the names, all of which the arrays must have."""
    needed = {*names}
    if not needed <= arrays.keys():
        raise BadInput(
            f"the checkpoint lacks {sorted(needed - arrays.keys())}: it is of a solver with "
            "another state. Start anew, or take the solver that it was made with"
        )
    return needed


def load_arrays(
    arrays: dict[str, np.ndarray], start: Model, clock: Clock, place: Storage
) -> tuple[Model, Clock]:
    """Return the model and the clock of `save_arrays`; `start` is a start model of the run."""
    require_names(arrays, {"w", *leaves(start.server, SERVER), *leaves(start.clients, CLIENTS)})

    def server(prefix: str) -> Tree:
        named = leaves(start.server, prefix)
        return rebuild(start.server, {name: place.put(arrays[name]) for name in named}, prefix)

    def one_past(prefix: str) -> Past:
        like = Past(start.w, start.server, start.w)._asdict()
        return Past(**rebuild(like, arrays, prefix))

    rows = {}
    for name, room in leaves(start.clients, CLIENTS).items():
        filled = np.zeros(room.shape, room.dtype)
        filled[place.row_of_client] = arrays[name]
        rows[name] = place.put_rows(filled)
    under_way = NO_TASKS
    if LATE in arrays:
        kinds = [column.dtype for column in NO_TASKS.columns]
        under_way = Tasks(*(a.astype(d) for a, d in zip(arrays[LATE], kinds, strict=True)))
    numbers = {name.split(".")[1] for name in arrays if name.startswith(f"{PAST}.")}
    past = {int(q): one_past(f"{PAST}.{q}") for q in sorted(numbers, key=int)}
    model = start._replace(
        w=place.put(arrays["w"]),
        server=server(SERVER),
        clients=rebuild(start.clients, rows, CLIENTS),
        under_way=under_way,
        past=past,
        heard=arrays.get(HEARD, start.heard),
    )
    return model, load_clock(arrays, clock)
