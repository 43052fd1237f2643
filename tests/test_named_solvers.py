"""The solvers that the paper names beside its own: their limiting cases, inside FLANP and alone."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from flanp import Method, prepare
from flanp.checks import BadInput
from flanp.compression import QSGD, Compression, TopK
from flanp.data import from_clients
from flanp.participation import Everyone, Growing, RandomK
from flanp.patience import All, Quorum
from flanp.problems import LinearRegression
from flanp.solvers import (
    DIANA,
    FedAvg,
    FedGATE,
    FedNova,
    FedOpt,
    FedProx,
    FedSplit,
    Momentum,
    Scaffold,
    Solver,
    Step,
)
from flanp.speeds import Measured
from flanp.stopping import FixedRounds, Never
from flanp.work import Equal

from small import linear_clients, models, run

NAMED = [
    DIANA(eta=0.05),
    DIANA(eta=0.05, compression=QSGD(bits=6)),
    FedAvg(eta=0.05, compression=QSGD(bits=6)),  # FedPAQ
    FedGATE(eta=0.05, compression=QSGD(bits=6)),  # FedCOMGATE
    FedAvg(eta=0.05, compression=TopK(share=0.4)),
    DIANA(eta=0.05, compression=TopK(share=0.4)),  # EF21
    FedOpt(eta=0.05, gamma=0.1),
    FedOpt(eta=0.05, gamma=0.1, optimiser="yogi"),
    FedOpt(eta=0.05, gamma=0.3, optimiser="adagrad"),
    FedSplit(eta=0.1, s=0.5),
    FedAvg(eta=0.02, local=Momentum(0.6)),
    FedGATE(eta=0.02, local=Momentum(0.9)),
    Scaffold(eta=0.02, local=Momentum(0.9)),
]


def name(solver):
    return f"{type(solver).__name__}-{type(solver.local).__name__}-{solver.compression}"


def best(clients):
    x, y = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    return np.linalg.lstsq(x, y, rcond=None)[0]


@pytest.mark.parametrize("solver", NAMED, ids=name)
@pytest.mark.parametrize("participation", [Everyone(), Growing(n0=2)], ids=["alone", "in FLANP"])
def test_each_comes_near_the_minimiser(solver, participation):
    _, trace = run(
        solver=solver, participation=participation, stop=FixedRounds(60), work=Equal(tau=4)
    )
    w_star = best(linear_clients(7))
    away = np.linalg.norm(models(trace) - w_star, axis=1)
    assert away[-1] < 0.1 * np.linalg.norm(w_star)


@pytest.mark.parametrize("solver", NAMED, ids=name)
def test_each_resumes_bit_for_bit(solver, tmp_path):
    def simulation(**options):
        method = Method(solver, Growing(n0=2), FixedRounds(3), Equal(tau=4))
        data = from_clients(linear_clients(7))  # as `run` has them: one compilation for both
        return prepare(LinearRegression(), data, method, precision="float64", **options)

    whole = simulation()
    whole.to_the_end()
    cut = simulation(max_rounds=5)
    cut.to_the_end()
    cut.save(tmp_path)
    again = simulation(resume=tmp_path)
    assert again.to_the_end().rows == whole.history.rows
    for run_ in (whole, again):
        run_.save(tmp_path / str(id(run_)))
    files = [tmp_path / str(id(r)) / "checkpoint.safetensors" for r in (whole, again)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_diana_without_compression_is_gradient_descent_on_the_mean():
    eta, clients = 0.1, linear_clients(7)
    _, trace = run(solver=DIANA(eta=eta), work=Equal(tau=1), rounds=20, stop=FixedRounds(20))
    w = np.zeros(3)
    for _, arrays in trace:
        w = w - eta * np.mean([x.T @ (x @ w - y) / len(y) for x, y in clients], axis=0)
        np.testing.assert_allclose(arrays["w"], w, atol=1e-12)


@pytest.mark.parametrize("participation", [Everyone(), Growing(n0=2)])
def test_dianas_memories_make_the_noise_of_compression_vanish(participation):
    """Quantised gradients alone stop at a distance that the quantisation decides."""
    kind = {"participation": participation, "work": Equal(tau=1), "stop": FixedRounds(400)}
    w_star = best(linear_clients(7))
    few_bits = QSGD(bits=3)
    _, diana = run(solver=DIANA(eta=0.1, compression=few_bits), **kind, rounds=2000)
    _, plain = run(solver=FedAvg(eta=0.1, compression=few_bits), **kind, rounds=2000)
    away = [np.linalg.norm(models(trace)[-50:] - w_star, axis=1).mean() for trace in (diana, plain)]
    assert away[0] < 1e-6 < 1e-4 < away[1]


@pytest.mark.parametrize("tau", [1, 4])
def test_fedopt_with_plain_sgd_is_fedavg(tau):
    kind = {"work": Equal(tau=tau), "unequal": True}
    _, ours = run(solver=FedOpt(eta=0.05, gamma=0.7, optimiser="sgd"), **kind)
    _, fedavg = run(solver=FedAvg(eta=0.05, gamma=0.7), **kind)
    np.testing.assert_allclose(models(ours), models(fedavg), atol=1e-15)


def test_fedadam_by_hand():
    eta, gamma, beta_1, beta_2, epsilon = 0.05, 0.1, 0.8, 0.95, 1e-2
    solver = FedOpt(eta=eta, gamma=gamma, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
    _, trace = run(solver=solver, work=Equal(tau=1), rounds=10, stop=FixedRounds(10))
    w, m, v = np.zeros(3), np.zeros(3), np.zeros(3)
    for t, (_, arrays) in enumerate(trace, start=1):
        g = eta * np.mean([x.T @ (x @ w - y) / len(y) for x, y in linear_clients(7)], axis=0)
        m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g * g
        step = m / (1 - beta_1**t) / (np.sqrt(v / (1 - beta_2**t)) + epsilon)
        w = w - gamma * step
        np.testing.assert_allclose(arrays["w"], w, atol=1e-7)


def test_fedsplit_finds_the_minimiser_where_fedavg_does_not():
    clients = linear_clients(7)
    w_star = best(clients)
    kind = {"work": Equal(tau=40), "stop": FixedRounds(300), "rounds": 300}
    away = [
        np.linalg.norm(models(run(solver=solver, **kind)[1])[-1] - w_star)
        for solver in (FedSplit(eta=0.1, s=1.0), FedAvg(eta=0.1))
    ]
    assert away[0] < 1e-6 < 1e-3 < away[1]


@pytest.mark.parametrize("solver", [FedAvg(eta=0.05), FedGATE(eta=0.05), Scaffold(eta=0.05)])
def test_momentum_zero_is_plain(solver):
    _, plain = run(solver=solver)
    _, none = run(solver=replace(solver, local=Momentum(0.0)))
    np.testing.assert_allclose(models(plain), models(none), atol=1e-15)


def test_momentum_by_hand():
    eta, beta = 0.05, 0.7
    _, trace = run(solver=FedAvg(eta=eta, local=Momentum(beta)), work=Equal(tau=5), rounds=3)
    w = np.zeros(3)
    for _, arrays in trace:
        local = []
        for x, y in linear_clients(7):
            w_i, v = w.copy(), np.zeros(3)
            for _ in range(5):
                v = beta * v + x.T @ (x @ w_i - y) / len(y)
                w_i = w_i - eta * v
            local.append(w_i)
        w = np.mean(local, axis=0)
        np.testing.assert_allclose(arrays["w"], w, atol=1e-12)


@dataclass(frozen=True)
class Unchanged(Compression):
    """A compression that compresses nothing."""

    def send(self, x, error, u):
        return x, error

    def bytes(self, size, each=4):
        return size * each


@pytest.mark.parametrize("work", [Equal(tau=4), Equal(tau=4, batch=6)])
@pytest.mark.parametrize(
    "solver", [FedGATE(eta=0.05), FedAvg(eta=0.05), Scaffold(eta=0.05), FedProx(eta=0.05)]
)
def test_without_compression_a_solver_is_itself_bit_for_bit(solver, work):
    kind = {"work": work, "participation": Growing(2)}
    _, exact = run(solver=solver, **kind)
    same = [Unchanged()] + ([TopK(share=1.0)] if isinstance(solver, FedAvg | FedProx) else [])
    for compression in same:
        _, other = run(solver=replace(solver, compression=compression), **kind)
        np.testing.assert_array_equal(models(exact), models(other))


def test_tracking_variables_sum_to_zero_with_quantised_messages():
    solver = FedGATE(eta=0.05, compression=QSGD(bits=4))
    _, trace = run(solver=solver, participation=Growing(2))
    for state, arrays in trace:
        np.testing.assert_allclose(arrays["clients.own"][state.active].sum(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("solver", [FedGATE(eta=0.05), Scaffold(eta=0.05), FedSplit(eta=0.05)])
def test_messages_that_lag_behind_are_refused_where_they_would_lead_astray(solver):
    """With 40 parameters and top-k of a tenth, FedGATE diverges at every step size."""
    with pytest.raises(BadInput, match="keeps a state at the clients"):
        run(solver=replace(solver, compression=TopK()))


@pytest.mark.parametrize("solver", [DIANA(eta=0.02), FedAvg(eta=0.02)])
def test_few_numbers_of_many_are_enough(solver):
    """Ten of 40 numbers: DIANA's memories find the minimiser, error feedback comes close."""
    data, T = from_clients(linear_clients(6, s=80, d=40)), Measured((1.0,) * 6)
    method = Method(
        replace(solver, compression=TopK(0.25)), Everyone(), FixedRounds(3000), Equal(tau=1)
    )
    history = prepare(
        LinearRegression(), data, method, T, record_every=500, max_rounds=3000, precision="float64"
    ).to_the_end()
    assert history.rows[-1].grad_norm_sq < (1e-16 if isinstance(solver, DIANA) else 1e-4)


