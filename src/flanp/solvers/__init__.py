"""Federated solvers, one small file each."""

from flanp.solvers.base import Solver, Step
from flanp.solvers.fedavg import FedAvg
from flanp.solvers.fedgate import FedGATE
from flanp.solvers.fednova import FedNova
from flanp.solvers.fedprox import FedProx
from flanp.solvers.scaffold import Scaffold

__all__ = ["FedAvg", "FedGATE", "FedNova", "FedProx", "Scaffold", "Solver", "Step"]
