"""The simulator of asynchronous methods equals a plain loop over events, written from the papers.

The loop below knows nothing of the simulator: clients are a list of dictionaries, the methods a few
lines of NumPy each. Times are sums of eighths, so that both clocks are exact.
"""

import numpy as np
import pytest

from flanp import Method, prepare, solvers
from flanp.data import from_clients
from flanp.network import Exchange
from flanp.participation import Everyone
from flanp.problems import LinearRegression
from flanp.speeds import Measured
from flanp.stopping import Never
from flanp.work import Equal

T = (1.0, 1.375, 2.125, 3.5, 5.75)
SIZES = (4, 9, 6, 12, 7)
N, D, ETA, GAMMA, ROUNDS = len(T), 3, 0.03, 0.9, 12


def clients():
    """Return (x_i, y_i) of clients that differ in their samples, how many, and what fits them."""
    rng = np.random.default_rng(7)
    xs = [rng.standard_normal((s, D)) * (0.7 + 0.2 * i) for i, s in enumerate(SIZES)]
    return [(x, x @ rng.standard_normal(D) + 0.3 * rng.standard_normal(len(x))) for x in xs]


def gradient(i, w):
    x, y = clients()[i]
    return x.T @ (x @ w - y) / len(y)


SHARE = np.array(SIZES) / sum(SIZES)
WEIGHT = N * SHARE
"""A client's samples, where the mean client has 1."""


class Server:
    """A method: what the server keeps, and what it does with a message."""

    def __init__(self):
        self.w, self.steps = np.zeros(D), 0

    def tell(self, i):
        """Return what else is noted when a client is sent w."""

    def pull(self):
        return 0.0

    def step(self, direction):
        self.w, self.steps = self.w - ETA * GAMMA * direction, self.steps + 1


class FedAsync(Server):
    alpha, a, b = 0.6, 0.5, 2.0

    def __init__(self, adapt):
        super().__init__()
        self.adapt = adapt

    def pull(self):
        return 0.05

    def arrive(self, i, Delta, sent, tau):
        late = self.steps - sent["steps"]
        s = {
            "constant": 1.0,
            "polynomial": (late + 1) ** -self.a,
            "hinge": 1.0 if late <= self.b else 1 / (self.a * (late - self.b) + 1),
        }[self.adapt]
        w_i = sent["w"] - ETA * GAMMA * Delta
        self.w = (1 - self.alpha * s) * self.w + self.alpha * s * w_i
        self.steps += 1


class FedBuff(Server):
    def __init__(self, K):
        super().__init__()
        self.K, self.buffer = K, []

    def arrive(self, i, Delta, sent, tau):
        self.buffer.append(WEIGHT[i] * Delta / np.sqrt(1 + self.steps - sent["steps"]))
        if len(self.buffer) == self.K:
            self.step(np.mean(self.buffer, axis=0))
            self.buffer = []


class Rennala(FedBuff):
    def arrive(self, i, Delta, sent, tau):
        if sent["steps"] == self.steps:
            super().arrive(i, Delta, sent, tau)


class Ringmaster(Server):
    def __init__(self, R):
        super().__init__()
        self.R = R

    def arrive(self, i, Delta, sent, tau):
        if self.steps - sent["steps"] < self.R:
            self.step(WEIGHT[i] * Delta)


class IAG(Server):
    def __init__(self):
        super().__init__()
        self.last = np.zeros((N, D))

    def arrive(self, i, Delta, sent, tau):
        self.last[i] = Delta
        self.step(SHARE @ self.last)


class CA2FL(Server):
    def __init__(self, K):
        super().__init__()
        self.K, self.buffer, self.h, self.calibration = K, [], np.zeros((N, D)), np.zeros(D)

    def arrive(self, i, Delta, sent, tau):
        self.buffer.append(WEIGHT[i] * (Delta - self.h[i]))
        self.h[i] = Delta
        if len(self.buffer) == self.K:
            self.step(self.calibration + np.mean(self.buffer, axis=0))
            self.buffer, self.calibration = [], SHARE @ self.h


class Ringleader(Server):
    def __init__(self):
        super().__init__()
        self.table, self.later = [[] for _ in range(N)], [[] for _ in range(N)]
        self.waiting_for = None  # a set in the second phase

    def arrive(self, i, Delta, sent, tau):
        if self.waiting_for is not None and i not in self.waiting_for:
            self.later[i].append(Delta)
            return
        self.table[i].append(Delta)
        if self.waiting_for is None:
            if not all(self.table):
                return
            self.waiting_for = {*range(N)}
        self.step(sum(p * np.mean(of, axis=0) for p, of in zip(SHARE, self.table, strict=True)))
        self.waiting_for -= {i}
        if not self.waiting_for:
            self.table, self.later = self.later, [[] for _ in range(N)]
            self.waiting_for = None


