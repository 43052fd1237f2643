"""The Flower engine, on nodes in this process that can be made to fail in every way."""

import json
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flanp import kernels
from flanp.checks import BadInput
from flanp.data import from_clients
from flanp.flower import Flanp, NobodyAnswered, arrays_of, client, order
from flanp.flower import exchange as exchanges
from flanp.flower import fleet as fleets
from flanp.flower.models import nested
from flanp.flower.vectors import names_of
from flanp.history import History
from flanp.participation import Everyone, RandomK
from flanp.problems import MLP, LinearRegression
from flanp.simulation import Simulation
from flanp.solvers import FedAvg, FedGATE, FedNova, FedProx, Scaffold
from flanp.speeds import Measured
from flanp.stopping import Authors, FixedRounds, GradientNoise, Never
from flanp.work import Equal, SpeedMatched

from documents import BLOCKS
from nodes import LocalGrid, LocalNode, SlowGrid
from small import linear_clients

PROBLEM = LinearRegression(l2=0.1)
T = (3.0, 1.0, 2.0, 5.0, 4.0)
SPEEDS = {str(i): seconds for i, seconds in enumerate(T)}
W_0 = arrays_of(np.zeros(3, np.float32))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(exchanges, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(exchanges, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(fleets, "RETURN_SECONDS", 0.0)
    monkeypatch.setattr(fleets, "LOOK_SECONDS", 0.0)


def gradient(params, batch):
    x, y = batch
    residual = x @ params["w"] - y
    loss = (residual**2).mean() / 2 + 0.05 * params["w"] @ params["w"]
    return loss, {"w": x.T @ residual / len(x) + 0.1 * params["w"]}


def fleet(N=5, app=None, clients=None):
    clients = clients or linear_clients(N, s=12)
    app = app or client(
        gradient=gradient, data=lambda context: clients[context.node_config["partition-id"]]
    )
    return LocalGrid([LocalNode(app, {"partition-id": i}, 100 + i) for i in range(N)])


def strategy(solver=FedGATE(eta=0.05), **options):  # noqa: B008
    options = {"stop": FixedRounds(3), "work": Equal(tau=7, batch=5), "speeds": SPEEDS} | options
    return Flanp(solver, **options)


def asked_to_train(grid):
    return [id_ for id_, message in grid.log if message.metadata.message_type == "train"]


def joining(node, after):
    """Return an `evaluate_fn` that lets a node come after some rounds."""
    node.online = False

    def join(round_, arrays):
        node.online = round_ >= after

    return join


def w_of(result):
    return result.arrays["w"].numpy()


@given(
    seed=st.integers(0, 2**31 - 1),
    round_=st.integers(0, 1000),
    who=st.integers(0, 10**6),
    epoch=st.integers(0, 50),
    rows=st.integers(1, 60),
)
def test_samples_come_in_the_simulators_order(seed, round_, who, epoch, rows):
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), round_)
    theirs = kernels.sample_order(key, who, epoch, rows, room=64)[:rows]
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
    [(None, GradientNoise(theta=0.5, at_most=3)), (RandomK(3), FixedRounds(8))],
    ids=["flanp", "random"],
)
def test_the_fleet_does_what_the_simulator_does(solver, participation, stop):
    clients = linear_clients(5, s=12, unequal=True)
    options = dict(
        participation=participation, stop=stop, work=SpeedMatched(tau=3, batch=5), seed=3
    )
    run = strategy(solver, **options)
    result = run.start(fleet(clients=clients), W_0, num_rounds=12)
    simulation = Simulation(
        PROBLEM, from_clients(clients), solver, speeds=Measured(T), max_rounds=12, **options
    )
    rows = list(simulation)
    assert [row[:3] for row in run.history.rows] == [row[:3] for row in rows]
    np.testing.assert_allclose(w_of(result), simulation.history.params, atol=1e-5)
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


def deltas(grid):
    return {
        id_: node.context.state.array_records["flanp"]["client"].numpy()
        for id_, node in grid.nodes.items()
        if "flanp" in node.context.state
    }


