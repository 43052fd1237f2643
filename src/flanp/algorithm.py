"""Algorithm 1 of the paper: FLANP, for any solver, participation policy and stage rule.

The paper's letters: w is the global model, n the number of participants, N that of clients,
T_i the seconds that client i takes for a local step, tau_i the local steps it does in a round,
s_i its samples, eta_n and gamma_n the step sizes of the clients and of the server.
Algorithm 2 is this loop with the solver in solvers/fedgate.py.
"""

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple

import numpy as np

from flanp.clock import Clock
from flanp.engine import NOBODY, Engine, M, Reply, Roll, Round
from flanp.measurement import Look, Seen
from flanp.method import Method
from flanp.participation import Known
from flanp.stage import Stage
from flanp.stopping import Memory


class State(NamedTuple, Generic[M]):
    """Where a run is, after a round: with it, the run can go on."""

    model: M
    """The engine's hold on w, on the solver's states and on what is under way."""
    clock: Clock
    """The time, and what is known of the clients' speeds."""
    k: int = 0
    """Number of the stage."""
    r: int = 0
    """Rounds done in the stage."""
    rounds: int = 0
    """Rounds done in all."""
    memory: Memory = {}  # noqa: RUF012  never changed, only replaced
    """What the stage rule remembers."""
    active: np.ndarray = np.zeros(0, int)
    """Whose work counted in the last round."""
    policy: Memory = {}  # noqa: RUF012
    """What the participation policy remembers."""
    losses: np.ndarray = np.zeros((0, 3))
    """What each client has reported of its loss: its round, the mean, the root mean square."""
    waiting: float = 0.0
    """Share of the last round that its participants spent waiting, on average."""
    sent: int = 0
    """Bytes that the clients have sent so far."""
    received: int = 0
    """Bytes that the clients have received so far."""
    spent: float = 0.0
    """Seconds that clients have spent so far on work and transfer, of use or not."""
    lost: float = 0.0
    """Those of them that came to nothing."""


class Moment(NamedTuple, Generic[M]):
    """What is known before a round is applied: it is the run's to record, or to stop at."""

    state: State[M]
    stage: Stage
    seen: Seen | None
    """What was seen of the state's model; None if nobody was asked."""
    accurate: bool
    """Whether the stage ends here."""


def flanp(
    engine: Engine[M],
    method: Method,
    state: State[M],
    seed: int,
    watch: Callable[[State[M]], Look | None],
) -> Iterator[Moment[M]]:
    """Run Algorithm 1 from a state; yield a moment for each model, before the next round.

    The paper's `while n <= N` never ends, since n = min(2n, N) never exceeds N. Here the
    stage with n = N runs to its own accuracy and is the last. Clients that come and go, and
    speeds that change, count from the next stage on. `watch` says what its caller wants to see
    of a model, beside what the stage rule looks at; None ends the run there.
    """
    k = state.k
    while True:
        if k > state.k or state.r == 0:
            model, clock = engine.restart(state.model), state.clock.unranked()
            state = state._replace(model=model, clock=clock, k=k, r=0)
        roll, state = called(engine, method, state)
        ranking = state.clock.ranking
        sizes = method.participation.sizes(len(ranking))
        n = sizes[min(k, len(sizes) - 1)]
        newcomers = strangers(roll.clients, ranking)  # of a stage that is gone on with
        stage = Stage(k, max(k + 1, len(sizes)), n, len(ranking), newcomers)
        eta_n, gamma_n = method.solver.step_sizes(stage)
        S_n = float(roll.s[method.participation.drawn_from(n, ranking)].sum())
        while (wish := watch(state)) is not None:
            round_, state = planned(method, n, state, roll, eta_n, gamma_n, S_n, seed)
            reply, accurate, memory = judged(engine, method, stage, state, round_, wish)
            yield Moment(state, stage, reply and reply.seen, accurate)
            state = state._replace(memory=memory)
            if accurate or reply is None:
                break
            state = advanced(state, engine.apply(state.model, reply), reply)
            there = roll.clients
            roll, state = called(engine, method, state)
            if roll.clients is not there:  # it is in most rounds of the simulator
                stage = stage._replace(newcomers=strangers(roll.clients, ranking))
        else:
            return
        left = method.participation.sizes(len(roll.clients))
        if n >= left[-1] and not stage.newcomers:
            return
        k += 1


