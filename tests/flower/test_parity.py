"""The fleet does what the simulator does, with clients in any framework."""

import json

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp import History, Method, order, prepare
from flanp.checks import BadInput
from flanp.data import from_clients
from flanp.flower import client
from flanp.participation import Everyone, Growing, RandomK
from flanp.problems import Custom
from flanp.simulator import sampling
from flanp.solvers import FedAvg, FedGATE, FedNova, FedProx, Scaffold
from flanp.speeds import Measured
from flanp.stopping import FixedRounds, GradientNoise, Never
from flanp.work import SpeedMatched

from fleets import PROBLEM, W_0, T, asked_to_train, fleet, strategy, w_of
from small import linear_clients


@given(
    seed=st.integers(0, 2**31 - 1),
    round_=st.integers(0, 1000),
    who=st.integers(0, 10**6),
    epoch=st.integers(0, 50),
    rows=st.integers(1, 60),
)
def test_samples_come_in_the_simulators_order(seed, round_, who, epoch, rows):
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), round_)
    theirs = sampling.sample_order(key, who, epoch, rows, room=64)[:rows]
    ours = order.sample_order(order.round_key(seed, round_), who, epoch, rows)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "solver",
    [
        FedGATE(eta=0.05),
        FedAvg(eta=0.05),
        FedNova(eta=0.05, gamma=0.9),
        FedProx(eta=0.05),
        Scaffold(eta=0.05),
    ],
    ids=lambda solver: type(solver).__name__,
)
@pytest.mark.parametrize(
    ("participation", "stop"),
    [(Growing(), GradientNoise(theta=0.5, at_most=3)), (RandomK(3), FixedRounds(8))],
    ids=["flanp", "random"],
)
def test_the_fleet_does_what_the_simulator_does(solver, participation, stop):
    clients = linear_clients(5, s=12, unequal=True)
    parts = dict(participation=participation, stop=stop, work=SpeedMatched(tau=3, batch=5))
    run = strategy(solver, **parts, seed=3)
    result = run.start(fleet(clients=clients), W_0, num_rounds=12)
    simulation = prepare(
        PROBLEM, from_clients(clients), Method(solver, **parts), Measured(T), max_rounds=12, seed=3
    )
    rows = list(simulation)
    assert [row[:3] for row in run.history.rows] == [row[:3] for row in rows]
    np.testing.assert_allclose(w_of(result), simulation.history.params, atol=1e-5)
    for column in ("sent", "received"):
        assert (run.history.column(column) == simulation.history.column(column)).all()
    if not isinstance(stop, FixedRounds):
        # The last model of a run that was cut off has not been measured.
        gradients = run.history.column("stage_grad_norm_sq")[:-1]
        expected = simulation.history.column("stage_grad_norm_sq")[:-1]
        np.testing.assert_allclose(gradients, expected, rtol=1e-4)


def test_the_gradient_over_all_is_recorded_where_all_have_sent_theirs():
    run = strategy(stop=GradientNoise(at_most=2))
    run.start(fleet(N=2), W_0, num_rounds=4)
    known = np.isfinite(run.history.column("grad_norm_sq"))
    assert [row.n for row in run.history.rows] == [0, 1, 1, 2, 2]
    np.testing.assert_array_equal(known, [False, False, False, True, False])


def test_one_exchange_serves_a_round_and_its_measurement():
    run = strategy(stop=GradientNoise(at_most=2))
    run.start(fleet(), W_0, num_rounds=6)
    stages = len({row.stage for row in run.history.rows if row.round})
    # The probe comes once; each stage but the cut-off last throws one message away.
    assert run.history.about["counts"]["exchanges"] == 1 + 6 + (stages - 1)


def torch_client(data):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(3))

    def loss(model, batch):
        x, y = (a.float() for a in batch)
        return ((x @ model.w - y) ** 2).mean() / 2 + 0.05 * model.w @ model.w

    return client(model=Linear, loss=loss, data=data)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_clients_in_jax_and_pytorch_do_what_those_in_numpy_do(framework):
    clients = linear_clients(5, s=12)

    def data(context):
        return clients[context.node_config["partition-id"]]

    app = client(loss=PROBLEM.loss, data=data) if framework == "jax" else torch_client(data)
    ours = strategy().start(fleet(app=app), W_0, num_rounds=9)
    theirs = strategy().start(fleet(), W_0, num_rounds=9)
    np.testing.assert_allclose(w_of(ours), w_of(theirs), atol=1e-5)


def test_dropout_draws_what_it_draws_in_the_simulator():
    clients = linear_clients(5, s=12, unequal=True)

    def loss(params, batch, key=None):
        x, y = batch
        keep = 1.0 if key is None else jax.random.bernoulli(key, 0.7, x.shape)
        return ((keep * x @ params - y) ** 2).mean() / 2

    app = client(loss=loss, data=lambda context: clients[context.node_config["partition-id"]])
    run = strategy(stop=GradientNoise(theta=0.5, at_most=3), seed=3)
    result = run.start(fleet(app=app), W_0, num_rounds=9)
    simulation = prepare(
        Custom(lambda key: np.zeros(3, np.float32), loss),
        from_clients(clients),
        run.method,
        Measured(T),
        max_rounds=9,
        seed=3,
    )
    list(simulation)
    np.testing.assert_allclose(w_of(result), simulation.history.params, atol=1e-5)


def test_a_stage_begins_with_replies_of_its_own():
    run = strategy(
        stop=GradientNoise(at_most=3), participation=Growing(n0=2), target={"loss": -1.0}
    )
    grid = fleet(N=4)
    run.start(grid, W_0, num_rounds=5)
    assert [row.n for row in run.history.rows] == [0, 2, 2, 2, 4, 4]
    trained = asked_to_train(grid)
    assert trained.count(3) == 2
    assert run.history.about["counts"] == {"exchanges": 1 + 5 + 1}


@pytest.mark.parametrize("solver", [FedAvg(eta=0.05), FedGATE(eta=0.05)], ids=["fedavg", "fedgate"])
def test_a_run_can_be_resumed_on_new_nodes(solver, tmp_path):
    options = dict(stop=FixedRounds(3), save=tmp_path / "run")
    straight = strategy(solver, stop=FixedRounds(3))
    whole = straight.start(fleet(), W_0, num_rounds=10)
    strategy(solver, **options).start(fleet(), W_0, num_rounds=5)
    with pytest.raises(BadInput, match="resume it"):
        strategy(solver, **options)
    again = strategy(solver, **options, resume=True)
    result = again.start(fleet(), W_0, num_rounds=10)
    assert [row[:3] for row in again.history.rows] == [row[:3] for row in straight.history.rows]
    if isinstance(solver, FedAvg):
        np.testing.assert_array_equal(w_of(result), w_of(whole))
    saved = json.loads((tmp_path / "run" / "fleet.json").read_text())
    assert saved["ranking"] == ["1", "2", "0", "4", "3"]
    assert str(History.load(tmp_path / "run").ended) == "limit of 10 rounds"


def test_a_run_ends_at_its_target():
    run = strategy(participation=Everyone(), stop=Never(), target={"loss": 0.3})
    run.start(fleet(), W_0)
    assert str(run.history.ended) == "target reached"
    losses = run.history.column("loss")
    assert losses[-1] <= 0.3 < losses[-2]