def test_tracking_variables_sum_to_zero():
    grid = fleet()
    strategy(participation=Everyone(), stop=Never()).start(grid, W_0, num_rounds=5)
    found = deltas(grid)
    assert len(found) == 5
    assert max(np.abs(delta).max() for delta in found.values()) > 1e-3
    np.testing.assert_allclose(sum(found.values()), 0, atol=1e-6)


def test_a_client_that_lost_its_state_is_noticed_and_tracking_restarts():
    grid = fleet()
    node = grid.nodes[102]
    node.faults.extend([None] * 4)  # the probe and three rounds
    node.faults.append(lambda reply: (node.restart(), reply)[1])
    run = strategy(participation=Everyone(), stop=Never())
    run.start(grid, W_0, num_rounds=8)
    assert run.history.about["counts"]["lost states"] == 1
    np.testing.assert_allclose(sum(deltas(grid).values()), 0, atol=1e-6)


@pytest.mark.parametrize(
    "solver", [FedGATE(eta=0.05), Scaffold(eta=0.05)], ids=["gate", "scaffold"]
)
def test_the_optimum_is_found_whoever_loses_its_state(solver):
    clients = linear_clients(4, s=12)
    grid = fleet(clients=clients, N=4)
    node = grid.nodes[102]
    node.faults.extend([None] * 60)  # until the messages are a thousand times as short
    node.faults.append(lambda reply: (node.restart(), reply)[1])
    run = strategy(solver, participation=Everyone(), stop=Never(), work=Equal(tau=7))
    w = w_of(run.start(grid, W_0, num_rounds=150))
    x, y = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    best = np.linalg.solve(x.T @ x / len(x) + 0.1 * np.eye(3), x.T @ y / len(x))
    np.testing.assert_allclose(w, best, atol=1e-4)
    counts = run.history.about["counts"]
    assert counts["lost states"] == 1
    assert "malformed" not in counts


def test_a_client_that_leaves_takes_its_tracking_variable_with_it():
    grid = fleet()

    def leave(round_, arrays):
        grid.nodes[103].online = round_ < 3

    run = strategy(participation=Everyone(), stop=Never())
    run.start(grid, W_0, num_rounds=7, evaluate_fn=leave)
    there = {id_: delta for id_, delta in deltas(grid).items() if id_ != 103}
    np.testing.assert_allclose(sum(there.values()), 0, atol=1e-6)
    assert run.history.rows[-1].round == 7


def test_a_substitute_that_leaves_takes_its_tracking_variable_with_it():
    grid = fleet()

    def away(round_, arrays):
        grid.nodes[101].online = not 2 <= round_ < 5

    run = strategy(stop=FixedRounds(9), n0=2)
    run.start(grid, W_0, num_rounds=9, evaluate_fn=away)
    trained = asked_to_train(grid)
    assert trained[:7] == [101, 102, 101, 102, 102, 102, 100]
    last = {id_: delta for id_, delta in deltas(grid).items() if id_ in (101, 102)}
    np.testing.assert_allclose(sum(last.values()), 0, atol=1e-6)


def test_a_node_that_answers_the_probe_with_nonsense_stays_out():
    grid = fleet(N=3)
    grid.nodes[101].faults.append(garbage)
    run = strategy(participation=Everyone(), stop=Never())
    run.start(grid, W_0, num_rounds=2)
    assert run.history.about["counts"]["malformed"] == 1
    assert [row.n for row in run.history.rows] == [0, 2, 2]


def send(**parts):
    """Return a fault that puts other arrays or metrics into a reply."""

    def fault(reply):
        arrays = dict(reply.content.array_records["arrays"])
        metrics = dict(reply.content.metric_records["metrics"])
        for name, value in parts.items():
            if name == "m":
                arrays["m"] = Array(np.asarray(value, np.float32))
            else:
                metrics[name.replace("_", "-")] = value
        reply.content = RecordDict(
            {"arrays": ArrayRecord(arrays), "metrics": MetricRecord(metrics)}
        )
        return reply

    return fault


def garbage(reply):
    reply.content = RecordDict({"arrays": ArrayRecord({"m": Array("float32", (3,), "x", b"?")})})
    return reply


