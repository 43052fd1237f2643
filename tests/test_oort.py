"""Oort: scores by hand, exploration, cut-offs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp.checks import BadInput
from flanp.oort import Oort, percentile, slowness, utilities

from observed import FIVE, GREEDY, observed, reported, rounds_of


def test_the_score_of_five_clients_by_hand():
    rms = {0: 0.1, 1: 0.4, 2: 0.2, 3: 0.3, 4: 0.5}
    reports = {i: (i, 7.0, loss) for i, loss in rms.items()}  # the mean does not count
    s = [10, 10, 40, 10, 20]
    known = observed(FIVE, reports, s, round=5)
    np.testing.assert_allclose(utilities(known), [1, 4, 8, 3, 10])
    # Utilities 1, 3, 4, 8, 10; clip 0.6: the place int(5 * 0.6) = 3, that is 8.
    # T: the place int(5 * 0.3) = 1, that is 2 seconds; the others have (2/3)^2, (2/4)^2, (2/8)^2.
    silence = [math.sqrt(0.1 * math.log(6) / last) for last in (1, 2, 3, 4, 5)]
    gain = [(r - 0.999) / (10 - 0.999) for r in (1, 4, 8, 3, 8)]
    by_hand = [
        gain[0] + silence[0],
        gain[1] + silence[1],
        (gain[2] + silence[2]) * 4 / 9,
        (gain[3] + silence[3]) / 4,
        (gain[4] + silence[4]) / 16,
    ]
    policy = Oort(k=2, over=1.0, clip=0.6)
    T = percentile(known.seconds, policy.threshold)
    np.testing.assert_allclose(policy.scores(known, np.arange(5), T), by_hand)
    np.testing.assert_allclose(policy.scores(known, np.array([3]), 1.0), [(1 + silence[3]) / 16])

    count, draws = np.zeros(5), 4000  # one client alone is drawn in proportion to its score
    one = Oort(k=1, over=1.0, clip=0.6, exploration=0.0, exploration_min=0.0)
    for seed in range(draws):
        count[one.select(1, observed(FIVE, reports, s, round=5, seed=seed))] += 1
    np.testing.assert_allclose(count / draws, by_hand / np.sum(by_hand), atol=0.03)


def test_equal_losses_are_no_division_by_zero():
    policy, clients = Oort(k=1, uncertainty=0.0), np.arange(5)
    for loss, score in [(0.5, 1.0), (0.0, 0.0)]:
        known = observed(FIVE, reported([loss] * 5), round=1)
        np.testing.assert_allclose(policy.scores(known, clients, T=9.0), [score] * 5)


@given(
    st.integers(1, 12),
    st.floats(1, 2),
    st.integers(12, 30),
    st.integers(0, 99),
    st.sampled_from([None, 1, 3]),
    st.data(),
)
def test_oort_takes_so_many_different_clients_and_goes_on_from_a_file(
    k, over, N, seed, blacklist, data
):
    times = st.sampled_from([0.5, 1.0, 2.0, 50.0, np.inf])
    seconds = data.draw(st.lists(times, min_size=N, max_size=N))
    losses = data.draw(st.lists(st.sampled_from([0.0, 0.1, 3.0, np.nan]), min_size=N, max_size=N))
    policy = Oort(k=k, over=over, pacer_step=2, blacklist=blacklist)
    s = np.arange(N) + 1
    run = [seconds, lambda i, r: losses[i] / (r + 1), 7, s, seed]
    trace = rounds_of(policy, *run, through_json=True)
    assert trace == rounds_of(policy, *run)
    ranking = np.argsort(seconds, kind="stable").tolist()
    n = min(math.ceil(over * k - 1e-9), N)
    for chosen, memory in trace:
        assert len(chosen) == n
        assert chosen == [i for i in ranking if i in chosen]
        assert {*memory["exploited"]} <= {*chosen}


def test_with_equal_losses_the_fastest_are_chosen():
    seconds = [5.0, 1.0, 4.0, 2.0, 3.0, 6.0]
    policy = Oort(k=3, over=1.0, threshold=0.0, **GREEDY)
    for seed in range(20):
        known = observed(seconds, reported([0.7] * 6), round=1, seed=seed)
        assert policy.select(3, known).tolist() == [1, 3, 4]


def test_among_the_quick_ones_the_highest_losses_are_chosen():
    losses = [0.1, 0.5, 0.2, 0.9, 0.3, 0.4]
    policy = Oort(k=3, over=1.0, threshold=100.0, clip=1.0, **GREEDY)
    for seed in range(20):
        known = observed([5.0, 1.0, 4.0, 2.0, 3.0, 6.0], reported(losses), round=1, seed=seed)
        assert {*policy.select(3, known).tolist()} == {1, 3, 5}


def test_those_who_have_long_been_silent_are_chosen():
    policy = Oort(k=2, over=1.0, threshold=100.0, **{**GREEDY, "uncertainty": 0.1})
    reports = {i: (last, 0.5, 0.5) for i, last in enumerate([30, 2, 20, 1, 10])}
    assert {*policy.select(2, observed(FIVE, reports, round=31)).tolist()} == {1, 3}


def test_new_clients_are_drawn_by_speed():
    """Nobody has reported: weights (T / t)^2 beyond T = 2 seconds, so the faster the likelier."""
    count, draws = np.zeros(5), 4000
    policy = Oort(k=1, over=1.0)
    for seed in range(draws):
        count[policy.select(1, observed(FIVE, seed=seed))] += 1
    weights = np.array([1, 1, 4 / 9, 1 / 4, 1 / 16])
    np.testing.assert_allclose(count / draws, weights / weights.sum(), atol=0.03)
    assert (np.diff(slowness(np.array(FIVE), T=1.0, alpha=2.0)) < 0).all()


def test_new_clients_are_drawn_by_their_samples_too():
    count, draws = np.zeros(3), 3000
    for seed in range(draws):
        known = observed([1.0, 1.0, 1.0], s=[10, 20, 70], seed=seed)
        count[Oort(k=1, over=1.0).select(1, known)] += 1
    np.testing.assert_allclose(count / draws, [0.1, 0.2, 0.7], atol=0.03)


def test_new_clients_are_drawn_from_the_window_of_the_heaviest():
    seen = set()
    for seed in range(200):
        known = observed(range(1, 31), seed=seed)
        seen |= {*Oort(k=2, over=1.0, threshold=0.0, window=3.0).select(2, known).tolist()}
    assert seen == set(range(6))


def test_strangers_come_last():
    known = observed([np.inf, 3.0, np.inf, 1.0, 2.0])
    assert Oort(k=3, over=1.0).select(3, known).tolist() == [3, 4, 1]
    assert len(Oort(k=3, over=1.0).select(3, observed([np.inf] * 5))) == 3
    assert percentile(np.array([np.inf, 2.0, np.inf, 1.0, np.inf]), 60) == 2.0


@pytest.mark.parametrize(("cut_off", "best"), [(1.0, 2), (0.5, 3), (0.1, 5)])
def test_only_scores_above_the_cut_off_are_drawn(cut_off, best):
    policy = Oort(k=2, over=1.0, threshold=100.0, clip=1.0, **{**GREEDY, "cut_off": cut_off})
    losses = [1.0, 0.9, 0.6, 0.3, 0.2, 0.01]  # of the second score: 1.1, 1, 0.66, 0.33, 0.2, 0
    seen = set()
    for seed in range(300):
        known = observed([1.0] * 6, reported(losses), round=1, seed=seed)
        seen |= {*policy.select(2, known).tolist()}
    assert seen == set(range(best))


def test_fedscale_draws_from_ten_times_as_many_whatever_the_cut_off():
    policy = Oort(k=1, over=1.0, threshold=100.0, **{**GREEDY, "augment": 10.0})
    seen = set()
    for seed in range(500):
        losses = [1.0 - i / 100 for i in range(20)]
        known = observed([1.0] * 20, reported(losses), round=1, seed=seed)
        seen |= {*policy.select(1, known).tolist()}
    assert seen == set(range(10))


@pytest.mark.parametrize(("rounds", "new"), [(1, 8), (5, 8), (20, 6), (54, 3), (55, 3), (500, 3)])
def test_exploration_decays_to_its_least_share(rounds, new):
    assert new == int(10 * max(0.9 * 0.98**rounds, 0.3))
    reports = dict.fromkeys(range(20), (0, 1.0, 1.0))
    known = observed([1.0] * 40, reports, round=rounds)
    chosen = Oort(k=10, over=1.0).select(10, known)
    assert np.sum(chosen >= 20) == new


def test_where_one_kind_is_short_the_other_fills_the_round():
    policy = Oort(k=6, over=1.0)
    assert len(policy.select(6, observed([1.0] * 8, reported([1.0] * 8), round=1))) == 6
    chosen = policy.select(6, observed([1.0] * 8, reported([1.0] * 7), round=1)).tolist()
    assert len(chosen) == 6
    assert 7 in chosen
    chosen = policy.select(6, observed([1.0] * 8, reported([1.0]), round=1)).tolist()
    assert len(chosen) == 6
    assert 0 in chosen


def test_reports_of_fewer_clients_than_there_are():
    known = observed(FIVE, {0: (0, 1.0, 1.0)}, round=1)
    known.losses.resize((3, 3), refcheck=False)
    assert utilities(known).tolist() == [10.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(("k", "over", "N", "n"), [(10, 1.3, 100, 13), (10, 1.1, 100, 11)])
def test_more_are_asked_than_needed(k, over, N, n):
    assert Oort(k=k, over=over).stages(N) == [n]
    assert Oort(k=k, over=over).stages(k) == [k]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Oort(k=6).check(5), "k = 6: it must be at most the number of clients, 5"),
        (lambda: Oort(k=0), "k = 0"),
        (lambda: Oort(k=1, over=0.9), "over = 0.9"),
        (lambda: Oort(k=1, exploration=1.1), "exploration = 1.1"),
        (lambda: Oort(k=1, threshold=101), "threshold = 101"),
        (lambda: Oort(k=1, clip=-0.1), "clip = -0.1"),
        (lambda: Oort(k=1, blacklist=-1), "blacklist = -1"),
        (lambda: Oort(k=1, pacer_step=0), "pacer_step = 0"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, message):
    with pytest.raises(BadInput) as error:
        make()
    assert message in str(error.value)
    assert "\n" not in str(error.value)
