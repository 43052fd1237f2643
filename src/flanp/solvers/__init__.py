"""Federated solvers, one small file each."""

from flanp.solvers.base import ClientState, Solver, Step
from flanp.solvers.diana import DIANA
from flanp.solvers.fedavg import FedAvg
from flanp.solvers.fedgate import FedGATE
from flanp.solvers.fednova import FedNova
from flanp.solvers.fedopt import FedOpt
from flanp.solvers.fedprox import FedProx
from flanp.solvers.fedsplit import FedSplit
from flanp.solvers.local import SGD, LocalStep, Momentum
from flanp.solvers.scaffold import Scaffold

__all__ = [
    "DIANA",
    "SGD",
    "ClientState",
    "FedAvg",
    "FedGATE",
    "FedNova",
    "FedOpt",
    "FedProx",
    "FedSplit",
    "LocalStep",
    "Momentum",
    "Scaffold",
    "Solver",
    "Step",
]