@pytest.mark.parametrize(
    "fault",
    [
        send(m=[math.nan, 0, 0]),
        send(m=[1.0, 2.0]),
        send(m=[1e30, 0, 0]),
        send(num_examples=-3.0),
        send(seconds_per_step=math.inf),
        garbage,
        "crash",
    ],
    ids=["nan", "shape", "absurd", "samples", "seconds", "garbage", "crash"],
)
def test_a_bad_reply_changes_nothing_but_a_counter(fault):
    """The run goes on as if the client had not been there in that round."""

    def go(grid):
        run = strategy(FedAvg(eta=0.05), participation=Everyone(), stop=Never(), quorum=0.2)
        return run, run.start(grid, W_0, num_rounds=4)

    bad = fleet()
    bad.nodes[101].faults.extend([None, None, fault])
    run, result = go(bad)
    counts = run.history.about["counts"]
    assert counts.get("malformed", 0) + counts.get("failed", 0) == 1
    absent = fleet()
    absent.nodes[101].faults.extend([None, None, "crash"])
    np.testing.assert_array_equal(w_of(result), w_of(go(absent)[1]))
    assert not np.array_equal(w_of(result), w_of(go(fleet())[1]))


def test_a_client_that_is_late_is_dropped_and_weighted_out():
    grid = fleet(N=3)
    grid.nodes[100].faults.extend([None, "silent"])
    run = strategy(FedAvg(eta=0.05), participation=Everyone(), stop=Never(), deadline=0.1)
    result = run.start(grid, W_0, num_rounds=1)
    assert run.history.about["counts"]["late"] == 1
    pair = linear_clients(3, s=12)[1:]
    app = client(
        gradient=gradient, data=lambda context: pair[context.node_config["partition-id"] - 1]
    )
    two = LocalGrid([LocalNode(app, {"partition-id": i}, 100 + i) for i in (1, 2)])
    alone = strategy(FedAvg(eta=0.05), participation=Everyone(), stop=Never())
    np.testing.assert_allclose(w_of(result), w_of(alone.start(two, W_0, num_rounds=1)), atol=1e-7)


def test_a_client_that_is_late_is_asked_again_when_it_has_answered(monkeypatch):
    monkeypatch.setattr(exchanges, "REST", math.inf)
    grid = fleet()
    fastest = grid.nodes[101]
    fastest.faults.extend([None, None, "late"])

    def deliver(round_, arrays):
        if round_ == 4:
            grid.deliver(fastest)

    run = strategy(stop=FixedRounds(6), n0=2, quorum=0.5, deadline=0.1)
    run.start(grid, W_0, num_rounds=6, evaluate_fn=deliver)
    trained = asked_to_train(grid)
    pairs = [{*trained[i : i + 2]} for i in range(0, len(trained), 2)]
    assert pairs == [{101, 102}] * 2 + [{102, 100}] * 2 + [{101, 102}] * 2
    assert run.history.about["counts"]["late"] == 1
    np.testing.assert_allclose(deltas(grid)[101] + deltas(grid)[102], 0, atol=1e-6)


def test_a_client_that_never_answers_is_tried_again_after_a_while(monkeypatch):
    monkeypatch.setattr(exchanges, "REST", 0.0)
    grid = fleet(N=3)
    grid.nodes[101].faults.extend([None, "silent"])
    run = strategy(FedAvg(eta=0.05), participation=Everyone(), stop=Never(), deadline=0.1)
    run.start(grid, W_0, num_rounds=3)
    trained = asked_to_train(grid)
    assert trained.count(101) == 3


def test_a_node_that_owes_two_replies_is_left_alone_until_it_has_sent_both():
    grid = fleet(N=1, app=plain_app(linear_clients(1)))
    grid.nodes[100].faults.extend(["late", "late"])
    exchange = exchanges.Exchange(grid)
    for _ in range(2):
        exchange.ask({100: RecordDict({"arrays": W_0})}, "train", 0.5, lambda *_: None, needed=0)
    assert exchange.overdue() == {100}
    grid.deliver(grid.nodes[100])
    assert exchange.overdue() == {100}
    grid.deliver(grid.nodes[100])
    assert exchange.overdue() == set()


