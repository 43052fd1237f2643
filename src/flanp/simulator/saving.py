"""A simulated model as named arrays, and back."""

import math
from dataclasses import replace

import jax
import numpy as np

from flanp.checks import BadInput
from flanp.clock import MEMORY, Clock
from flanp.engine import Late
from flanp.simulator.machine import Model
from flanp.simulator.placement import Placement
from flanp.trees import Tree, leaves, rebuild

SERVER, CLIENTS, LATE, PAST = "server", "clients", "under way", "past"
REPORTS, ORDER = "clock.reports", "clock.order"


def save_arrays(model: Model, clock: Clock, place: Placement) -> dict[str, np.ndarray]:
    """Return w, the states by name, with a row for each client by id, and what is under way."""
    arrays = {"w": model.w} | leaves(model.server, SERVER)
    named = {name: np.asarray(a) for name, a in arrays.items()}
    for name, rows in leaves(model.clients, CLIENTS).items():
        named[name] = np.asarray(rows)[place.row_of_client]
    if model.under_way:
        named[LATE] = np.array(model.under_way, float)
    for number, (w, server) in model.past.items():
        past = {f"{PAST}.{number}.w": w} | leaves(server, f"{PAST}.{number}.{SERVER}")
        named |= {name: np.asarray(a) for name, a in past.items()}
    if clock.given is None:
        padded = [
            (i, *([math.nan] * (MEMORY - len(reports))), *reports)
            for i, reports in clock.reports.items()
        ]
        named[REPORTS] = np.array(padded, float).reshape(-1, MEMORY + 1)
        if clock.order is not None:
            named[ORDER] = clock.order
    return named


def load_arrays(
    arrays: dict[str, np.ndarray], start: Model, clock: Clock, place: Placement
) -> tuple[Model, Clock]:
    """Return the model and the clock of `save_arrays`; `start` is a start model of the run."""

    def everywhere(a: np.ndarray) -> jax.Array:
        return jax.device_put(a, place.everywhere)

    needed = {"w", *leaves(start.server, SERVER), *leaves(start.clients, CLIENTS)}
    if not needed <= arrays.keys():
        raise BadInput(
            f"the checkpoint lacks {sorted(needed - arrays.keys())}: it is of a solver with "
            "another state. Start anew, or take the solver that it was made with"
        )

    def server(prefix: str) -> Tree:
        named = leaves(start.server, prefix)
        return rebuild(start.server, {name: everywhere(arrays[name]) for name in named}, prefix)

    rows = {}
    for name, room in leaves(start.clients, CLIENTS).items():
        filled = np.zeros(room.shape, room.dtype)
        filled[place.row_of_client] = arrays[name]
        rows[name] = jax.device_put(filled, place.on_clients)
    late = arrays.get(LATE, np.zeros((0, len(Late._fields))))
    under_way = tuple(
        Late(int(i), int(q), t, int(tau), eta, T) for i, q, t, tau, eta, T in late.tolist()
    )
    past = {
        q: (everywhere(arrays[f"{PAST}.{q}.w"]), server(f"{PAST}.{q}.{SERVER}"))
        for q in sorted({late.number for late in under_way})
    }
    if REPORTS in arrays:
        rows_of = arrays[REPORTS].tolist()
        heard = [(int(i), v) for i, *reports in rows_of for v in reports if not math.isnan(v)]
        clock = replace(clock.hearing(heard), order=arrays.get(ORDER))
    model = start._replace(
        w=everywhere(arrays["w"]),
        server=server(SERVER),
        clients=rebuild(start.clients, rows, CLIENTS),
        under_way=under_way,
        past=past,
    )
    return model, clock
