"""FedGATE with a memory of absent clients: a plain loop over rounds, limits, and going on."""

import numpy as np
import pytest

from flanp import Method, availability, network, prepare
from flanp.data import from_clients
from flanp.network import Exchange, Lines
from flanp.participation import Everyone, FastestK, Growing
from flanp.patience import All, Quorum
from flanp.problems import LinearRegression
from flanp.solvers import FedGATE, Memory
from flanp.speeds import Drift, Exponential, Measured, Uniform
from flanp.stopping import FixedRounds, GradientNoise, Never
from flanp.work import Equal

from small import history_bytes, linear_clients, simulation
from test_async_oracle import SHARE, D, clients, gradient

T = (1.0, 1.375, 4.125, 9.5, 23.75)
N, ETA, GAMMA = len(T), 0.03, 0.9


class Loop:
    """Memory in NumPy: the class's docstring line by line, one event after the other."""

    def __init__(self, rho):
        self.rho = rho
        self.w, self.dbar, self.delta = np.zeros(D), np.zeros(D), np.zeros((N, D))
        self.time, self.late = 0.0, {}

    def come(self, j):
        """The message of a client that took no part: delta_j <- delta_j + rho (m_j - m_1)."""
        task = self.late.pop(j)
        m_j = gradient(j, task["w"]) - self.delta[j] + task["dbar"]
        self.delta[j] = self.delta[j] + self.rho * (m_j - task["m_1"])

    def round(self, n, exchange, tau):
        """The n fastest take part; whoever is still at work begins when that is done."""
        share, begins = SHARE[:n] / SHARE[:n].sum(), {}
        for i in range(n):
            begins[i] = self.late[i]["done"] if i in self.late else self.time
        end = max(begin + exchange + tau * T[i] for i, begin in begins.items())
        new = {j for j in range(n, N) if j not in self.late}
        for i in [i for i in self.late if i < n]:
            self.come(i)  # before what it does next
        m, m_1 = np.zeros((n, D)), np.zeros((n, D))
        for i in range(n):
            w_i = self.w
            for t in range(tau):
                d_i = gradient(i, w_i) - self.delta[i] + self.dbar
                m_1[i] = d_i if t == 0 else m_1[i]
                w_i = w_i - ETA * d_i
            m[i] = (self.w - w_i) / (ETA * tau)
        task = {"w": self.w, "dbar": self.dbar, "m_1": share @ m_1}
        self.late |= {j: {**task, "done": self.time + exchange + T[j]} for j in new}
        self.w = self.w - ETA * GAMMA * tau * share @ m
        self.delta[:n] += self.rho * (m - share @ m)
        for j in [j for j, late in self.late.items() if late["done"] <= end]:
            self.come(j)
        self.time, self.dbar = end, SHARE @ self.delta
        return self.time, self.w


def run_of(solver=Memory(ETA, GAMMA), rounds=20, **options):  # noqa: B008
    parts = {"participation": FastestK(2), "stop": Never(), "work": Equal(tau=1)}
    parts = {name: options.pop(name, part) for name, part in parts.items()}
    method = Method(solver, **parts, patience=options.pop("patience", All()))
    options = {"speeds": Measured(T), "precision": "float64", "max_rounds": rounds, **options}
    return prepare(LinearRegression(), from_clients(clients()), method, **options)


def compared(sizes, exchange, tau, rho=1.0, **options):
    """Compare a run, round by round, with the loop; return what the loop ends with."""
    options |= {"network": Exchange(exchange), "work": Equal(tau=tau)}
    run = run_of(Memory(ETA, GAMMA, rho=rho), rounds=len(sizes), **options)
    rows, loop = iter(run), Loop(rho)
    next(rows)
    for n in sizes:
        time, w = loop.round(n, exchange * float(np.median(T)), tau)
        row = next(rows)
        assert (row.n, row.time) == (n, time)
        np.testing.assert_allclose(run.state.model.w, w, rtol=0, atol=1e-10)
        arrays = run.engine.save(run.state.model, run.state.clock)
        np.testing.assert_allclose(arrays["clients.own"], loop.delta, rtol=0, atol=1e-10)
        np.testing.assert_allclose(arrays["server"], loop.dbar, rtol=0, atol=1e-10)
        assert {*run.state.model.under_way.client.tolist()} == {*loop.late}
    return loop


@pytest.mark.parametrize(
    ("exchange", "tau", "rho"), [(0.0, 1, 1.0), (0.5, 1, 1.0), (0.0, 3, 1.0), (0.0, 3, 0.3)]
)
def test_memory_equals_a_loop_over_rounds(exchange, tau, rho):
    loop = compared([2] * 20, exchange, tau, rho)
    assert (loop.delta != 0).all()  # everyone has been heard, some while others were at work
    assert loop.late


@pytest.mark.parametrize(
    ("n0", "rounds", "exchange", "tau"),
    [
        (3, 6, 0.0, 1),  # in these two nobody who joins has work under way
        (2, 6, 0.5, 3),
        (2, 4, 0.0, 1),  # in these two somebody does
        (2, 4, 0.0, 3),
    ],
)
def test_memory_equals_a_loop_when_stages_grow(n0, rounds, exchange, tau):
    part, stop = Growing(n0), FixedRounds(rounds)
    sizes = [n for n in part.stages(N) for _ in range(rounds)]
    compared(sizes, exchange, tau, participation=part, stop=stop)


