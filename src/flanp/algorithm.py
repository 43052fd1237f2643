"""Algorithm 1 of the paper: FLANP, for any solver, participation policy and stage rule.

The paper's letters: w is the global model, n the number of participants, N that of clients,
T_i the seconds that client i takes for a local step, tau_i the local steps it does in a round,
s_i its samples, eta_n and gamma_n the step sizes of the clients and of the server.
Algorithm 2 is this loop with the solver in solvers/fedgate.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flanp.engine import Clock, Engine, Round
from flanp.measurement import Measurement
from flanp.participation import Participation
from flanp.parts import Part
from flanp.solvers import Solver
from flanp.stage import Stage
from flanp.stopping import Memory, Sight, StageRule
from flanp.streams import Stream, generator
from flanp.work import Work


@dataclass(frozen=True)
class Method(Part):
    """The parts that make up a federated method."""

    solver: Solver
    participation: Participation
    stop: StageRule
    work: Work


class State(NamedTuple):
    """Where a run is, after a round: with it, the run can go on."""

    model: Any
    """The engine's hold on w and on the solver's states."""
    k: int = 0
    """Number of the stage."""
    r: int = 0
    """Rounds done in the stage."""
    rounds: int = 0
    """Rounds done in all."""
    time: float = 0.0
    """Virtual seconds."""
    memory: Memory = {}  # noqa: RUF012  never changed, only replaced
    """What the stage rule remembers."""
    active: np.ndarray | None = None
    """Who took part in the last round."""
    waiting: float = 0.0
    """Share of the last round that its participants spent waiting, on average."""


def flanp(
    engine: Engine, method: Method, clock: Clock, state: State, endless: bool = False
) -> Iterator[State]:
    """Run Algorithm 1 from a state; yield the state after each round.

    The paper's `while n <= N` never ends, since n = min(2n, N) never exceeds N. Here the
    stage with n = N runs to its own accuracy and is the last. Clients that come and go, and
    speeds that change, count from the next stage on. With `endless` that stage goes on until
    the caller stops, which is for runs to a common target, or until clients join.
    """
    k = state.k
    while True:
        if k > state.k or state.r == 0:
            state = state._replace(model=engine.restart(state.model), k=k, r=0)
        ranking = clock.ranking
        N, sizes = len(ranking), method.participation.sizes(len(ranking))
        n = sizes[min(k, len(sizes) - 1)]
        stage = Stage(k, max(k + 1, len(sizes)), n, N)
        eta_n, gamma_n = method.solver.step_sizes(stage)
        while True:
            rng = generator(clock.seed, Stream.PARTICIPATION, state.rounds)
            active = method.participation.participants(n, ranking, rng)
            tau = method.work.local_steps(clock.T[active], engine.s[active])
            upcoming = Round(state.rounds, active, tau, eta_n, gamma_n)
            if endless and n == sizes[-1]:
                if joined(clock, ranking):
                    break
            else:
                sight = method.stop.sight(stage, state.r)
                seen = look(engine, sight, state.model, upcoming)
                accurate, memory = method.stop.judged(state.memory, stage, state.r, seen)
                state = state._replace(memory=memory)
                if accurate:
                    break
            model = engine.round(state.model, *upcoming)
            seconds, waiting = clock.round_time(state.rounds, active, tau)
            time, r, rounds = state.time + seconds, state.r + 1, state.rounds + 1
            state = State(model, k, r, rounds, time, state.memory, active, waiting)
            yield state
        left = method.participation.sizes(len(clock.ranking))
        if n >= left[-1] and not joined(clock, ranking):
            return
        k += 1


def joined(clock: Clock, ranking: np.ndarray) -> bool:
    """Whether there are clients now that were not in the ranking."""
    now = clock.ranking
    return now is not ranking and not np.isin(now, ranking).all()


def look(engine: Engine, at: Sight, model: Any, upcoming: Round) -> Measurement | None:
    """Return what the stage rule looks at."""
    if at == "nothing":
        return None
    whole = at == "whole"
    of_active, of_all = engine.measure(model, upcoming.active, whole, upcoming)
    return of_all if at == "whole" else of_active
