"""The server: FLANP with FedGATE, from the fastest node to all of them."""

import torch
from flwr.app import MetricRecord
from flwr.serverapp import ServerApp

from flanp import Method
from flanp.flower import Flanp, arrays_of
from flanp.participation import Everyone, Growing
from flanp.solvers import FedGATE
from flanp.work import Equal
from flanp_pytorch.task import error, load_data, loss, start_model

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    model = start_model()
    train, test = ([torch.from_numpy(a) for a in part] for part in load_data())

    def evaluate(server_round, arrays):
        state = {name: torch.from_numpy(a.numpy().copy()) for name, a in arrays.items()}
        model.load_state_dict(state)
        with torch.no_grad():
            metrics = {"loss": float(loss(model, train)), "test_error": error(model, test)}
        return MetricRecord(metrics)

    method = Method(
        FedGATE(eta=config["eta"]),
        Everyone() if config["everyone"] else Growing(),
        work=Equal(tau=config["tau"], batch=config["batch"]),
    )
    strategy = Flanp(
        method,
        min_available_nodes=config["min-nodes"],
        save=config["save"] or None,
        resume=config["resume"],
    )
    strategy.start(
        grid,
        arrays_of(start_model()),
        num_rounds=config["num-rounds"],
        evaluate_fn=evaluate,
    )
