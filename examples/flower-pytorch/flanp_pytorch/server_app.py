"""The server: FLANP with FedGATE, from the fastest node to all of them."""

import torch
from flwr.app import MetricRecord
from flwr.serverapp import ServerApp

from flanp.flower import Flanp, arrays_of
from flanp.participation import Everyone
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
            return MetricRecord({"loss": float(loss(model, train)), "metric": error(model, test)})

    strategy = Flanp(
        FedGATE(eta=config["eta"]),
        work=Equal(tau=config["tau"], batch=config["batch"]),
        participation=Everyone() if config["everyone"] else None,
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