def test_with_everyone_memory_is_fedgate():
    kind = {"participation": Everyone(), "stop": Never(), "max_rounds": 8, "precision": "float64"}
    one, two = simulation(solver=Memory(0.05), **kind), simulation(solver=FedGATE(0.05), **kind)
    for a, b in zip(one, two, strict=True):
        assert (a.time, a.n, a.spent) == (b.time, b.n, b.spent)
        np.testing.assert_allclose(one.state.model.w, two.state.model.w, rtol=0, atol=1e-14)
    assert not np.asarray(one.state.model.server).any()


def test_two_participants_and_a_memory_reach_the_minimiser_over_all():
    run = run_of(Memory(0.08), rounds=1600, record_every=400)
    distances = [row.metrics["distance"] for row in run if row.n in (0, 2)]
    assert len(distances) == 5
    assert distances[1] > 1e-8
    assert max(distances[3:]) < 1e-10  # and it stays there
    without = run_of(FedGATE(0.08), rounds=400, record_every=400)
    assert list(without)[-1].metrics["distance"] > 0.3


def row_of(run):
    return run.history.rows[-1]


ROUGH = {
    "solver": Memory(0.02),
    "speeds": Exponential(jitter=0.6, known=False, change=Drift(0.5, 20.0)),
    "network": network.Exchange(0.5),
    "availability": availability.Random(away=0.2, period=4.0, dropouts=0.3),
}
KINDS = {
    "stages": {"stop": FixedRounds(8)},
    "full gradients": {"stop": FixedRounds(8), "work": Equal(tau=1)},
    "the fastest": {"participation": FastestK(3), "stop": FixedRounds(24)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_resume_is_the_uninterrupted_run_bit_for_bit(tmp_path, kind):
    """Also with jitter, with clients that come and go or drop out, and with speeds to be learnt."""
    kind = {**ROUGH, **KINDS[kind]}
    run = simulation(**kind)
    whole = history_bytes(run, tmp_path / "whole")
    assert len(run.history.rows) > 20
    assert row_of(run).lost > 0
    scout = simulation(**kind)
    at_work = [row.round for row in scout if len(scout.state.model.under_way)]
    assert len(at_work) >= 3
    for cut in (at_work[0], at_work[len(at_work) // 2]):
        first = simulation(**kind, max_rounds=cut)
        list(first)
        first.save(tmp_path / f"{cut}")
        assert len(first.state.model.under_way)
        again = simulation(**kind, resume=tmp_path / f"{cut}")
        assert again.state.rounds == cut
        assert again.state.model.heard.tolist() == first.state.model.heard.tolist()
        assert first.state.model.heard.any()
        assert history_bytes(again, tmp_path / f"{cut}") == whole
        assert (np.asarray(again.state.model.w) == np.asarray(run.state.model.w)).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("patience", [All(), Quorum(0.5)])
def test_the_servers_mean_is_that_of_the_clients_states(kind, patience):
    """dbar = sum_j p_j delta_j, whoever was late, lost or away."""
    data = from_clients(linear_clients(7, unequal=True))
    parts = {"participation": Growing(2), "work": Equal(tau=3), **KINDS[kind], "patience": patience}
    world = {name: ROUGH[name] for name in ("speeds", "network", "availability")}
    run = prepare(
        LinearRegression(), data, Method(Memory(0.02), **parts), precision="float64", **world
    )
    list(run)
    arrays = run.engine.save(run.state.model, run.state.clock)
    mean = data.s @ arrays["clients.own"] / data.s.sum()
    np.testing.assert_allclose(arrays["server"], mean, rtol=0, atol=1e-13)
    assert np.abs(arrays["server"]).max() > 1e-4


def test_the_order_of_clients_in_the_input_does_not_matter():
    kind = {"solver": Memory(0.02), "participation": FastestK(3), "stop": Never()}
    kind |= {"max_rounds": 12, "speeds": Uniform()}
    rows = list(simulation(**kind))
    assert list(simulation(order=[3, 0, 6, 1, 5, 2, 4], **kind)) == rows
    assert rows[-1].loss < rows[0].loss


def test_a_run_is_not_over_before_everyone_was_heard():
    """The two fastest are at once as accurate as can be told; the slowest takes 23 seconds."""
    run = run_of(rounds=100, stop=GradientNoise(theta=1e6))
    assert [row.time for row in run][-2] < 23.75 <= row_of(run).time
    assert run.state.model.heard.all()


def test_bytes_of_participants_and_of_those_beside_them():
    run = run_of(rounds=9)
    *_, before, last = run
    # Two participants in each of 9 rounds of 1.375 s; client 2 is asked in rounds 0, 3 and 6,
    # client 3 in rounds 0 and 7, client 4 in round 0. A model goes out together with dbar.
    assert last.time == 9 * 1.375
    assert last.received == (2 * 9 + 3 + 2 + 1) * 2 * D * 8
    assert last.sent == (2 * 9 + 3 + 1) * D * 8
    assert before.sent == (2 * 8 + 2 + 1) * D * 8
    assert last.lost == 0


def test_an_absent_client_sends_one_message():
    lines = Lines(down=0.048, up=0.024, latency=0.0)  # 8 seconds a model with dbar; 8 a message
    run = run_of(rounds=1, work=Equal(tau=30), network=lines, participation=FastestK(3))
    list(run)
    assert row_of(run).sent == (3 * 2 + 2) * D * 8
    assert row_of(run).spent == pytest.approx(3 * (8 + 16) + 30 * 6.5 + 2 * (8 + 8) + 9.5 + 23.75)
