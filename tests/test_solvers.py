"""The invariants that tie the solvers together, and each one against its own formula."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flanp.checks import BadInput
from flanp.participation import Everyone, Growing, RandomK
from flanp.solvers import FedAvg, FedGATE, FedNova, FedProx, Scaffold
from flanp.stopping import FixedRounds
from flanp.work import Equal, SpeedMatched

from small import linear_clients, models, run, speeds

ALL = [
    FedAvg(eta=0.05),
    FedGATE(eta=0.05, gamma=0.9),
    FedNova(eta=0.05),
    FedNova(eta=0.05, tau_eff="harmonic"),
    FedProx(eta=0.05, rho=0.3),
    Scaffold(eta=0.05),
]
WORKS = [Equal(tau=4), Equal(tau=4, batch=6), SpeedMatched(tau=3, limit=5)]


def same(a, b, tolerance=1e-12):
    np.testing.assert_allclose(models(a[1]), models(b[1]), rtol=0, atol=tolerance)


@pytest.mark.parametrize("N", [1, 2, 7])
@pytest.mark.parametrize("work", WORKS)
def test_fedprox_without_its_term_is_fedavg(N, work):
    kind = {"N": N, "work": work, "unequal": True}
    same(run(solver=FedProx(eta=0.05, rho=0.0), **kind), run(solver=FedAvg(eta=0.05), **kind))


@pytest.mark.parametrize("N", [1, 2, 7])
@pytest.mark.parametrize("tau_eff", ["mean", "harmonic"])
@pytest.mark.parametrize("work", [w for w in WORKS if isinstance(w, Equal)])
def test_fednova_with_equal_steps_is_fedavg(N, tau_eff, work):
    kind = {"N": N, "work": work, "unequal": True}
    same(
        run(solver=FedNova(eta=0.05, tau_eff=tau_eff), **kind), run(solver=FedAvg(eta=0.05), **kind)
    )


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("participation", [Everyone(), Growing(n0=2, growth=1.5)])
@pytest.mark.parametrize("seed", [0, 1])
def test_fedgate_is_scaffold_while_the_same_clients_take_part(work, participation, seed):
    kind = {"work": work, "participation": participation, "unequal": True, "seed": seed}
    a = run(solver=FedGATE(eta=0.05), **kind)
    b = run(solver=Scaffold(eta=0.05), **kind)
    same(a, b)
    for (state, gate), (_, scaffold) in zip(a[1], b[1], strict=True):
        delta = scaffold["clients.own"] - scaffold["server"]
        active = state.active
        np.testing.assert_allclose(gate["clients.own"][active], delta[active], atol=1e-12)


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize(("N", "n0", "growth"), [(1, 1, 2), (2, 1, 2), (7, 2, 3), (37, 5, 1.5)])
def test_tracking_variables_sum_to_zero_after_every_round(work, N, n0, growth):
    participation = Growing(n0, growth)
    engine, trace = run(
        N=N, work=work, participation=participation, unequal=True, stop=FixedRounds(2)
    )
    for state, arrays in trace:
        active = state.active
        p = engine.s[active] / engine.s[active].sum()
        np.testing.assert_allclose(p @ arrays["clients.own"][active], 0, atol=1e-12)
        idle = np.setdiff1d(np.arange(N), active)
        assert not arrays["clients.own"][idle].any()


def test_tracking_is_reset_at_every_stage():
    """The first round of a stage is FedAvg's round from the same model, since delta_i = 0."""
    _, trace = run(N=7, participation=Growing(2, 3), stop=FixedRounds(3))
    for (before, a), (after, b) in zip(trace, trace[1:], strict=False):
        if after.k > before.k:
            data = linear_clients(7)
            local = []
            for i in after.active:
                x, y = data[i]
                w = a["w"].copy()
                for _ in range(4):
                    w -= 0.05 * x.T @ (x @ w - y) / len(y)
                local.append(w)
            np.testing.assert_allclose(b["w"], np.mean(local, axis=0), atol=1e-12)


