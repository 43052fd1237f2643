"""The server: FLANP with FedGATE, from the fastest node to all of them."""

from flwr.app import MetricRecord
from flwr.serverapp import ServerApp

from flanp import Method
from flanp.flower import Flanp, arrays_of
from flanp.participation import Everyone, Growing
from flanp.solvers import FedGATE
from flanp.work import Equal
from flanp_numpy.task import error, gradient, load_data, start_model

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    train, test = load_data()

    def evaluate(server_round, arrays):
        params = {name: array.numpy() for name, array in arrays.items()}
        return MetricRecord({"loss": gradient(params, train)[0], "test_error": error(params, test)})

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
