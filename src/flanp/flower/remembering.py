"""What the server keeps of its clients, for solvers that count those who take no part.

With such a solver the clients' states are the server's, and travel with each task: a client may
answer long after others have gone on, start anew or come back as another node, and nothing is lost.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from flanp.flower.replies import mean_over
from flanp.flower.wire import Answer
from flanp.solvers import Solver, Step
from flanp.trees import Tree, leaves, rebuild, transform

OWN, MEAN_OWN, HEARD = "own", "mean_own", "heard"


class Known(NamedTuple):
    """A client's state, as of its last message."""

    own: Tree
    round: int
    """The round that the message was of; -1 in a run that was resumed."""


class Past(NamedTuple):
    """A round that clients may still work for."""

    told: Tree
    """What they were told of the server's state."""
    clients: Mapping[str, Known]
    """The states that they were sent."""
    m_1: np.ndarray
    """The participants' mean first direction."""
    step: Step


class Came(NamedTuple):
    """The message of a client that nobody waited for."""

    client: str
    round: int
    answer: Answer


class Memories(NamedTuple):
    """The clients' states by name; nothing of it is changed, only replaced."""

    clients: Mapping[str, Known] = {}
    mean: Tree = ()
    """sum_j p_j times the state of client j, as far as the server's state counts it."""
    past: Mapping[int, Past] = {}


def own_of(solver: Solver, clients: Mapping[str, Known], name: str, w: np.ndarray) -> Tree:
    """Return a client's state; a client that was never heard has the start state."""
    return clients[name].own if name in clients else solver.join(w).own


def after_round(
    solver: Solver,
    memories: Memories,
    number: int,
    told: Tree,
    answers: Mapping[str, Answer],
    awaited: Iterable[str],
    m: np.ndarray,
    step: Step,
    w: np.ndarray,
) -> Memories:
    """Return the memories after a round with those who took part in it.

    `awaited` are those whose messages of this round are still to be counted.
    """
    replies = [*answers.values()]
    m_1 = mean_over(replies, [a.m if a.first is None else a.first for a in replies])
    past = Past(told, memories.clients, m_1.astype(w.dtype), step)
    new = {
        name: Known(_stepped(solver, past, name, answer.m, m, w), number)
        for name, answer in answers.items()
    }
    sent = {name: memories.clients[name] for name in awaited if name in memories.clients}
    past = past._replace(clients=sent)
    return memories._replace(
        clients={**memories.clients, **new}, past={**memories.past, number: past}
    )


def after_messages(
    solver: Solver, memories: Memories, came: Iterable[Came], w: np.ndarray
) -> Memories:
    """Return the memories after messages that nobody waited for; a newer one has been counted."""
    clients = dict(memories.clients)
    for name, number, answer in came:
        if number in memories.past and (name not in clients or clients[name].round < number):
            past = memories.past[number]
            clients[name] = Known(_stepped(solver, past, name, answer.m, past.m_1, w), number)
    return memories._replace(clients=clients)


def reckoned(
    solver: Solver, memories: Memories, s: Mapping[str, float], w: np.ndarray
) -> tuple[Memories, Tree]:
    """Return the memories with the mean over clients that hold s_j samples, and its change."""
    start, S = solver.join(w).own, sum(s.values())
    total = transform(lambda a: np.zeros(np.shape(a)), start)
    for name, s_j in s.items():
        p_j, own = s_j / S, own_of(solver, memories.clients, name, w)
        total = _combined(np.add, total, _times(p_j, own))
    before = memories.mean if leaves(memories.mean) else start
    change = transform(lambda a: a.astype(w.dtype), _combined(np.subtract, total, before))
    return memories._replace(mean=total), change


def forgotten(memories: Memories, numbers: Iterable[int]) -> Memories:
    """Return the memories with no other rounds than those that somebody works for."""
    needed = set(numbers)
    return memories._replace(past={q: past for q, past in memories.past.items() if q in needed})


def saved(memories: Memories) -> dict[str, np.ndarray]:
    """Return all that outlives a run; who works for a round does not."""
    names = json.dumps(sorted(memories.clients)).encode()
    own = {name: known.own for name, known in memories.clients.items()}
    arrays = {**leaves(own, OWN), **leaves(memories.mean, MEAN_OWN)}
    return {HEARD: np.frombuffer(names, np.uint8), **arrays}


def loaded(solver: Solver, arrays: dict[str, np.ndarray], w: np.ndarray) -> Memories:
    """Return the memories of `saved`."""
    names, start = json.loads(arrays[HEARD].tobytes()), solver.join(w).own
    own = rebuild(dict.fromkeys(names, start), arrays, OWN)
    mean = rebuild(start, arrays, MEAN_OWN) if MEAN_OWN in {k.split(".")[0] for k in arrays} else ()
    return Memories({name: Known(own[name], -1) for name in names}, mean)


def _stepped(
    solver: Solver, past: Past, name: str, m_i: np.ndarray, m: np.ndarray, w: np.ndarray
) -> Tree:
    own = own_of(solver, past.clients, name, w)
    after = solver.client_step(own, past.told, m_i, m, past.step)
    return transform(lambda a: np.asarray(a, w.dtype), after)


def _times(p: float, tree: Tree) -> Tree:
    return transform(lambda a: p * np.asarray(a, float), tree)


def _combined(f: Callable[[Tree, Tree], Tree], a: Tree, b: Tree) -> Tree:
    others = leaves(b)
    return rebuild(a, {name: f(x, others[name]) for name, x in leaves(a).items()})
