"""The client: its data, model and loss; flanp does the rest."""

from flanp.flower import client
from flanp_pytorch.task import Net, load_data, loss


def data(context):
    node = context.node_config
    return load_data(node["partition-id"], node["num-partitions"])[0]


app = client(model=Net, loss=loss, data=data)
