"""A client of both kinds: of flanp's, and plain as FedAvg's are; `fault` makes it misbehave."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flanp.flower import client
from fleet.task import gradient, samples

full = client(gradient=gradient, data=lambda c: samples(int(c.node_config["partition-id"])))
app = ClientApp()


@app.query("profile")
def profile(msg, context):
    return full(msg, context)


@app.train()
def train(msg, context):
    if "flanp" not in msg.content["config"]:
        return plain(msg, context)
    reply = full(msg, context)
    fault = context.node_config.get("fault")
    m = reply.content["arrays"]["m"].numpy()
    if fault == "nan":
        m = m * np.nan
    elif fault == "shape":
        m = m[:-1]
    elif fault == "garbage":
        return Message(RecordDict({"metrics": MetricRecord({"hello": 1})}), reply_to=msg)
    if fault:
        arrays = {**reply.content["arrays"], "m": Array(m)}
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": reply.content["metrics"]})
        return Message(content, reply_to=msg)
    return reply


def plain(msg, context):
    batch = samples(int(context.node_config["partition-id"]))
    w = msg.content["arrays"]["w"].numpy()
    for _ in range(5):
        w = w - np.float32(0.05) * gradient({"w": w}, batch)[1]["w"]
    metrics = MetricRecord({"num-examples": len(batch[0])})
    return Message(
        RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": metrics}), reply_to=msg
    )
