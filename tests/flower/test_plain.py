"""Plain FedAvg clients, unchanged."""

import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flanp.checks import BadInput
from flanp.flower import Flanp, NobodyAnswered
from flanp.participation import Everyone
from flanp.stopping import FixedRounds, Never

from documents import BLOCKS
from fleets import FIRST_ID, W_0, asked, fleet, node_of, plain_app, plain_strategy, strategy, w_of
from nodes import FakeTime, SlowGrid
from small import linear_clients


def test_plain_fedavg_clients_need_no_change():
    clients = linear_clients(6, s=40)
    grid = fleet(N=6, app=plain_app(clients))
    run = Flanp(fraction_evaluate=1.0)
    result = run.start(grid, W_0, num_rounds=200)
    assert str(run.history.ended) == "accuracy reached"
    stages = list(dict.fromkeys(row.n for row in run.history.rows))
    assert stages == [0, 2, 4, 6]
    x, y = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    assert np.linalg.norm(w_of(result) - best) < 0.1 * np.linalg.norm(best)
    assert result.train_metrics_clientapp[1]["train_loss"] == 1.0
    assert list(result.evaluate_metrics_clientapp.values())[-1]["accuracy"] == pytest.approx(0.5)


def test_plain_clients_that_lost_the_race_are_not_asked_to_run_it_again():
    time = FakeTime()
    nodes = fleet(N=4, app=plain_app(linear_clients(4))).nodes.values()
    grid = SlowGrid(nodes, seconds=0.0, time=time)
    for i in (2, 3):
        node_of(grid, i).takes = 0.5
    plain_strategy(stop=FixedRounds(2), time=time).start(grid, W_0, num_rounds=4)
    sent = asked(grid)
    assert [sent.count(id_) for id_ in (0, 1, 2, 3)] == [5, 5, 3, 3]


def test_known_speeds_of_plain_clients_need_no_race():
    grid = fleet(N=4, app=plain_app(linear_clients(4)))
    speeds = {str(FIRST_ID + i): 4.0 - i for i in range(4)}
    plain_strategy(stop=FixedRounds(2), speeds=speeds).start(grid, W_0, num_rounds=2)
    assert asked(grid) == [3, 2, 3, 2]


def test_evaluation_does_not_wait_for_nodes_that_left_or_send_other_metrics():
    app = plain_app(linear_clients(3))
    grid = fleet(N=3, app=app)

    def leave(round_, arrays):
        node_of(grid, 2).online = round_ < 1

    def two_numbers(reply):
        reply.content.metric_records["metrics"]["accuracy"] = [1.0, 2.0]
        return reply

    node_of(grid, 1).faults.extend([None] * 5 + [two_numbers])
    run = plain_strategy(
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
    run = plain_strategy(Everyone(), stop=Never(), **names)
    run.start(fleet(N=2, app=app), W_0, num_rounds=2)
    assert run.history.rows[-1].n == 2
    with pytest.raises(BadInput, match="only for plain clients"):
        strategy(**names)


@pytest.mark.parametrize(
    "block",
    [b for b in BLOCKS if b.language == "python" and "in place of flwr" in b.text],
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
    ours = plain_strategy(Everyone(), stop=Never()).start(fleet(4, app), W_0, num_rounds=5)
    theirs = FlowerFedAvg(fraction_evaluate=0.0).start(fleet(4, app), W_0, num_rounds=5)
    np.testing.assert_allclose(w_of(ours), w_of(theirs), atol=1e-6)


def test_a_full_strategy_with_plain_clients_says_so():
    grid = fleet(app=plain_app(linear_clients(5)))
    with pytest.raises(NobodyAnswered, match="flanp.flower.client"):
        strategy().start(grid, W_0, num_rounds=2)