@pytest.mark.parametrize("participation", [RandomK(3), Everyone()])
@pytest.mark.parametrize("patience", [All(), Quorum(0.6)])
def test_fedsplit_stays_at_the_minimiser_whoever_answers(participation, patience):
    """w is the mean of all z_i, also of those who did not take part in a round."""
    clients = linear_clients(7)
    method = Method(FedSplit(eta=0.1, s=1.0), participation, Never(), Equal(tau=60), patience)
    run_ = prepare(
        LinearRegression(), from_clients(clients), method, max_rounds=1500, precision="float64",
        record_every=1500,
    )  # fmt: skip
    if patience == Quorum(0.6) and participation == Everyone():
        return  # the slow ones never answer: their data is not used
    away = run_.to_the_end().rows[-1].metrics["distance"]
    assert away < 1e-5


def test_yogi_rests_where_the_gradient_is_zero():
    solver = FedOpt(eta=0.1, optimiser="yogi")
    w = np.ones(3, np.float32)
    after, _ = solver.server_step(w, solver.server_start(w), 0 * w, Step(0.1, 1.0, 1.0, 1.0, 1.0))
    np.testing.assert_array_equal(after, w)


def test_double_precision_stays_double_at_a_server_with_an_optimiser():
    solver, w = FedOpt(eta=0.1), np.full(3, 1 / 3)
    after, state = solver.server_step(w, solver.server_start(w), w, Step(0.1, 0.1, 1.0, 1.0, 1.0))
    assert np.asarray(after).dtype == np.float64
    assert (np.asarray(after) != np.asarray(after, np.float32)).all()


@pytest.mark.parametrize("solver", [FedNova(eta=0.05), FedGATE(eta=0.05)])
@pytest.mark.parametrize("chunk", [1, 3])
def test_compression_does_not_depend_on_who_works_beside_whom(solver, chunk):
    solver = replace(solver, compression=QSGD(bits=3))
    _, one = run(solver=solver, chunk=chunk)
    _, other = run(solver=solver, chunk=2)
    np.testing.assert_allclose(models(one), models(other), atol=1e-12)


def test_a_solver_that_reads_its_own_step_size_gets_it():
    @dataclass(frozen=True)
    class Reads(Solver):
        def server_step(self, w, server, m, step):
            return w - self.eta * self.gamma * m, server

    for eta in (0.05, 0.02):  # one compilation serves both
        _, own = run(solver=Reads(eta=eta, gamma=0.5))
        _, given = run(solver=FedAvg(eta=eta, gamma=0.5))
        np.testing.assert_allclose(models(own), models(given), atol=1e-12)
