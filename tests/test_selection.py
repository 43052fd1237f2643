"""FedCS takes whoever fits the deadline; TiFL draws a tier, then clients of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp.availability import Always
from flanp.checks import BadInput
from flanp.oort import Oort
from flanp.participation import Everyone
from flanp.selection import FedCS, TiFL, change_probabilities, tier_losses

from observed import observed, rounds_of
from small import short_run

SECONDS = st.lists(st.sampled_from([1.0, 2.0, 2.5, 3.0, 7.0, 20.0, np.inf]), min_size=1)
TEN = [3.0, 1.0, 2.0, 10.0, 5.0, 4.0, 9.0, 6.0, 8.0, 7.0]


def greedy(seconds, deadline):
    """Return FedCS's choice, client by client."""
    chosen = []
    left = [i for i in range(len(seconds)) if np.isfinite(seconds[i])]
    while left:
        longest = max([seconds[i] for i in chosen], default=0.0)
        nearest = min(left, key=lambda i: max(longest, seconds[i]) - longest)
        if chosen and max(longest, seconds[nearest]) > deadline:
            break
        chosen.append(nearest)
        left.remove(nearest)
        if seconds[nearest] > deadline:
            break
    return set(chosen) or set(range(len(seconds)))


@given(SECONDS, st.sampled_from([0.5, 1.0, 2.2, 2.5, 6.0, 20.0]))
def test_fedcs_is_the_greedy_choice(seconds, deadline):
    policy, known = FedCS(deadline), observed(seconds)
    chosen, memory = policy.participants(len(seconds), known, {})
    assert len(chosen) == len({*chosen.tolist()})
    assert {*chosen.tolist()} == greedy(seconds, deadline)
    assert memory == {}


def test_fedcs_without_a_deadline_is_everyone():
    known = observed(TEN)
    policy = FedCS(deadline=1e12)
    assert policy.stages(10) == Everyone().stages(10)
    chosen = policy.select(10, known)
    np.testing.assert_array_equal(chosen, Everyone().select(10, known))


def test_fedcs_counts_the_exchange():
    known = observed([1.0, 2.0, 3.0])
    known.exchange[:] = [5.0, 0.0, 0.0]
    assert FedCS(deadline=4.0).select(3, known).tolist() == [1, 2]


def test_fedcs_goes_by_what_is_known_now_and_not_by_the_stages_ranking():
    known = observed([9.0, 1.0, 2.0], ranking=[0, 1, 2])
    assert FedCS(deadline=4.0).select(3, known).tolist() == [1, 2]
    assert FedCS(deadline=4.0, most=1).select(3, known).tolist() == [1]
    assert FedCS(deadline=0.1).select(3, known).tolist() == [1]


def test_fedcs_takes_strangers_only_if_all_are():
    assert FedCS(deadline=4.0).select(3, observed([np.inf, 1.0, 2.0])).tolist() == [1, 2]
    assert FedCS(deadline=4.0).select(3, observed([np.inf] * 3)).tolist() == [0, 1, 2]
    assert FedCS(deadline=4.0, most=2).select(3, observed([np.inf] * 3)).tolist() == [0, 1]


def test_fedcs_takes_at_most_so_many_the_fastest():
    assert FedCS(deadline=6.5, most=3).select(10, observed(TEN)).tolist() == [1, 2, 0]
    assert FedCS(deadline=2.5, most=3).select(10, observed(TEN)).tolist() == [1, 2]


@given(st.integers(1, 8), st.integers(1, 8), st.integers(8, 30), st.integers(0, 99), st.data())
def test_tifl_takes_clients_of_one_tier(k, tiers, N, seed, data):
    seconds = data.draw(st.lists(st.floats(0.1, 10), min_size=N, max_size=N))
    policy = TiFL(k=k, tiers=tiers, interval=2)
    policy.check(N)
    again = rounds_of(policy, seconds, lambda i, r: i % 3 + 1 / (r + 1), 6, seed=seed)
    trace = rounds_of(
        policy, seconds, lambda i, r: i % 3 + 1 / (r + 1), 6, seed=seed, through_json=True
    )
    assert trace == again
    groups = np.array_split(np.argsort(seconds, kind="stable"), tiers)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    for chosen, memory in trace:
        tier = groups[memory["tier"]].tolist()
        assert len(chosen) == min(k, len(tier))
        assert chosen == [i for i in tier if i in chosen]  # of the tier, once, fastest first