def test_those_who_owe_a_reply_are_asked_where_nobody_else_is_left(monkeypatch):
    monkeypatch.setattr(exchanges, "REST", math.inf)
    grid = fleet(N=2)
    grid.nodes[101].faults.extend([None, "silent"])

    def leave(round_, arrays):
        grid.nodes[100].online = round_ < 1

    run = strategy(FedAvg(eta=0.05), participation=Everyone(), stop=Never(), deadline=0.05)
    run.start(grid, W_0, num_rounds=2, evaluate_fn=leave)
    trained = asked_to_train(grid)
    assert trained == [101, 100, 101]


def test_a_late_reply_still_tells_how_fast_a_client_is(monkeypatch, tmp_path):
    monkeypatch.setattr(exchanges, "REST", math.inf)
    grid = fleet(N=3)
    fastest = grid.nodes[101]
    for node, seconds in zip(grid.nodes.values(), (0.03, 0.01, 0.02), strict=True):
        node.faults.extend([send(seconds_per_step=seconds)] * 9)
    fastest.faults[1], fastest.faults[2] = "late", send(seconds_per_step=9.0)

    def deliver(round_, arrays):
        if round_ == 2:
            send(seconds_per_step=9.0)(fastest.late[0][1])
            grid.deliver(fastest)

    run = strategy(stop=FixedRounds(3), speeds=None, n0=2, deadline=0.1, save=tmp_path)
    run.start(grid, W_0, num_rounds=3, evaluate_fn=deliver)
    assert json.loads((tmp_path / "fleet.json").read_text())["ranking"][-1] == "1"


def test_the_next_fastest_takes_the_place_of_a_dead_participant():
    grid = fleet()
    fastest = grid.nodes[101]

    def die(round_, arrays):
        fastest.online = round_ < 1

    run = strategy(stop=FixedRounds(3), n0=1)
    run.start(grid, W_0, num_rounds=3, evaluate_fn=die)
    trained = asked_to_train(grid)
    assert trained == [101, 102, 102]


def test_nobody_answers_stops_with_an_error_and_the_model_saved(tmp_path):
    grid = fleet(N=3)

    def die(round_, arrays):
        for node in grid.nodes.values():
            node.online = round_ < 2

    run = strategy(participation=Everyone(), stop=Never(), save=tmp_path / "run")
    with pytest.raises(NobodyAnswered, match="none of 3 clients"):
        run.start(grid, W_0, num_rounds=9, evaluate_fn=die)
    saved = History.load(tmp_path / "run")
    assert saved.rows[-1].round == 2
    assert "NobodyAnswered" in saved.about["ended"]
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_too_few_nodes_are_not_waited_for_without_end():
    with pytest.raises(NobodyAnswered, match="start more"):
        strategy(min_available_nodes=9).start(fleet(), W_0, timeout=0.1)


def test_a_node_that_joins_is_measured_and_takes_part():
    grid = fleet(N=4)
    run = strategy(stop=FixedRounds(2))
    run.start(grid, W_0, num_rounds=30, evaluate_fn=joining(grid.nodes[103], after=2))
    assert [row.n for row in run.history.rows] == [0, 1, 1, 2, 2, 4, 4]


def test_a_node_that_joins_in_the_last_stage_makes_another():
    grid = fleet(N=3)
    run = strategy(stop=FixedRounds(3), participation=Everyone())
    run.start(grid, W_0, num_rounds=30, evaluate_fn=joining(grid.nodes[102], after=1))
    assert [row.n for row in run.history.rows] == [0, 2, 2, 2, 3, 3, 3]


def test_a_node_that_joins_a_run_to_a_target_takes_part():
    grid = fleet(N=3)
    run = strategy(participation=Everyone(), stop=Never(), target={"loss": -1.0})
    run.start(grid, W_0, num_rounds=5, evaluate_fn=joining(grid.nodes[102], after=2))
    assert [row.n for row in run.history.rows] == [0, 2, 2, 2, 2, 3]