def called(engine: Engine[M], method: Method, state: State[M]) -> tuple[Roll, State[M]]:
    """See who is there, hear how fast they say they are, and rank them once in a stage."""
    roll = engine.roll(state.model, state.clock.time)
    clock = state.clock.hearing(roll.heard).after(roll.seconds)
    if clock.order is None:
        N = len(roll.s)
        seconds = method.work.base(roll.s) * clock.T(N) + clock.exchange(N)
        clock = clock.ranked(roll.clients, seconds)
    return roll, state._replace(clock=clock)


def planned(
    method: Method,
    n: int,
    state: State[M],
    roll: Roll,
    eta_n: float,
    gamma_n: float,
    S_n: float,
    seed: int,
) -> tuple[Round, State[M]]:
    """Plan the next round: who takes part, and how many steps each does."""
    clock, s = state.clock, roll.s
    T, exchange = clock.T(len(s)), clock.exchange(len(s))
    known = Known(clock.ranking, T, exchange, s, method.work, state.rounds, state.losses, seed)
    active, memory = method.participation.participants(n, known, state.policy)
    round_ = Round(
        number=state.rounds,
        active=active,
        tau=method.work.local_steps(T[active], s[active], exchange[active]),
        eta=eta_n,
        gamma=gamma_n,
        pool=S_n,
        at=clock.time,
        T=T,
        exchange=exchange,
        ends=method.patience.limits(len(active)),
        background=absent(roll.clients, active) if method.solver.remembers_absent else NOBODY,
    )
    return round_, state._replace(policy=memory)


def absent(clients: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Return the clients that take no part."""
    return clients[~np.isin(clients, active)]


def judged(
    engine: Engine[M], method: Method, stage: Stage, state: State[M], round_: Round, wish: Look
) -> tuple[Reply | None, bool, Memory]:
    """Do a round's exchange and ask the stage rule; one that looks at nothing is asked before."""
    look = method.stop.sight(stage, state.r)
    if method.participation.sees_losses:
        wish |= Look.EACH
    if not look:
        accurate, memory = method.stop.judged(state.memory, stage, state.r, None)
        reply = None if accurate else engine.ask(state.model, round_, wish)
        return reply, accurate, memory
    reply = engine.ask(state.model, round_, look | wish)
    seen = reply.seen.at(look)
    accurate, memory = method.stop.judged(state.memory, stage, state.r, seen)
    if method.solver.remembers_absent and seen is not None:
        # Nobody takes part before it was heard, and the end waits for all.
        sizes = [*method.participation.sizes(stage.N), stage.N]
        accurate &= seen.clients >= sizes[min(stage.k + 1, len(sizes) - 1)]
    return reply, accurate, memory


def strangers(clients: np.ndarray, ranking: np.ndarray) -> int:
    """Return how many of the clients that are there are not among those that a stage knows."""
    return len(np.setdiff1d(clients, ranking))


def advanced(state: State[M], model: M, reply: Reply) -> State[M]:
    """Return the state after a round."""
    losses = state.losses
    if reply.seen.each is not None:
        losses = losses.copy() if len(losses) else np.full((len(reply.round.T), 3), -1.0)
        losses[reply.answered, 0] = state.rounds
        losses[reply.answered, 1:] = reply.seen.each
    return state._replace(
        model=model,
        losses=losses,
        clock=state.clock.hearing(reply.heard).after(reply.seconds),
        r=state.r + 1,
        rounds=state.rounds + 1,
        active=reply.answered,
        waiting=reply.spent.idle(len(reply.round.active), reply.seconds),
        sent=state.sent + reply.sent,
        received=state.received + reply.received,
        spent=state.spent + reply.spent.busy,
        lost=state.lost + float(reply.spent.lost.sum()),
    )