def tiers_drawn(policy, memory=None, reports=None, draws=4000, N=10):
    """Return how often each tier of N clients is drawn, in a round with a given memory."""
    count = np.zeros(policy.tiers)
    for seed in range(draws):
        known = observed(range(1, N + 1), reports, round=1, seed=seed)
        count[policy.choose(1, known, memory or {})[1]["tier"]] += 1
    return count / draws


def test_tifl_draws_tiers_equally_at_first_and_by_the_probabilities_later():
    policy = TiFL(k=1)
    np.testing.assert_allclose(tiers_drawn(policy), np.full(5, 0.2), atol=0.03)
    p = [0.0, 0.1, 0.2, 0.3, 0.4]
    memory = {"credits": [], "probabilities": p, "losses": [1.0] * 5, "tier": 0}
    np.testing.assert_allclose(tiers_drawn(policy, memory), p, atol=0.03)
    memory["credits"] = [1, 1, 0, 1, 0]  # which the paper's loop draws again
    np.testing.assert_allclose(tiers_drawn(policy, memory), [0, 0.25, 0, 0.75, 0], atol=0.03)


def test_tifl_draws_clients_of_a_tier_equally():
    count = np.zeros(12)
    for seed in range(3000):
        count[TiFL(k=2, tiers=2).select(2, observed(range(1, 13), seed=seed))] += 1
    np.testing.assert_allclose(count / 3000, np.full(12, 1 / 6), atol=0.03)


def test_the_less_accurate_a_tier_the_likelier():
    everyone = np.full(4, True)
    p = change_probabilities(np.array([0.3, 0.9, 0.1, 0.5]), everyone)
    np.testing.assert_allclose(p, [0.2, 0.4, 0.1, 0.3])
    p = change_probabilities(np.array([0.5, 0.5, 0.5, 0.9]), everyone)
    np.testing.assert_allclose(p, [0.3, 0.2, 0.1, 0.4])
    p = change_probabilities(np.array([0.3, 0.9, 0.1, 0.5]), np.array([True, False, True, True]))
    np.testing.assert_allclose(p, [2 / 6, 0, 1 / 6, 3 / 6])


def test_a_tiers_loss_is_the_mean_of_its_reports_and_without_any_it_is_the_least_accurate():
    reports = {0: (0, 1.0, 9.0), 1: (3, 3.0, 9.0), 4: (0, np.nan, 9.0), 6: (0, 7.0, 9.0)}
    known = observed(range(1, 9), reports, round=4)
    losses = tier_losses(np.array_split(known.ranking, 4), known)
    assert losses[:2].tolist() == [2.0, np.finfo(float).max]
    assert losses[2:].tolist() == [np.finfo(float).max, 7.0]
    assert change_probabilities(losses, np.full(4, True)).argmin() == 0


@pytest.mark.parametrize(
    ("round", "now", "changes"), [(4, 2.0, True), (4, 3.0, True), (4, 1.9, False), (3, 3.0, False)]
)
def test_tifl_changes_every_interval_if_the_last_tier_is_no_more_accurate(round, now, changes):
    policy = TiFL(k=1, tiers=2, interval=4)
    memory = {"credits": [], "probabilities": [0.5, 0.5], "losses": [2.0, 0.1], "tier": 0}
    reports = {0: (2, now, now), 3: (3, 1.0, 1.0)}
    _, after = policy.choose(1, observed([1.0, 2.0, 3.0, 4.0], reports, round=round), memory)
    assert after["probabilities"] == ([2 / 3, 1 / 3] if changes else [0.5, 0.5])
    assert after["losses"] == ([now, 1.0] if round == 4 else [2.0, 0.1])


