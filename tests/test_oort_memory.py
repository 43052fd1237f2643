"""What Oort remembers from round to round: the pacer's, the blacklist's."""

import json

import pytest

from flanp.oort import Oort

from observed import FIVE, GREEDY, observed, reported, rounds_of


@pytest.mark.parametrize(
    ("worth", "after"),
    [
        ((1.0, 1.04, 1.04), (35.0, 40.0)),
        ((1.0, 2.0, 2.0), (30.0, 35.0)),
        ((1.0, 6.0, 6.0), (25.0, 30.0)),
        ((1.0, 1.0, 7.0), (35.0, 30.0)),
        ((1.0, 6.0, 0.5), (25.0, 25.0)),
    ],
)
def test_the_pacer_waits_longer_when_nothing_changes_and_shorter_when_all_does(worth, after):
    """Windows of 20 rounds; the first lacks round 0, in which nobody is chosen by score."""
    policy = Oort(k=2, over=1.0, exploration=0.0, exploration_min=0.0)
    trace = rounds_of(policy, [1.0] * 4, lambda i, r: worth[min(r // 20, 2)], 65, s=[1] * 4)
    thresholds = [memory["threshold"] for _, memory in trace]
    assert thresholds == [30.0] * 40 + [after[0]] * 20 + [after[1]] * 5
    assert trace[20][1]["before"] == pytest.approx(19 * worth[0])
    assert trace[40][1]["before"] == pytest.approx(20 * worth[1])


@pytest.mark.parametrize(
    ("before", "now", "threshold", "moved"),
    [
        (10.0, 11.0, 30.0, 35.0),
        (10.0, 9.0, 30.0, 35.0),
        (10.0, 11.1, 30.0, 30.0),
        (10.0, 59.0, 30.0, 30.0),
        (10.0, 60.0, 30.0, 25.0),
        (0.0, 0.0, 30.0, 35.0),
        (10.0, 10.0, 98.0, 100.0),
        (10.0, 60.0, 7.0, 5.0),
    ],
)
def test_the_pacer_moves_by_five_percentiles(before, now, threshold, moved):
    assert Oort(k=1).moved(threshold, before, now) == moved


def memory_of(**values):
    sums = {"round": 0, "threshold": 30.0, "window": 0.0, "before": 0.0}
    return {**sums, "exploited": [], "counts": [], **values}


def test_the_pacers_percentile_is_what_counts_as_slow():
    losses = [0.1, 0.2, 0.3, 0.4, 0.5]
    policy = Oort(k=2, over=1.0, clip=1.0, **{**GREEDY, "penalty": 9.0})
    slow, quick = (
        policy.choose(2, observed(FIVE, reported(losses), round=1), memory_of(threshold=T))[0]
        for T in (100.0, 20.0)
    )
    assert slow.tolist() == [3, 4]
    assert quick.tolist() == [1, 2]


def test_the_pacer_counts_those_who_were_chosen_by_score_and_have_answered():
    memory = memory_of(round=4, exploited=[1, 2, 3], window=1.0)
    reports = {0: (4, 1.0, 9.0), 1: (3, 1.0, 5.0), 2: (4, 1.0, 0.3), 3: (4, 1.0, 0.5)}
    known = observed(FIVE, reports, s=[10] * 5, round=5)
    _, after = Oort(k=2).choose(2, known, memory)
    assert after["window"] == pytest.approx(1.0 + (3 + 5) / 2)
    assert after["round"] == 5


def test_a_round_that_is_planned_twice_counts_once():
    policy = Oort(k=2, over=1.0, blacklist=3, pacer_step=5)
    memory = memory_of(round=4, exploited=[2], counts=[1, 2, 1, 0, 0])
    reports = dict.fromkeys(range(3), (4, 1.0, 1.0))
    chosen, once = policy.choose(2, observed(FIVE, reports, round=5), memory)
    again, twice = policy.choose(2, observed(FIVE, reports, round=5), once)
    assert chosen.tolist() == again.tolist()
    assert once == twice
    assert once["counts"] == [2, 3, 2, 0, 0]
    assert once["window"] == 0.0
    assert once["before"] == 10.0


def test_who_has_reported_too_often_is_put_aside():
    policy = Oort(k=4, over=1.0, blacklist=2, blacklist_share=0.6)
    counts = [9, 3, 2, 0, 5, 1, 0, 0, 7, 0]
    known = observed(range(1, 11), dict.fromkeys(range(10), (4, 1.0, 1.0)), round=5)
    memory = memory_of(round=5, counts=counts)
    assert policy.put_aside(4, known.ranking, memory).tolist() == [0, 8, 4, 1]
    assert not {0, 8, 4, 1} & {*policy.choose(4, known, memory)[0].tolist()}
    few = Oort(k=4, blacklist=2, blacklist_share=0.25)
    assert few.put_aside(4, known.ranking, memory).tolist() == [0, 8]
    assert policy.put_aside(9, known.ranking, memory).tolist() == [0]  # nine others are left
    assert len(policy.choose(10, observed(range(1, 11), round=5), memory)[0]) == 10
    assert Oort(k=4).put_aside(4, known.ranking, memory).size == 0


def test_without_a_blacklist_the_memory_does_not_grow_with_the_clients():
    trace = rounds_of(Oort(k=3), range(1, 201), lambda i, r: 1.0, 5)
    assert len(json.dumps(trace[-1][1])) < 200


def test_counts_follow_who_joins():
    policy = Oort(k=2, blacklist=5)
    known = observed(FIVE, dict.fromkeys(range(5), (0, 1.0, 1.0)), round=1)
    assert policy.choose(2, known, memory_of(counts=[1, 0]))[1]["counts"] == [2, 1, 1, 1, 1]
