"""Fleets of Flower nodes in this process, and strategies for them."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flanp import Method
from flanp.flower import Flanp, OwnTraining, arrays_of, client
from flanp.participation import Growing
from flanp.problems import LinearRegression
from flanp.solvers import FedGATE
from flanp.stopping import FixedRounds
from flanp.work import Equal

from nodes import FakeTime, LocalGrid, LocalNode, SlowGrid
from small import linear_clients

PROBLEM = LinearRegression(l2=0.1)
T = (3.0, 1.0, 2.0, 5.0, 4.0)
SPEEDS = {str(i): seconds for i, seconds in enumerate(T)}
W_0 = arrays_of(np.zeros(3, np.float32))
FIRST_ID = 2**63 - 2
"""Node i has the id FIRST_ID + i: Flower's ids lie on both sides of 2^63."""


def gradient(params, batch):
    x, y = batch
    residual = x @ params["w"] - y
    loss = (residual**2).mean() / 2 + 0.05 * params["w"] @ params["w"]
    return loss, {"w": x.T @ residual / len(x) + 0.1 * params["w"]}


def node_of(grid, i):
    """Return the node with partition i."""
    return grid.nodes[FIRST_ID + i]


def fleet(N=5, app=None, clients=None):
    clients = clients or linear_clients(N, s=12)
    app = app or client(
        gradient=gradient, data=lambda context: clients[context.node_config["partition-id"]]
    )
    return LocalGrid([LocalNode(app, {"partition-id": i}, FIRST_ID + i) for i in range(N)])


def slow_fleet(seconds):
    """Return a grid whose nodes take so many seconds for each task, and its time."""
    time = FakeTime()
    grid = SlowGrid(fleet(N=len(seconds)).nodes.values(), seconds=0.0, time=time)
    for i, takes in enumerate(seconds):
        node_of(grid, i).takes = takes
    return grid, time


def strategy(solver=FedGATE(eta=0.05), time=None, **options):  # noqa: B008
    """Return a strategy; parts of the method are given by name."""
    parts = {"stop": FixedRounds(3), "work": Equal(tau=7, batch=5)}
    names = ("participation", "stop", "work", "patience")
    parts |= {name: options.pop(name) for name in names if name in options}
    return Flanp(Method(solver, **parts), time=time or FakeTime(), **{"speeds": SPEEDS} | options)


def plain_strategy(participation=Growing(n0=2), time=None, **options):  # noqa: B008
    """Return a strategy for plain clients."""
    names = ("stop", "patience")
    parts = {name: options.pop(name) for name in names if name in options}
    method = Method(OwnTraining(), participation, work=Equal(tau=1), **parts)
    return Flanp(method, time=time or FakeTime(), **options)


def asked(grid):
    """Return the numbers of the nodes in the order in which messages were sent to them."""
    return [id_ - FIRST_ID for id_, _ in grid.log]


def asked_to_train(grid):
    types = [message.metadata.message_type for _, message in grid.log]
    return [i for i, type_ in zip(asked(grid), types, strict=True) if type_ == "train"]


def joining(node, after):
    """Return an `evaluate_fn` that lets a node come after some rounds."""
    node.online = False

    def join(round_, arrays):
        node.online = round_ >= after

    return join


def w_of(result):
    return result.arrays["w"].numpy()


def deltas(grid):
    return {
        id_ - FIRST_ID: node.context.state.array_records["flanp"]["client.own"].numpy()
        for id_, node in grid.nodes.items()
        if "flanp" in node.context.state
    }


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