def reference_round(solver, w, clients, tau, c=0.0, c_i=None, delta=None):
    """One round by hand with full local gradients: return each client's model."""
    out = []
    for i, (x, y) in enumerate(clients):
        v = w.copy()
        for _ in range(tau[i]):
            d = x.T @ (x @ v - y) / len(y)
            if isinstance(solver, FedProx):
                d = d + solver.rho * (v - w)
            v = v - solver.eta * d
        out.append(v)
    return np.array(out)


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.parametrize("unequal", [False, True])
def test_the_first_round_by_hand(solver, unequal):
    """From a zero state all solvers start with plain local steps; they differ in the mean."""
    clients = linear_clients(7, unequal=unequal)
    work = SpeedMatched(tau=3, limit=5)
    T = speeds(7)
    s = np.array([len(y) for _, y in clients])
    tau = work.steps(T, s)
    p = s / s.sum()
    local = reference_round(solver, np.zeros(3), clients, tau)
    if isinstance(solver, FedAvg | FedProx):
        expected = p @ local
    elif isinstance(solver, FedNova) and solver.tau_eff == "harmonic":
        expected = (p / tau) @ local / (p / tau).sum()  # models averaged with weights 1/tau_i
    else:
        mean_direction = (p / tau) @ (-local / solver.eta)
        expected = -solver.eta * solver.gamma * (p @ tau) * mean_direction
    _, trace = run(solver=solver, work=work, unequal=unequal, rounds=1)
    np.testing.assert_allclose(trace[0][1]["w"], expected, atol=1e-12)


@pytest.mark.parametrize("work", [w for w in WORKS if w.batch is None])
def test_scaffold_by_hand_with_changing_participants(work):
    """Option II with c moved by the mean change of the c_i, weighted by the share taking part."""
    eta, k = 0.05, 3
    _, trace = run(solver=Scaffold(eta=eta), participation=RandomK(k), work=work, rounds=6)
    clients, T = linear_clients(7), speeds(7)
    w, c, c_i = np.zeros(3), np.zeros(3), np.zeros((7, 3))
    for state, arrays in trace:
        tau = work.steps(T[state.active], np.full(k, 20.0))
        Delta, change = [], []
        for i, steps in zip(state.active, tau, strict=True):
            x, y = clients[i]
            v = w.copy()
            for _ in range(steps):
                v = v - eta * (x.T @ (x @ v - y) / len(y) - c_i[i] + c)
            new = c_i[i] - c + (w - v) / (steps * eta)
            change.append(new - c_i[i])
            Delta.append((w - v) / (eta * steps))
            c_i[i] = new
        w = w - eta * tau.mean() * np.mean(Delta, axis=0)
        c = c + k / 7 * np.mean(change, axis=0)
        np.testing.assert_allclose(arrays["w"], w, atol=1e-12)
        np.testing.assert_allclose(arrays["server"], c, atol=1e-12)
        np.testing.assert_allclose(arrays["clients.own"], c_i, atol=1e-12)


@pytest.mark.parametrize("solver", ALL)
def test_every_solver_descends(solver):
    _, trace = run(
        solver=solver, unequal=True, work=SpeedMatched(tau=3, limit=5), stop=FixedRounds(60)
    )
    data = linear_clients(7, unequal=True)
    x, y = (np.concatenate(parts) for parts in zip(*data, strict=True))

    def loss(w):
        return np.mean((x @ w - y) ** 2) / 2

    best = loss(np.linalg.lstsq(x, y, rcond=None)[0])
    assert loss(trace[-1][1]["w"]) - best < 0.02 * (loss(np.zeros(3)) - best)


@pytest.mark.parametrize("solver", [FedGATE(eta=0.05), Scaffold(eta=0.05)])
def test_gradient_tracking_has_no_bias_from_unequal_steps(solver):
    _, trace = run(
        solver=solver, unequal=True, work=SpeedMatched(tau=3, limit=5), stop=FixedRounds(400)
    )
    x, y = (np.concatenate(parts) for parts in zip(*linear_clients(7, unequal=True), strict=True))
    w_star = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(trace[-1][1]["w"], w_star, atol=1e-6)


numbers = st.floats(-1e3, 1e3)


@given(numbers, numbers, numbers, numbers, st.integers(1, 50))
@settings(max_examples=50)
def test_solvers_are_plain_arithmetic(g, drift, w_i, w, tau):
    """The same lines run on Python numbers, NumPy and JAX: nothing but + - * /."""
    for solver in ALL:
        as_number = solver.direction(g, drift, w_i, w)
        as_array = solver.direction(*(np.array([v]) for v in (g, drift, w_i, w)))
        assert as_array[0] == as_number
        as_number = solver.message(g, tau, w_i, w)
        as_array = solver.message(np.array([g]), tau, np.array([w_i]), np.array([w]))
        assert as_array[0] == as_number


@pytest.mark.parametrize("bad", [{"eta": 0.0}, {"eta": -1.0}, {"eta": 0.1, "gamma": 0.0}])
def test_bad_step_sizes_are_refused(bad):
    with pytest.raises(BadInput, match="it must be a number from 1e-09"):
        FedAvg(**bad)
