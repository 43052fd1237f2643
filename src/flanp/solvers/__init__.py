"""Federated solvers, one small file each."""

from flanp.solvers.asynchronous import (
    CA2FL,
    IAG,
    AsyncSolver,
    FedAsync,
    FedBuff,
    Rennala,
    Ringleader,
    Ringmaster,
    Tracking,
)
from flanp.solvers.base import Solver, Step
from flanp.solvers.diana import DIANA
from flanp.solvers.fedavg import FedAvg
from flanp.solvers.fedgate import FedGATE
from flanp.solvers.fednova import FedNova
from flanp.solvers.fedopt import FedOpt
from flanp.solvers.fedprox import FedProx
from flanp.solvers.fedsplit import FedSplit
from flanp.solvers.local import SGD, LocalStep, Momentum
from flanp.solvers.memory import Memory
from flanp.solvers.scaffold import Scaffold
from flanp.solvers.training import ClientState, Training

__all__ = [
    "CA2FL",
    "DIANA",
    "IAG",
    "SGD",
    "AsyncSolver",
    "ClientState",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedGATE",
    "FedNova",
    "FedOpt",
    "FedProx",
    "FedSplit",
    "LocalStep",
    "Memory",
    "Momentum",
    "Rennala",
    "Ringleader",
    "Ringmaster",
    "Scaffold",
    "Solver",
    "Step",
    "Tracking",
    "Training",
]
