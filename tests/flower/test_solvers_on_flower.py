"""A user's own solver on Flower: named by the server, made by a client whose app allows it."""

import importlib
import sys

import numpy as np
import pytest

from flanp import BadInput, Method, prepare
from flanp.compression import QSGD, TopK
from flanp.data import from_clients
from flanp.flower import NobodyAnswered, client
from flanp.oort import Oort
from flanp.participation import Growing
from flanp.solvers import (
    DIANA,
    FedAvg,
    FedBuff,
    FedGATE,
    FedOpt,
    FedSplit,
    Momentum,
    Solver,
)
from flanp.speeds import Measured
from flanp.stopping import FixedRounds
from flanp.work import Equal

from documents import BLOCKS
from fleets import PROBLEM, W_0, T, fleet, gradient, strategy, w_of
from small import linear_clients

PARTS = {"participation": Growing(n0=2), "stop": FixedRounds(3), "work": Equal(tau=4, batch=5)}
CLIENTS = linear_clients(5, s=12, unequal=True)


def samples(context):
    return CLIENTS[context.node_config["partition-id"]]


def simulated(solver):
    run = prepare(
        PROBLEM, from_clients(CLIENTS), Method(solver, **PARTS), Measured(T), max_rounds=9
    )
    return np.asarray(run.to_the_end().params)


def on_flower(solver, parts=()):
    app = client(gradient=gradient, data=samples, parts=parts)
    run = strategy(solver, **PARTS)
    return run, w_of(run.start(fleet(app=app), W_0, num_rounds=9))


@pytest.mark.parametrize(
    "solver",
    [
        DIANA(eta=0.05),
        DIANA(eta=0.05, compression=QSGD(bits=5)),
        FedAvg(eta=0.05, compression=QSGD(bits=5)),
        FedGATE(eta=0.05, compression=QSGD(bits=5)),
        FedAvg(eta=0.05, compression=TopK(share=0.4)),
        DIANA(eta=0.05, compression=TopK(share=0.4)),
        FedOpt(eta=0.05, gamma=0.1),
        FedSplit(eta=0.05, s=0.5),
        FedGATE(eta=0.05, local=Momentum(0.5)),
    ],
    ids=lambda s: f"{type(s).__name__}-{type(s.local).__name__}-{type(s.compression).__name__}",
)
def test_the_solvers_that_the_paper_names_do_what_they_do_in_the_simulator(solver):
    run, w = on_flower(solver)
    np.testing.assert_allclose(w, simulated(solver), atol=2e-5)
    assert run.history.rows[-1].round == 9


def test_the_page_on_a_solver_of_ones_own_is_true(tmp_path, monkeypatch):
    (block,) = (b for b in BLOCKS if b.page == "docs/extend.md" and "class FedAvgM" in b.text)
    (tmp_path / "my_solver.py").write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("my_solver", None)
    mine = importlib.import_module("my_solver")
    (page,) = (b for b in BLOCKS if b.page == "docs/extend.md" and "parts=[FedAvgM]" in b.text)
    names = {"gradient": gradient, "load": samples}
    exec(compile(page.text, page.page, "exec"), names)
    assert names["strategy"].method.solver == mine.FedAvgM(eta=0.05, gamma=0.2)
    solver = mine.FedAvgM(eta=0.05, gamma=0.2, beta=0.8)
    run = strategy(solver, **PARTS)
    result = run.start(fleet(app=names["app"]), W_0, num_rounds=9)
    np.testing.assert_allclose(w_of(result), simulated(solver), atol=1e-5)
    with pytest.raises(NobodyAnswered, match="this client has no"):  # its app does not allow it
        on_flower(solver)


def test_compressed_messages_are_short_on_the_wire():
    sent = {}
    for compression in (QSGD(bits=2), FedAvg(eta=0.1).compression):
        run, _ = on_flower(FedAvg(eta=0.05, compression=compression))
        sent[type(compression).__name__] = run.history.rows[-1].sent
    assert sent["QSGD"] < sent["Exact"]


class Fails(Solver):
    def server_step(self, w, server, m, step):
        if len(w) == 3:  # not at the look before the first round
            raise ZeroDivisionError("no step")
        return w, server


def test_a_server_step_that_fails_is_named():
    with pytest.raises(BadInput, match=r"Fails\.server_step failed \(ZeroDivisionError: no step"):
        on_flower(Fails(eta=0.05), parts=[Fails])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"solver": FedBuff(eta=0.05)}, "FedBuff is asynchronous: it runs in the simulator"),
        ({"participation": Oort(k=2)}, "Oort chooses by the clients' losses"),
    ],
)
def test_what_runs_in_the_simulator_alone_is_refused(parts, message):
    with pytest.raises(BadInput, match=message):
        strategy(**parts)
