"""What the fast engine must keep whatever it does to be fast."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flanp
from flanp import Method, Metric, prepare
from flanp.data import Digits, from_clients
from flanp.divergence import Diverged
from flanp.ended import Reason
from flanp.measurement import Look
from flanp.participation import Everyone, Growing, RandomK
from flanp.problems import MLP, Custom, LinearRegression, LogisticRegression
from flanp.simulator.engine import Simulator
from flanp.simulator.rounds import round_
from flanp.simulator.sampling import sample_order
from flanp.simulator.world import World
from flanp.solvers import FedAvg, FedGATE, Scaffold
from flanp.stopping import FixedRounds, Never
from flanp.work import Equal, SpeedMatched

from small import linear_clients, models, one_round, run

SEVEN = World(np.arange(1.0, 8.0))


def count_compilations():
    return round_._cache_size()


def test_one_compilation_serves_all_stages_step_sizes_and_steps():
    before = count_compilations()
    for eta in (0.05, 0.03):
        gate = FedGATE(eta=eta, schedule=flanp.schedules.Shrinking())
        run_ = prepare(
            LinearRegression(l2=0.123),
            from_clients(linear_clients(1000, s=7)),
            Method(gate, Growing(n0=1), FixedRounds(2), SpeedMatched(tau=2)),
        )
        rows = list(run_)
        assert rows[-1].n == 1000
        assert {row.n for row in rows} >= {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000}
    assert count_compilations() == before + 1


@pytest.mark.parametrize("work", [Equal(tau=5, batch=6), SpeedMatched(tau=2, limit=4)])
@pytest.mark.parametrize("solver", [FedGATE(eta=0.05), Scaffold(eta=0.05), FedAvg(eta=0.05)])
def test_the_chunk_changes_nothing(work, solver):
    kind = {
        "N": 7,
        "unequal": True,
        "work": work,
        "solver": solver,
        "participation": Growing(2, 1.5),
    }
    alone = run(chunk=1, **kind)
    for chunk in (2, 3):
        together = run(chunk=chunk, **kind)
        np.testing.assert_allclose(models(alone[1]), models(together[1]), atol=1e-12)


def test_rounds_never_queue_up_and_devices_wait_for_each_other_without_end():
    """Programs that reduce over CPU devices deadlock when queued, and XLA kills the process."""
    data = from_clients(linear_clients(4, s=5))
    world = World(np.arange(1.0, 5.0))
    engine = Simulator(LinearRegression(), data, FedGATE(eta=0.01), world, batch=2)
    model = engine.start()
    for number in range(200):
        model = one_round(engine, model, number, np.arange(2), np.array([50, 1]), 0.01, 1.0)
        arrays = jax.tree.leaves((model.w, model.server, model.clients, model.inbox))
        assert all(a.is_ready() for a in arrays)
    if len(jax.local_devices()) > 1:  # one, where JAX was running before the simulator
        patience = "--xla_cpu_collective_call_terminate_timeout_seconds=604800"
        assert patience in os.environ["XLA_FLAGS"]


def test_participants_can_be_any_subset_in_any_order():
    data = from_clients(linear_clients(7))
    world = World(np.array([3.0, 2.0, 6.0, 1.0, 7.0, 5.0, 4.0]))
    assert world.ranking.tolist() == [3, 1, 0, 6, 5, 2, 4]
    engine = Simulator(LinearRegression(), data, FedGATE(eta=0.05), world, precision="float64")
    for active in ([6], [2, 5], [5, 2], [0, 1, 3, 6]):
        after = one_round(
            engine, engine.start(), 0, np.array(active), np.full(len(active), 3), 0.05, 1.0
        )
        models_ = []
        for i in active:
            x, y = linear_clients(7)[i]
            w = np.zeros(3)
            for _ in range(3):
                w -= 0.05 * x.T @ (x @ w - y) / len(y)
            models_.append(w)
        np.testing.assert_allclose(np.asarray(after.w), np.mean(models_, axis=0), atol=1e-12)


@pytest.mark.parametrize("condensed", [True, False])
def test_measurements_by_hand(condensed):
    clients = linear_clients(7, unequal=True)
    data = from_clients(clients)
    engine = Simulator(
        LinearRegression(l2=0.2),
        data,
        FedAvg(eta=0.1),
        SEVEN,
        batch=None if condensed else 4,
        precision="float64",
    )
    model = one_round(engine, engine.start(), 0, np.arange(7), np.full(7, 2), 0.1, 1.0)
    w = np.asarray(model.w)

    def by_hand(ids):
        x, y = (np.concatenate(p) for p in zip(*(clients[i] for i in ids), strict=True))
        residual = x @ w - y
        return np.mean(residual**2) / 2 + 0.1 * w @ w, x.T @ residual / len(y) + 0.2 * w

    active = np.array([4, 2, 6])
    of_active, of_all, each = engine.look(model, active, Look.ACTIVE | Look.WHOLE)
    assert each is None
    for measured, ids in ((of_active, active), (of_all, range(7))):
        loss, g = by_hand(ids)
        s = np.array([len(clients[i][1]) for i in ids])
        assert measured.clients == len(s)
        assert measured.samples == s.sum()
        assert measured.loss == pytest.approx(loss)
        assert measured.grad_norm_sq == pytest.approx(g @ g)
        apart = np.array([np.sum((by_hand([i])[1] - g) ** 2) for i in ids])
        assert measured.noise == pytest.approx(s @ apart / s.sum() / (len(s) - 1))
    alone, *nothing = engine.look(model, np.array([3]), Look.ACTIVE)
    assert nothing == [None, None]
    x, y = clients[3]
    halves = [x[h::2].T @ (x[h::2] @ w - y[h::2]) / len(y[h::2]) + 0.2 * w for h in (0, 1)]
    share = np.array([len(y[0::2]), len(y[1::2])]) / len(y)
    g = share @ halves
    expected = share @ [np.sum((half - g) ** 2) for half in halves]
    assert alone.noise == pytest.approx(expected)


@pytest.mark.parametrize("batch", [None, 4])
def test_losses_of_each_by_hand(batch):
    clients, active = linear_clients(7, unequal=True), np.array([4, 2, 6])
    options = {"batch": batch, "row_by_row": True, "precision": "float64"}
    parts = LinearRegression(), from_clients(clients), FedAvg(eta=0.1), SEVEN
    engine = Simulator(*parts, **options)
    each = engine.look(engine.start(), active, Look.EACH).each
    losses = [clients[i][1] ** 2 / 2 for i in active]  # w = 0
    expected = [(loss.mean(), np.sqrt(np.mean(loss**2))) for loss in losses]
    np.testing.assert_allclose(each, expected)


def test_every_epoch_sees_every_sample_once():
    key = jax.random.key(3)
    orders = [
        np.asarray(sample_order(key, client, epoch, rows, room=12))
        for client in range(3)
        for epoch in range(3)
        for rows in (1, 7, 12)
    ]
    for order, rows in zip(orders, [1, 7, 12] * 9, strict=True):
        assert sorted(order[:rows]) == list(range(rows))
    assert len({tuple(order) for order in orders[2::3]}) == 9


@pytest.mark.parametrize("problem", [LogisticRegression(l2=0.01), MLP(widths=(16,))])
def test_classification_learns(problem):
    history = flanp.simulate(
        problem,
        Digits(clients=9),
        Method(FedGATE(eta=0.1), Growing(2), FixedRounds(8), Equal(epochs=1, batch=16)),
        progress=False,
    )
    assert history.rows[0].metrics["test_error"] > 0.8
    assert history.rows[-1].metrics["test_error"] < 0.12
    assert history.metrics == {"test_error": False}


def test_your_own_model_with_any_pytree():
    def init(key):
        return {"slope": jnp.zeros((3, 1)), "offset": (jnp.zeros(()),)}

    def loss(params, batch):
        x, y = batch
        prediction = (x @ params["slope"])[:, 0] + params["offset"][0]
        return jnp.mean((prediction - y) ** 2)

    history = flanp.simulate(
        Custom(init, loss, metrics=(Metric("error", loss),)),
        from_clients(linear_clients(5, unequal=True), test=linear_clients(5, unequal=True)[0]),
        Method(FedAvg(eta=0.1), stop=FixedRounds(20)),
        progress=False,
    )
    x, y = (np.concatenate(p) for p in zip(*linear_clients(5, unequal=True), strict=True))
    design = np.hstack([x, np.ones((len(x), 1))])
    best = np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(history.params["slope"][:, 0], best[:3], atol=0.1)
    assert history.rows[-1].metrics["error"] < history.rows[0].metrics["error"]


def test_padding_is_never_seen_even_by_a_loss_that_is_not_defined_at_zero():
    def loss(params, batch):
        return jnp.mean((params - jnp.log(batch[0])) ** 2)

    rng = np.random.default_rng(0)
    clients = [(rng.uniform(1, 2, size),) for size in (5, 2, 1)]
    problem = Custom(lambda key: jnp.zeros(()), loss, metrics=(Metric("error", loss),))
    data = from_clients(clients, test=(rng.uniform(1, 2, 5),))
    method = Method(FedGATE(eta=0.1), stop=FixedRounds(30), work=Equal(tau=4, batch=2))
    history = flanp.simulate(problem, data, method, progress=False)
    mean_log = np.log(np.concatenate([c[0] for c in clients])).mean()
    assert float(history.params) == pytest.approx(mean_log, abs=0.05)
    assert np.isfinite(history.rows[-1].metrics["error"])


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Custom(lambda key: jnp.zeros(3), lambda p, b: b[0] @ p), r"returns float32\[1\]"),
        (Custom(lambda key: jnp.zeros(3), lambda p, b: jnp.sum(b[0] > 0)), "must be one float"),
    ],
)
def test_a_loss_that_is_not_one_float_is_refused(problem, message):
    clients = [(x.astype(np.float32), y) for x, y in linear_clients(3)]
    with pytest.raises(flanp.BadInput, match=message):
        prepare(problem, from_clients(clients), Method(FedAvg(eta=0.1)))


def test_impossible_targets_are_refused_at_once():
    data = from_clients(linear_clients(3))
    method = Method(FedAvg(eta=0.1))
    with pytest.raises(flanp.BadInput, match="target.test_error: there is no such column"):
        prepare(LinearRegression(), data, method, target={"test_error": 0.1})
    digits = Digits(clients=3)
    with pytest.raises(flanp.BadInput, match="target.distance: there is no such column"):
        prepare(LogisticRegression(), digits, method, target={"distance": 0.1})


def test_the_last_round_of_every_stage_is_recorded():
    data = from_clients(linear_clients(7))
    method = Method(FedGATE(eta=0.05), Growing(2, 2), FixedRounds(4))
    runs = [prepare(LinearRegression(), data, method, record_every=every) for every in (1, 3)]
    for run_ in runs:
        list(run_)
    assert runs[0].history.stages() == runs[1].history.stages()
    assert [row.round for row in runs[1].history.rows] == [0, 3, 4, 6, 8, 9, 12]


def test_float32_by_default_float64_on_request():
    data = from_clients(linear_clients(7))
    for precision in ("float32", "float64"):
        engine = Simulator(LinearRegression(), data, FedAvg(eta=0.1), SEVEN, precision=precision)
        assert engine.start().w.dtype == precision
    assert jnp.zeros(1).dtype == "float32"


def test_a_loss_that_turns_infinite_stops_the_run_and_keeps_the_history():
    run_ = prepare(
        LinearRegression(),
        from_clients(linear_clients(7)),
        Method(FedAvg(eta=50.0), Growing(2, 3), FixedRounds(4), Equal(tau=6)),
    )
    with pytest.raises(
        Diverged, match=r"in round \d+ \(stage \d, \d clients\). The steps were too long: lower eta"
    ) as caught:
        list(run_)
    history = caught.value.history
    assert len(history.rows) >= 1
    assert all(np.isfinite(row.loss) for row in history.rows)
    assert history.ended.reason is Reason.DIVERGED
    assert str(history.ended).startswith("diverged in round")


def test_limits_and_targets_end_a_run():
    data = from_clients(linear_clients(7))
    method = Method(FedGATE(eta=0.1), Everyone(), Never())

    def ended(**options):
        run_ = prepare(LinearRegression(), data, method, **options)
        rows = list(run_)
        return str(run_.history.ended), rows

    assert ended(max_rounds=3)[0] == "limit of 3 rounds"
    reason, rows = ended(max_time=20_000.0)
    assert reason == "limit of 20000 virtual seconds"
    assert rows[-2].time < 20_000 <= rows[-1].time
    reason, rows = ended(target={"distance": 0.1})
    assert reason == "target reached"
    assert rows[-1].value("distance") <= 0.1 < rows[-2].value("distance")
    with pytest.raises(flanp.BadInput, match="target.los: there is no such column"):
        ended(target={"los": 1.0})
    _, every_third = ended(max_rounds=7, record_every=3)
    assert [row.round for row in every_third] == [0, 3, 6, 7]


def test_random_participants_differ_from_round_to_round():
    _, trace = run(participation=RandomK(3), rounds=5)
    assert len({tuple(state.active) for state, _ in trace}) > 1
    assert all(len(set(state.active)) == 3 for state, _ in trace)