def test_tifl_does_not_change_its_probabilities_in_the_first_round():
    policy = TiFL(k=1, tiers=2, interval=1)
    first = policy.choose(1, observed([1.0, 2.0]), {})[1]
    assert first["probabilities"] == [0.5, 0.5]


def test_tifl_uses_up_its_credits_and_then_draws_without():
    policy = TiFL(k=1, tiers=3, interval=5, credits=(7, 3, 1))
    trace = rounds_of(policy, range(1, 10), lambda i, r: 1.0, 60)
    drawn = [memory["tier"] for _, memory in trace]
    assert [drawn[:11].count(tier) for tier in range(3)] == [7, 3, 1]
    assert trace[10][1]["credits"] == [0, 0, 0]
    assert trace[11][1]["credits"] == []
    assert trace[11][1]["probabilities"] == [1 / 3] * 3
    assert {*drawn[11:]} == {0, 1, 2}


def test_tifl_forgets_a_tier_without_credits_when_probabilities_change():
    policy = TiFL(k=1, tiers=3, interval=5, credits=(1, 9, 9))
    memory = {"credits": [0, 9, 9], "probabilities": [0.2, 0.4, 0.4], "losses": [1.0] * 3}
    reports = dict.fromkeys(range(6), (4, 1.0, 1.0))
    _, after = policy.choose(1, observed(range(1, 7), reports, round=5), {**memory, "tier": 1})
    np.testing.assert_allclose(after["probabilities"], [0, 2 / 3, 1 / 3])


def test_tifl_goes_on_where_clients_have_gone():
    policy = TiFL(k=2, tiers=4, credits=(1, 1, 1, 1))
    assert policy.stages(3) == [1]
    trace = rounds_of(policy, [1.0, 2.0, 3.0], lambda i, r: 1.0, 12)
    assert sorted(memory["tier"] for _, memory in trace[:3]) == [0, 1, 2]
    assert {i for chosen, _ in trace for i in chosen} == {0, 1, 2}
    assert policy.stages(0) == [0]


def test_tifl_draws_a_tier_that_was_empty_when_probabilities_changed():
    policy = TiFL(k=1, tiers=2, credits=(1, 1))
    memory = {"credits": [0, 1], "probabilities": [1.0, 0.0], "losses": [1.0] * 2, "tier": 0}
    assert policy.choose(1, observed([1.0, 2.0], round=1), memory)[1]["tier"] == 1


@pytest.mark.parametrize(("k", "tiers", "N", "n"), [(3, 5, 50, 3), (30, 5, 50, 10), (9, 4, 10, 3)])
def test_tifls_stage_has_k_clients_or_a_whole_tier(k, tiers, N, n):
    assert TiFL(k=k, tiers=tiers).stages(N) == [n]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedCS(deadline=-1.0), "deadline = -1.0: it must be a number from 1e-09"),
        (lambda: FedCS(deadline=float("nan")), "deadline = nan"),
        (lambda: FedCS(deadline=1.0, most=0), "most = 0"),
        (lambda: TiFL(k=0), "k = 0"),
        (lambda: TiFL(k=1, tiers=2, credits=(1,)), "credits = [1]: it must be one number for each"),
        (lambda: TiFL(k=1, tiers=2, credits=(1, 0)), "credits[1] = 0"),
        (lambda: TiFL(k=1, interval=0), "interval = 0"),
        (lambda: TiFL(k=6, tiers=2).check(5), "k = 6: it must be at most the number of clients, 5"),
        (
            lambda: TiFL(k=1, tiers=6).check(5),
            "tiers = 6: it must be at most the number",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(make, message):
    with pytest.raises(BadInput) as error:
        make()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("policy", [TiFL(k=2, tiers=2), Oort(k=2)])
def test_a_round_that_nobody_answers_reports_no_losses(policy):
    run = short_run(participation=policy, availability=Always(dropouts=0.9), max_rounds=20)
    rows = run.to_the_end().rows[1:]
    assert {row.n for row in rows} >= {0, 1}
    answered = [row.round - 1 for row in rows if row.n]
    assert {*run.state.losses[:, 0].tolist()} <= {-1, *answered}
    assert run.state.losses[:, 0].max() == answered[-1]
