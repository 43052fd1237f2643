"""Asynchronous methods: where they equal others, where they end, and that they go on."""

import numpy as np
import pytest

from flanp import BadInput, Method, availability, network, prepare
from flanp.data import from_clients
from flanp.participation import Everyone, FastestK
from flanp.patience import All, First
from flanp.problems import LinearRegression
from flanp.solvers import (
    CA2FL,
    IAG,
    FedAsync,
    FedAvg,
    FedBuff,
    Rennala,
    Ringleader,
    Ringmaster,
    Tracking,
)
from flanp.speeds import Drift, Exponential, Homogeneous, Measured, Uniform
from flanp.stopping import FixedRounds, Never
from flanp.work import Equal

from small import history_bytes, linear_clients, simulation
from test_async_oracle import clients as different_clients

N, ETA = 5, 0.05
DISTINCT = Measured((1.3, 1.0, 2.7, 1.9, 6.1))
EQUAL = Homogeneous(2.0)


def run_of(solver, speeds, data=None, tau=3, rounds=6, **options):
    data = linear_clients(N, unequal=True) if data is None else data
    participation = options.pop("participation", Everyone())
    patience = options.pop("patience", All())
    method = Method(solver, participation, Never(), Equal(tau=tau), patience)
    options = {"precision": "float64", "max_rounds": rounds, **options}
    return prepare(LinearRegression(), from_clients(data), method, speeds, **options)


def trace(run):
    """Return the times and the models of a run, from its start on."""
    return zip(*((row.time, np.asarray(run.state.model.w)) for row in run), strict=True)


def gradient(client, w):
    x, y = client
    return x.T @ (x @ w - y) / len(y)


@pytest.mark.parametrize("solver", [FedBuff(ETA, 0.9, K=N), CA2FL(ETA, 0.9, K=N)])
def test_a_buffer_of_everyone_at_equal_speeds_is_fedavg(solver):
    times, models = trace(run_of(solver, EQUAL))
    expected_times, expected = trace(run_of(FedAvg(ETA, 0.9), EQUAL))
    assert times == expected_times
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-14)
    assert np.linalg.norm(models[-1]) > 0.3


@pytest.mark.parametrize("solver", [FedBuff(ETA, K=3), CA2FL(ETA, K=3)])
def test_a_buffer_of_those_at_work_is_fedavg_of_them(solver):
    _, models = trace(run_of(solver, EQUAL, participation=FastestK(3)))
    _, expected = trace(run_of(FedAvg(ETA), EQUAL, participation=FastestK(3)))
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("solver", [Ringmaster(ETA, R=1), Rennala(ETA, S=1)])
def test_without_patience_the_fastest_client_is_alone(solver):
    """All others' messages are a step old at least."""
    data = linear_clients(N, unequal=True)
    run = run_of(solver, DISTINCT, data, tau=1)
    weight = len(data[1][1]) / np.mean([len(y) for _, y in data])
    path = [np.zeros(3)]
    for _ in range(40):
        path.append(path[-1] - ETA * weight * gradient(data[1], path[-1]))
    for row in run:
        steps = int(run.state.model.traffic.steps)
        assert steps == int(row.time / 1.0 + 1e-9)
        np.testing.assert_allclose(run.state.model.w, path[steps], rtol=0, atol=1e-14)
        assert row.sent == row.round * N * 3 * 8
    assert steps > 10


def test_the_first_step_of_ringleader_is_that_of_all_data():
    times, models = trace(run_of(Ringleader(ETA, 0.9), EQUAL, rounds=1))
    expected_times, expected = trace(run_of(FedAvg(ETA, 0.9), EQUAL, rounds=1))
    assert times == expected_times
    np.testing.assert_allclose(models[1], expected[1], rtol=0, atol=1e-15)
    # At other speeds it is done when the slowest has sent its first message.
    run = run_of(Ringleader(ETA, 0.9), DISTINCT, rounds=25, patience=First(1))
    at, w = next((time, w) for time, w in zip(*trace(run), strict=True) if w.any())
    assert at == pytest.approx(3 * 6.1)
    np.testing.assert_allclose(w, expected[1], rtol=0, atol=1e-15)


def test_mixing_with_weight_one_is_the_sgd_of_the_only_client():
    data = linear_clients(1)
    solver = FedAsync(ETA, alpha=1.0, adapt="constant", rho=0.0)
    w, models = np.zeros(3), [*trace(run_of(solver, Measured((0.7,)), data, tau=4))][1]
    for got in models[1:]:
        for _ in range(4):
            w = w - ETA * gradient(data[0], w)
        np.testing.assert_allclose(got, w, rtol=0, atol=1e-14)


def test_iag_at_equal_speeds_adds_the_sums_so_far():
    data = linear_clients(N, unequal=True)
    _, models = trace(run_of(IAG(ETA), EQUAL, data, tau=1, rounds=2))
    share = np.array([len(y) for _, y in data]) / sum(len(y) for _, y in data)
    last, w = np.zeros((N, 3)), np.zeros(3)
    for got in models[1:]:
        new = [gradient(client, w) for client in data]  # all are sent the model at once
        for i in range(N):
            last[i] = new[i]
            w = w - ETA * share @ last
        np.testing.assert_allclose(got, w, rtol=0, atol=1e-14)


UNEQUAL = Measured((1.0, 1.375, 2.125, 3.5, 5.75))


