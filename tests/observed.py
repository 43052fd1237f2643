"""What a server may have observed, made by hand: policies are functions of it and of a memory."""

import json

import numpy as np

from flanp.participation import Known
from flanp.work import Equal

FIVE = [1.0, 2.0, 3.0, 4.0, 8.0]
GREEDY = dict(exploration=0.0, exploration_min=0.0, cut_off=1.0, augment=1.0, uncertainty=0.0)
"""No new clients, no dice, no silence: only those with the highest scores."""


def observed(seconds, reports=None, s=None, round=0, seed=0, ranking=None):
    """Return what is known of clients that need some seconds for a round.

    reports: for some clients the round of their last report, their mean loss and its root mean
    square.
    """
    seconds = np.array(seconds, float)
    N = len(seconds)
    losses = np.zeros((0, 3)) if reports is None else np.full((N, 3), -1.0)
    for client, row in (reports or {}).items():
        losses[client] = row
    return Known(
        ranking=np.argsort(seconds, kind="stable") if ranking is None else np.array(ranking),
        T=seconds,
        exchange=np.zeros(N),
        s=np.full(N, 10) if s is None else np.array(s),
        work=Equal(tau=1),
        round=round,
        losses=losses,
        seed=seed,
    )


def rounds_of(policy, seconds, loss, rounds, s=None, seed=0, through_json=False):
    """Return the participants and the memory of each round; all of them answer.

    loss: what a client reports in a round.
    through_json: whether the memory goes through a file in every round.
    """
    n = policy.stages(len(seconds))[0]
    reports, memory, trace = {}, {}, []
    for r in range(rounds):
        known = observed(seconds, reports if r else None, s, r, seed)
        chosen, memory = policy.participants(n, known, memory)
        if through_json:
            memory = json.loads(json.dumps(memory, allow_nan=False))
        reports |= {int(i): (r, loss(int(i), r), loss(int(i), r)) for i in chosen}
        trace.append((chosen.tolist(), memory))
    return trace


def reported(losses, round=0):
    """Return the reports of clients with these losses; None for one that has sent none."""
    return {i: (round, loss, loss) for i, loss in enumerate(losses) if loss is not None}