@pytest.mark.parametrize("target", [None, {"loss": -1.0}])
def test_a_node_that_joins_and_fails_is_asked_once_in_a_stage(target):
    grid = fleet(N=3)
    mute = grid.nodes[102]
    mute.faults.extend(["crash"] * 100)
    run = strategy(stop=FixedRounds(2), participation=Everyone(), target=target)
    run.start(grid, W_0, num_rounds=8, evaluate_fn=joining(mute, after=1))
    assert {(row.stage, row.n) for row in run.history.rows[1:]} == {(0, 2)}
    assert [id_ for id_, _ in grid.log].count(mute.id) == 1


def test_a_node_that_comes_back_under_another_id_takes_part():
    grid = fleet(N=3)
    clients = linear_clients(5, s=12)
    other = fleet(clients=clients, N=3).nodes[102]
    other.id = 999

    def replace(round_, arrays):
        if round_ == 2:
            del grid.nodes[102]
            grid.nodes[999] = other

    run = strategy(participation=Everyone(), stop=Never(), target={"loss": -1.0})
    run.start(grid, W_0, num_rounds=8, evaluate_fn=replace)
    assert [row.n for row in run.history.rows] == [0, 3, 3, 2, 2, 3, 3, 3, 3]


def test_a_client_that_answers_the_probe_late_takes_part_from_the_next_stage_on(monkeypatch):
    monkeypatch.setattr(exchanges, "HURRY_SECONDS", 0.0)
    grid = fleet(N=3)
    slow = grid.nodes[100]
    slow.faults.append("late")

    def deliver(round_, arrays):
        if round_ == 1:
            grid.deliver(slow)

    run = strategy(stop=FixedRounds(3), participation=Everyone())
    run.start(grid, W_0, num_rounds=30, evaluate_fn=deliver)
    assert [row.n for row in run.history.rows] == [0, 2, 2, 2, 3, 3, 3]


def test_when_fewer_are_left_than_the_policy_asks_for_those_go_on():
    grid = fleet(N=4)

    def leave(round_, arrays):
        for id_ in (102, 103):
            grid.nodes[id_].online = round_ < 2

    run = strategy(participation=RandomK(3), stop=Never(), target={"loss": -1.0})
    run.start(grid, W_0, num_rounds=5, evaluate_fn=leave)
    assert [row.n for row in run.history.rows] == [0, 3, 3, 2, 2, 2]
    with pytest.raises(BadInput, match="at most the number of clients, 4"):
        strategy(participation=RandomK(5)).start(fleet(N=4), W_0)


def test_all_nodes_may_be_gone_for_a_moment(monkeypatch):
    monkeypatch.setattr(fleets, "RETURN_SECONDS", 5.0)
    grid = fleet(N=3)
    looks = iter([True] * 12 + [False] * 20)
    online = grid.get_node_ids
    monkeypatch.setattr(grid, "get_node_ids", lambda: online() if next(looks, True) else [])
    run = strategy(participation=Everyone(), stop=Never())
    run.start(grid, W_0, num_rounds=6)
    assert [row.n for row in run.history.rows][-1] == 3
    assert next(looks, None) is None


def test_deadlines_leave_time_for_all_that_a_client_does(monkeypatch):
    """Steps are quick; reading the data is not, and the first message shows it."""
    from flanp.flower import timing

    monkeypatch.setattr(timing, "LEAST_DEADLINE", 0.01)
    grid = SlowGrid(fleet(N=2).nodes.values(), seconds=0.0)
    slow = grid.nodes[101]
    slow.takes = 0.5
    slow.faults.extend([send(seconds_busy=0.5)] * 4)
    speeds = {"0": 1e-3, "1": 1e-3}
    run = strategy(FedAvg(eta=0.05), participation=Everyone(), stop=Never(), speeds=speeds)
    run.start(grid, W_0, num_rounds=3)
    assert run.history.about["counts"] == {"exchanges": 4}


def test_a_hung_node_does_not_hide_the_target():
    grid = fleet(N=4)
    grid.nodes[103].faults.extend([None, *["silent"] * 50])
    options = dict(participation=Everyone(), stop=Never(), target={"loss": 0.3})
    run = strategy(**options, deadline=0.05)
    run.start(grid, W_0, num_rounds=50)
    assert run.history.about["ended"] == "target reached"
    assert run.history.rows[-1].n == 3