@pytest.mark.parametrize(
    "solver",
    [
        IAG(0.04),
        CA2FL(0.1, K=3),
        Ringleader(0.1),
        Tracking(0.1, rho=0.3, cap=None),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_unbiased_methods_reach_the_minimiser_over_all_and_stay(solver):
    run = run_of(solver, UNEQUAL, different_clients(), tau=1, rounds=700, record_every=100)
    rows = list(run)
    assert rows[1].metrics["distance"] > 1e-8
    assert [row.metrics["distance"] < 1e-10 for row in rows[-2:]] == [True, True]
    assert rows[-1].grad_norm_sq < 1e-20


@pytest.mark.parametrize(
    "solver",
    [FedAsync(0.1, rho=0.0), FedBuff(0.1, K=3), Rennala(0.1, S=3), Ringmaster(0.05, R=5)],
    ids=lambda solver: type(solver).__name__,
)
def test_biased_methods_end_elsewhere_at_the_cost_of_the_slow(solver):
    data = different_clients()
    run = run_of(solver, UNEQUAL, data, tau=1, rounds=300, record_every=300)
    assert list(run)[-1].metrics["distance"] > 0.3
    (x, y), w = data[-1], np.asarray(run.state.model.w)
    w_star = np.linalg.lstsq(*(np.concatenate(rows) for rows in zip(*data, strict=True)))[0]
    assert np.mean((x @ w - y) ** 2) > 1.2 * np.mean((x @ w_star - y) ** 2)


def test_tracking_is_nearer_to_the_minimiser_than_without():
    ends = {}
    for solver in (Tracking(0.05, cap=None), Ringmaster(0.02, R=100)):
        run = run_of(solver, UNEQUAL, different_clients(), tau=1, rounds=200, record_every=200)
        ends[type(solver)] = list(run)[-1].metrics["distance"]
    assert ends[Tracking] < 0.3 * ends[Ringmaster]


def test_tracking_with_one_client_is_its_gradient_descent():
    data = different_clients()[:1]
    _, models = trace(run_of(Tracking(ETA), Measured((1.0,)), data, tau=1, rounds=5))
    w = np.zeros(3)
    for got in models[1:]:
        w = w - ETA * gradient(data[0], w)
        np.testing.assert_allclose(got, w, rtol=0, atol=1e-14)


ROUGH = {
    "speeds": Exponential(jitter=0.6, known=False, change=Drift(0.5, 20.0)),
    "network": network.Exchange(0.5),
    "availability": availability.Random(away=0.2, period=4.0, dropouts=0.2),
    "stop": FixedRounds(4),
    "work": Equal(tau=2, batch=6),
}
SOLVERS = [
    FedAsync(ETA),
    FedBuff(ETA, K=3),
    Rennala(ETA, S=3),
    Ringmaster(ETA, R=4),
    Ringleader(ETA),
    CA2FL(ETA, K=3),
    IAG(0.01),
    Tracking(ETA),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_resume_is_the_uninterrupted_run_bit_for_bit(tmp_path, solver):
    """Also with jitter, with clients that come and go or drop out, and with speeds to be learnt."""
    kind = {"solver": solver, **ROUGH}
    run = simulation(**kind)
    whole = history_bytes(run, tmp_path / "whole")
    assert len(run.history.rows) > 9
    assert run.history.end("lost") > 0
    first = simulation(**kind, max_rounds=5)
    list(first)
    first.save(tmp_path / "cut")
    assert np.isfinite(first.state.model.flights.due).any()
    again = simulation(**kind, resume=tmp_path / "cut")
    assert again.state.rounds == 5
    assert history_bytes(again, tmp_path / "cut") == whole
    assert (np.asarray(again.state.model.w) == np.asarray(run.state.model.w)).all()


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_the_order_of_clients_in_the_input_does_not_matter(solver):
    kind = {"solver": solver, "participation": Everyone(), "stop": Never(), "max_rounds": 12}
    kind |= {"speeds": Uniform()}
    rows = list(simulation(**kind))
    assert list(simulation(order=[3, 0, 6, 1, 5, 2, 4], **kind)) == rows
    assert rows[-1].loss < rows[0].loss


@pytest.mark.parametrize("cap", [None, 1.0, 3.0])
def test_a_client_sends_at_most_so_many_messages_while_the_median_sends_one(cap):
    solver, T = IAG(0.001, cap=cap), (0.01, 0.9, 1.0, 1.1, 1.2)
    run = run_of(solver, Measured(T), tau=1, rounds=40 if cap else 200)
    list(run)
    flights, time = run.state.model.flights, run.state.clock.time
    assert time > 1
    if cap is None:
        assert flights.number[0] > 90 * time
        return
    # Those who take longer than the least period are as fast as without.
    assert flights.number[0] <= cap * time + 1
    assert flights.number[0] >= 0.95 * cap * time
    least = 1.0 / cap
    for i in range(1, N):
        assert flights.number[i] == pytest.approx(time / max(T[i], least), abs=1.01)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FedBuff(ETA, K=0), "K = 0: it must be a whole number from 1 to"),
        (lambda: CA2FL(ETA, K=-1), "K = -1: it must be a whole number from 1 to"),
        (lambda: Rennala(ETA, S=0), "S = 0: it must be a whole number from 1 to"),
        (lambda: Ringmaster(ETA, R=0), "R = 0: it must be a whole number from 1 to"),
        (lambda: Ringmaster(ETA, R=2.5), "R = 2.5: it must be a whole number from 1 to"),
        (lambda: IAG(ETA, cap=0.5), "cap = 0.5: it must be"),
        (lambda: Tracking(ETA, cap=0), "cap = 0"),
        (lambda: Tracking(ETA, rho=0.0), "rho = 0.0: it must be a number above 0 to 1"),
        (lambda: FedAsync(ETA, alpha=1.5), "alpha = 1.5: it must be a number above 0 to 1"),
        (lambda: FedAsync(ETA, adapt="linear"), "adapt = 'linear'"),
    ],
)
def test_bad_numbers_are_refused(make, words):
    with pytest.raises(BadInput) as error:
        make()
    assert words in str(error.value)
    assert "\n" not in str(error.value)
