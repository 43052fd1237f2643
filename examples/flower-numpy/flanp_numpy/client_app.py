"""The client: its data and its gradient; flanp does the rest."""

from flanp.flower import client
from flanp_numpy.task import gradient, load_data


def data(context):
    node = context.node_config
    return load_data(node["partition-id"], node["num-partitions"])[0]


app = client(gradient=gradient, data=data)