def test_a_stage_begins_with_replies_of_its_own():
    run = strategy(stop=GradientNoise(at_most=3), n0=2, target={"loss": -1.0})
    grid = fleet(N=4)
    run.start(grid, W_0, num_rounds=5)
    assert [row.n for row in run.history.rows] == [0, 2, 2, 2, 4, 4]
    trained = asked_to_train(grid)
    assert trained.count(103) == 2
    assert run.history.about["counts"] == {"exchanges": 1 + 5 + 1}


def test_ranking_is_measured_by_the_clients_and_one_odd_round_does_not_move_it():
    grid = fleet(N=3)
    for node, seconds in zip(grid.nodes.values(), (0.03, 0.01, 0.02), strict=True):
        node.faults.extend([send(seconds_per_step=seconds)] * 3)
    grid.nodes[101].faults.extend([send(seconds_per_step=9.0), send(seconds=0.01)])
    run = strategy(stop=FixedRounds(3), speeds=None, n0=1)
    run.start(grid, W_0, num_rounds=6)
    trained = asked_to_train(grid)
    assert trained[:5] == [101, 101, 101, 101, 102]


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
    assert History.load(tmp_path / "run").about["ended"] == "limit of 10 rounds"


def test_a_run_ends_at_its_target():
    run = strategy(participation=Everyone(), stop=Never(), target={"loss": 0.3})
    run.start(fleet(), W_0)
    assert run.history.about["ended"] == "target reached"
    losses = run.history.column("loss")
    assert losses[-2] <= 0.3 < losses[-3]


def plain_app(clients):
    """Return a client as Flower's examples have them: it knows nothing of FLANP."""
    app = ClientApp()

    @app.train()
    def train(msg, context):
        x, y = clients[context.node_config["partition-id"]]
        w = msg.content["arrays"]["w"].numpy()
        for _ in range(5):
            w = w - 0.05 * (x.T @ (x @ w - y) / len(x)).astype(np.float32)
        return Message(
            RecordDict(
                {
                    "arrays": ArrayRecord({"w": Array(w)}),
                    "metrics": MetricRecord({"num-examples": len(x), "train_loss": 1.0}),
                }
            ),
            reply_to=msg,
        )

    @app.evaluate()
    def evaluate(msg, context):
        metrics = MetricRecord({"num-examples": 1, "accuracy": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=msg)

    return app


def test_plain_fedavg_clients_need_no_change():
    clients = linear_clients(6, s=40)
    grid = fleet(N=6, app=plain_app(clients))
    run = Flanp(fraction_evaluate=1.0)
    result = run.start(grid, W_0, num_rounds=200)
    assert run.history.about["ended"] == "accuracy reached"
    stages = list(dict.fromkeys(row.n for row in run.history.rows))
    assert stages == [0, 2, 4, 6]
    x, y = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    assert np.linalg.norm(w_of(result) - best) < 0.1 * np.linalg.norm(best)
    assert result.train_metrics_clientapp[1]["train_loss"] == 1.0
    assert list(result.evaluate_metrics_clientapp.values())[-1]["accuracy"] == pytest.approx(0.5)


def test_plain_clients_that_lost_the_race_are_not_asked_to_run_it_again():
    grid = SlowGrid(fleet(N=4, app=plain_app(linear_clients(4))).nodes.values(), seconds=0.0)
    for id_ in (102, 103):
        grid.nodes[id_].takes = 0.5
    Flanp(stop=FixedRounds(2)).start(grid, W_0, num_rounds=4)
    sent = [id_ for id_, _ in grid.log]
    assert [sent.count(id_) for id_ in (100, 101, 102, 103)] == [5, 5, 3, 3]


def test_known_speeds_of_plain_clients_need_no_race():
    grid = fleet(N=4, app=plain_app(linear_clients(4)))
    speeds = {"100": 4.0, "101": 3.0, "102": 2.0, "103": 1.0}
    Flanp(stop=FixedRounds(2), speeds=speeds).start(grid, W_0, num_rounds=2)
    assert [id_ for id_, _ in grid.log] == [103, 102, 103, 102]


def test_evaluation_does_not_wait_for_nodes_that_left_or_send_other_metrics():
    app = plain_app(linear_clients(3))
    grid = fleet(N=3, app=app)

    def leave(round_, arrays):
        grid.nodes[102].online = round_ < 1

    def two_numbers(reply):
        reply.content.metric_records["metrics"]["accuracy"] = [1.0, 2.0]
        return reply

    grid.nodes[101].faults.extend([None] * 5 + [two_numbers])
    run = Flanp(
        participation=Everyone(), stop=FixedRounds(4), fraction_evaluate=1.0, min_available_nodes=3
    )
    result = run.start(grid, W_0, num_rounds=4, evaluate_fn=leave)
    (metrics,) = result.evaluate_metrics_clientapp.values()
    assert "accuracy" not in metrics


def test_records_may_have_names_of_their_own():
    clients, app = linear_clients(2), ClientApp()

    @app.train()
    def train(msg, context):
        assert msg.content["settings"]["server-round"] >= 0
        x, _ = clients[context.node_config["partition-id"]]
        metrics = MetricRecord({"weight": len(x)})
        return Message(
            RecordDict({"model": msg.content["model"], "metrics": metrics}), reply_to=msg
        )

    names = dict(arrayrecord_key="model", configrecord_key="settings", weighted_by_key="weight")
    run = Flanp(participation=Everyone(), stop=Never(), **names)
    run.start(fleet(N=2, app=app), W_0, num_rounds=2)
    assert run.history.rows[-1].n == 2
    with pytest.raises(BadInput, match="only for plain clients"):
        strategy(**names)


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language == "python" and "flanp.flower" in b.text]
)
def test_the_pages_on_flower_are_true(block):
    grid = fleet(N=6, app=plain_app(linear_clients(6)))
    names = {"grid": grid, "arrays": W_0}
    exec(compile(block.text, block.page, "exec"), names)
    assert names["strategy"].history.rows[-1].n == 6
    assert np.isfinite(w_of(names["result"])).all()


