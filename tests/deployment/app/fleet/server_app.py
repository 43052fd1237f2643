"""What the tests let the server do; each scenario writes what it found as JSON."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore

import numpy as np
from flwr.app import MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg

from flanp import Method, solvers
from flanp.flower import Flanp, OwnTraining, arrays_of
from flanp.participation import Everyone, Growing
from flanp.patience import Deadline
from flanp.stopping import FixedRounds, GradientNoise, Never
from flanp.work import Equal
from fleet.task import D, loss_over

app = ServerApp()
WORK = Equal(tau=5, batch=20)
PATIENT = 300.0
"""A deadline for runs whose model must not depend on what else the machine does."""
W_0 = np.zeros(D, np.float32)


@app.main()
def main(grid, context):
    config = context.run_config
    found = globals()[config["scenario"]](grid, config)
    Path(config["out"]).write_text(json.dumps(found))


def parity(grid, config):
    """Run FLANP, for the model to be compared with the simulator's."""
    gate, growing = solvers.FedGATE(eta=0.05), Growing(n0=2)
    run = Flanp(
        Method(gate, growing, GradientNoise(at_most=2), WORK, Deadline(PATIENT)),
        speeds={str(i): float(1 + i) for i in range(config["nodes"])},
        min_available_nodes=config["nodes"],
    )
    result = run.start(grid, arrays_of(W_0), num_rounds=config["rounds"])
    return {"model": result.arrays["w"].numpy().tolist()}


def bad_nodes(grid, config):
    """Run with nodes that send nonsense: the model is that of the others."""
    patience = Deadline(PATIENT, quorum=0.1)
    method = Method(solvers.FedAvg(eta=0.05), Everyone(), Never(), WORK, patience)
    run = Flanp(method, min_available_nodes=config["nodes"])
    result = run.start(grid, arrays_of(W_0), num_rounds=config["rounds"])
    return {
        "model": result.arrays["w"].numpy().tolist(),
        "counts": run.history.about["counts"],
        "nodes": len(list(grid.get_node_ids())),
    }


def overhead(grid, config):
    """Time Flower's FedAvg and ours on the same plain clients, a round of each in turn."""
    some = {"min_available_nodes": config["nodes"]}
    strategies = {
        "flower": FlowerFedAvg(fraction_evaluate=0.0, **some),
        "flanp": Flanp(Method(OwnTraining(), Everyone(), Never(), Equal(tau=1)), **some),
    }
    seconds = {name: [] for name in strategies}
    turn = {"flower": Semaphore(1), "flanp": Semaphore(0)}
    other = {"flower": "flanp", "flanp": "flower"}

    def play(name):
        began = []

        def after_round(server_round, arrays):
            if began:
                seconds[name].append(time.monotonic() - began.pop())
            turn[other[name]].release()
            turn[name].acquire()
            began.append(time.monotonic())

        turn[name].acquire()
        try:
            rounds = config["rounds"]
            strategies[name].start(grid, arrays_of(W_0), num_rounds=rounds, evaluate_fn=after_round)
        finally:
            turn[other[name]].release()

    with ThreadPoolExecutor() as pool:
        list(pool.map(play, strategies))
    # Ours races the nodes before the first round, for their speeds.
    return {name: rounds[1:] for name, rounds in seconds.items()}


def stragglers(grid, config):
    """Reach a loss with everyone, then with FLANP; the test kills nodes meanwhile."""
    found = {}
    target = 1.2  # the least is 1.078
    for name in ("FedAvg", "FLANP"):
        everyone = name == "FedAvg"
        method = Method(solvers.FedGATE(eta=0.07), Growing(n0=2), work=WORK)
        if everyone:
            method = Method(solvers.FedAvg(eta=0.07), Everyone(), Never(), WORK)
        run = Flanp(
            method,
            target={"loss": target},
            min_available_nodes=config["nodes"],
            save=config["out"] + ".run." + name,
        )
        start = time.monotonic()
        run.start(grid, arrays_of(W_0), num_rounds=60, evaluate_fn=_loss)
        found[name] = {
            "seconds": time.monotonic() - start,
            "ended": str(run.history.ended),
            "loss": run.history.rows[-1].loss,
            "n": [row.n for row in run.history.rows],
            "counts": run.history.about["counts"],
        }
    return found


def resumed(grid, config):
    """Train for some rounds; the test kills the server on the way."""
    solver = getattr(solvers, config["solver"])(eta=0.05)
    run = Flanp(
        Method(solver, stop=FixedRounds(2), work=WORK, patience=Deadline(PATIENT)),
        speeds={"0": 1.0, "1": 2.0},
        min_available_nodes=config["nodes"],
        save=config["out"] + ".run",
        resume=config["resume"],
    )
    result = run.start(grid, arrays_of(W_0), num_rounds=config["rounds"], evaluate_fn=_loss)
    return {
        "model": result.arrays["w"].numpy().tolist(),
        "rounds": [row.round for row in run.history.rows],
        "loss": run.history.rows[-1].loss,
    }


def _loss(server_round, arrays):
    return MetricRecord({"loss": loss_over(6, arrays["w"].numpy())})
