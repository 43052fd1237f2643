"""A look at a solver before it runs, so that faults are told in words."""

import numpy as np

from flanp.checks import BadInput, calling, require
from flanp.solvers.asynchronous import Arrival, Arrived, AsyncSolver
from flanp.solvers.base import Solver, Step
from flanp.solvers.training import Training
from flanp.trees import Tree, Vector, as_arrays, leaves

SIZE = 6
"""Numbers in the model that a solver is tried on."""


def check_solver(solver: Solver | AsyncSolver) -> None:
    """Refuse a solver that the engines could not use, after one round of a tiny model by hand."""
    kind = type(solver).__name__
    with calling(f"hash({kind})", f"{kind} must be hashable: a frozen dataclass without lists"):
        hash(solver)
    rng = np.random.default_rng(0)
    w, g, w_i, Delta, u = rng.random((5, SIZE), np.float32)
    if not solver.compression.random:
        u = u[:0]
    step = Step(*np.array([0.1, 1.0, 2.0, 2.0, 1.0], np.float32))

    with calling(f"{kind}.server_start", "it must take w and return arrays, or ()"):
        server = as_arrays(solver.server_start(w))
    with calling(f"{kind}.client_start", "it must take w and return arrays, or ()"):
        client = as_arrays(solver.join(w))
    for name, state in (("server_start", server), ("client_start", client.own)):
        numbers = all(a.dtype.kind in "fiu" for a in leaves(state).values())
        if not numbers:
            raise BadInput(f"{kind}.{name} must return arrays of numbers, in tuples or dicts")
    with calling(f"{kind}.tell", "it must take the server's state and return what clients need"):
        told = as_arrays(solver.tell(server))
    with calling(f"{kind}.drift", "it must take (client, server) and return a vector, or 0"):
        drift = np.asarray(solver.drift(client.own, told))
    _has_shape(f"{kind}.drift", drift, ((), (SIZE,)))
    _check_direction(solver, g, drift, w_i, w)
    _check_local_step(solver, g, w)
    expected = "it must take (Delta_i, tau_i, client, server) and return a vector"
    with calling(f"{kind}.message", expected):
        message = solver.message(Delta, 2, client.own, told)
    _has_shape(f"{kind}.message", message, ((SIZE,),))
    name = type(solver.compression).__name__
    if solver.compression.biased and leaves(client.own) and not solver.remembers:
        raise BadInput(
            f"compression = {name}: {kind} keeps a state at the clients, which messages that lag "
            "behind lead astray: use QSGD, or FedAvg, FedNova, FedProx, FedOpt or DIANA"
        )
    compression = f"{name}.send"
    expected = "it must take (x, error, u) and return a vector and what is left; without "
    with calling(compression, f"{expected}`random = True` u is empty"):
        m_i, posted = solver.post(Delta, 2, client, told, u)
    _has_shape(compression, m_i, ((SIZE,),))
    if isinstance(solver, AsyncSolver):
        _check_arrive(solver, w, server, client.own, told, m_i)
        return
    expected = "it must take (client, server, m_i, m, step) and return the client's new state"
    with calling(f"{kind}.client_step", expected):
        after = solver.settle(client, told, posted, m_i, step)
    _same_form(f"{kind}.client_step", client.own, after.own)
    _same_form(compression, client.error, after.error)
    expected = "it must take (w, server, m, step) and return w and the server's new state"
    with calling(f"{kind}.server_step", expected):
        new_w, after = solver.server_step(w, server, m_i, step)
    _has_shape(f"{kind}.server_step", new_w, ((SIZE,),))
    _same_form(f"{kind}.server_step", server, after)


def _check_arrive(
    solver: AsyncSolver, w: Vector, server: Tree, own: Tree, told: Tree, m_i: Vector
) -> None:
    """Refuse an asynchronous solver whose step the engine could not use."""
    name = f"{type(solver).__name__}.arrive"
    with calling(f"{type(solver).__name__}.note", "it must take the server's state"):
        noted = as_arrays(solver.note(server))
    arrival = Arrival(w, told, noted, *np.array([1.0, 1.0, 3.0, 3.0, 2.0, 0.1, 1.0], np.float32))
    with calling(name, "it must take (w, server, own, m_i, arrival) and return an Arrived"):
        after = Arrived(*solver.arrive(w, server, own, m_i, arrival))
    _has_shape(name, after.w, ((SIZE,),))
    for number in (after.used, after.stepped):
        _has_shape(name, np.asarray(number), ((),))
    _same_form(name, server, after.server)
    _same_form(name, own, after.own)


def _check_direction(
    solver: Training, g: np.ndarray, drift: np.ndarray, w_i: np.ndarray, w: np.ndarray
) -> None:
    name = f"{type(solver).__name__}.direction"
    vectors = np.broadcast_arrays(g, drift, w_i, w)
    with calling(name, "it must take (g, drift, w_i, w) and return a vector"):
        whole = solver.direction(*vectors)
        halves = [solver.direction(*(v[h] for v in vectors)) for h in (np.s_[:2], np.s_[2:])]
    _has_shape(name, whole, ((SIZE,),))
    _by_coordinate(name, whole, halves)


def _check_local_step(solver: Training, g: np.ndarray, w: np.ndarray) -> None:
    local = solver.local
    name = f"{type(local).__name__}.step"

    def second(part: slice) -> Vector:
        start = local.start(w[part])
        _, memory = local.step(g[part], start)
        _same_form(name, start, memory)
        return local.step(g[part], memory)[0]

    with calling(name, "it must take (d_i, memory) and return a vector and the new memory"):
        whole, halves = second(np.s_[:]), [second(np.s_[:2]), second(np.s_[2:])]
    _has_shape(name, whole, ((SIZE,),))
    _by_coordinate(name, whole, halves)
    name, expected = f"{type(local).__name__}.length", "an array of positive numbers, like tau"
    with calling(name, f"it must take tau, an array, and return {expected}"):
        length = np.asarray(local.length(np.array([1, 2, 7])))
        ok = length.shape == (3,) and np.isfinite(length).all() and length.min() > 0
    require(bool(ok), f"{name}([1, 2, 7])", length.tolist(), expected)


def _by_coordinate(name: str, whole: np.ndarray, halves: list[np.ndarray]) -> None:
    if not np.allclose(whole, np.concatenate(halves), rtol=1e-4):
        raise BadInput(
            f"{name} must treat each coordinate by itself: of two parts of a vector it gives other "
            "values than of the whole. Norms and means belong into message or server_step"
        )


def _has_shape(name: str, value: Vector, shapes: tuple[tuple[int, ...], ...]) -> None:
    if isinstance(value, list | tuple):
        raise BadInput(f"{name} returned a {type(value).__name__}: it must be an array")
    value = np.asarray(value)
    if value.shape not in shapes or value.dtype.kind not in "fiu":
        wanted = " or ".join("a number" if shape == () else "a vector like w" for shape in shapes)
        raise BadInput(f"{name} returned {value.dtype}{list(value.shape)}: it must be {wanted}")


def _same_form(name: str, before: Tree, after: Tree) -> None:
    forms = [{p: _form(a) for p, a in leaves(as_arrays(tree)).items()} for tree in (before, after)]
    if forms[0] != forms[1]:
        raise BadInput(
            f"{name} returned a state of arrays {forms[1]}; it began as {forms[0]}, and must keep "
            "their names, shapes and kinds of numbers"
        )


def _form(a: np.ndarray) -> str:
    return f"{'whole' if a.dtype.kind in 'iu' else 'float'}{list(a.shape)}"