class Tracking(Server):
    def __init__(self, rho):
        super().__init__()
        self.rho, self.h, self.M = rho, np.zeros((N, D)), np.zeros(D)
        self.arrivals = 0

    def tell(self, i):
        return self.M.copy()

    def arrive(self, i, Delta, sent, tau):
        u = Delta / tau
        d = u - self.h[i] + SHARE @ self.h
        K = max(1, N / 4)
        self.step(tau * d / (K * np.sqrt(1 + (self.steps - sent["steps"]) / K)))
        self.arrivals += 1
        self.h[i] = (1 - self.rho) * self.h[i] + self.rho * (u - sent["told"])
        self.M = self.M + max(1 / N, 1 / self.arrivals) * (d - self.M)


def local_work(i, sent, server, tau):
    w_i = sent["w"].copy()
    for _ in range(tau):
        d_i = gradient(i, w_i) + server.pull() * (w_i - sent["w"])
        w_i = w_i - ETA * d_i
    return (sent["w"] - w_i) / ETA


def events(server, exchange, tau, cap=None):
    """Return (time, w) after each N arrivals."""
    takes = [exchange + tau * T_i for T_i in T]
    least = 0.0 if cap is None else np.median(takes) / cap

    def send(i, now):
        return {
            "w": server.w,
            "steps": server.steps,
            "told": server.tell(i),
            "at": now,
            "due": now + takes[i],
        }

    at_work = {i: send(i, 0.0) for i in range(N)}
    resting, trace, arrivals = {}, [], 0
    while len(trace) < ROUNDS:
        due = min(sent["due"] for sent in at_work.values())
        now = min([due, *resting.values()])
        if due == now:  # of what happens at one time, messages come first, by number of the client
            i = min(i for i, sent in at_work.items() if sent["due"] == now)
            sent = at_work.pop(i)
            server.arrive(i, local_work(i, sent, server, tau), sent, tau)
            resting[i] = max(now, sent["at"] + least)
            arrivals += 1
            if arrivals % N == 0:
                trace.append((now, server.w))
            continue
        i = min(i for i, ready in resting.items() if ready == now)
        del resting[i]
        at_work[i] = send(i, now)
    return trace


def simulated(solver, exchange, tau):
    """Return (time, w) after each round of the simulator."""
    method = Method(solver, Everyone(), Never(), Equal(tau=tau))
    run = prepare(
        LinearRegression(),
        from_clients(clients()),
        method,
        Measured(T),
        network=Exchange(exchange),
        precision="float64",
        max_rounds=ROUNDS,
    )
    trace = [(row.time, np.asarray(run.state.model.w)) for row in run]
    assert trace[0][0] == 0
    return trace[1:]


SIZES_OF_STEPS = {"eta": ETA, "gamma": GAMMA}
PROXIMAL = {"alpha": 0.6, "a": 0.5, "b": 2.0, "rho": 0.05}
CASES = {
    **{
        f"FedAsync {adapt}": (
            solvers.FedAsync(**SIZES_OF_STEPS, **PROXIMAL, adapt=adapt),
            lambda adapt=adapt: FedAsync(adapt),
        )
        for adapt in ("constant", "polynomial", "hinge")
    },
    "FedBuff": (solvers.FedBuff(**SIZES_OF_STEPS, K=3), lambda: FedBuff(3)),
    "Rennala": (solvers.Rennala(**SIZES_OF_STEPS, S=4), lambda: Rennala(4)),
    "Ringmaster": (solvers.Ringmaster(**SIZES_OF_STEPS, R=3), lambda: Ringmaster(3)),
    "IAG": (solvers.IAG(**SIZES_OF_STEPS), IAG),
    "CA2FL": (solvers.CA2FL(**SIZES_OF_STEPS, K=3), lambda: CA2FL(3)),
    "Ringleader": (solvers.Ringleader(**SIZES_OF_STEPS), Ringleader),
    "Tracking": (solvers.Tracking(**SIZES_OF_STEPS, rho=0.3, cap=None), lambda: Tracking(0.3)),
}


@pytest.mark.parametrize(("exchange", "tau"), [(0.0, 1), (2.0, 3)])
@pytest.mark.parametrize("name", CASES)
def test_the_simulator_equals_a_loop_over_events(name, exchange, tau):
    solver, server = CASES[name]
    expected = events(server(), exchange * float(np.median(T)), tau)
    got = simulated(solver, exchange, tau)
    assert [time for time, _ in got] == [time for time, _ in expected]
    for (_, w), (_, w_expected) in zip(got, expected, strict=True):
        np.testing.assert_allclose(w, w_expected, rtol=0, atol=1e-10)
    assert np.linalg.norm(got[-1][1]) > 0.1  # it has gone somewhere


@pytest.mark.parametrize("cap", [1.0, 2.0])
def test_capped_clients_wait_as_in_the_loop(cap):
    solver = solvers.IAG(**SIZES_OF_STEPS, cap=cap)
    expected = events(IAG(), 2.0 * float(np.median(T)), 2, cap)
    got = simulated(solver, 2.0, 2)
    assert [time for time, _ in got] == [time for time, _ in expected]
    np.testing.assert_allclose([w for _, w in got], [w for _, w in expected], rtol=0, atol=1e-10)