def test_plain_fedavg_with_everyone_is_flowers_fedavg():
    from flwr.serverapp.strategy import FedAvg as FlowerFedAvg

    app = plain_app(linear_clients(4, s=10, unequal=True))
    ours = Flanp(participation=Everyone(), stop=Never()).start(fleet(4, app), W_0, num_rounds=5)
    theirs = FlowerFedAvg(fraction_evaluate=0.0).start(fleet(4, app), W_0, num_rounds=5)
    np.testing.assert_allclose(w_of(ours), w_of(theirs), atol=1e-6)


def test_a_full_strategy_with_plain_clients_says_so():
    grid = fleet(app=plain_app(linear_clients(5)))
    with pytest.raises(NobodyAnswered, match="flanp.flower.client"):
        strategy().start(grid, W_0, num_rounds=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(quorum=0.0), "quorum"),
        (dict(solver=None), "needs a solver"),
        (dict(deadline=-1.0), "deadline"),
        (dict(stop=Authors()), "GradientNoise"),
        (dict(resume=True), "save"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        strategy(**{"solver": FedGATE(eta=0.05), **options})


def test_a_client_needs_a_loss_or_a_gradient():
    with pytest.raises(BadInput, match="loss"):
        client(data=lambda context: ())


def test_models_travel_as_arrays_with_names():
    params = MLP(widths=(4,)).init(
        jax.random.key(0), from_clients([(np.ones((2, 3)), np.array([0, 2]))], classes=3)
    )
    arrays = arrays_of(params)
    assert list(arrays) == ["0.W", "0.b", "1.W", "1.b"]
    names = names_of(arrays)
    back = nested(names.split(names.ravel(arrays)))
    jax.tree.map(np.testing.assert_array_equal, back, params)


def test_integers_in_a_model_keep_their_type():
    arrays = ArrayRecord({"w": Array(np.ones(2, np.float32)), "steps": Array(np.array(7))})
    names = names_of(arrays)
    record = names.record(names.ravel(arrays))
    assert record["steps"].numpy() == 7
    assert record["steps"].numpy().dtype == np.int64
    assert names.ravel(arrays).dtype == np.float32


def test_batch_norm_is_refused():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(BadInput, match="GroupNorm"):
        arrays_of(torch.nn.BatchNorm1d(3))
