"""Asynchronous solvers: the server acts on each message as it comes, one small file each."""

from flanp.solvers.asynchronous.base import Arrival, Arrived, AsyncSolver
from flanp.solvers.asynchronous.ca2fl import CA2FL
from flanp.solvers.asynchronous.fedasync import FedAsync
from flanp.solvers.asynchronous.fedbuff import FedBuff, Rennala
from flanp.solvers.asynchronous.iag import IAG
from flanp.solvers.asynchronous.ringleader import Ringleader
from flanp.solvers.asynchronous.ringmaster import Ringmaster
from flanp.solvers.asynchronous.tracking import Tracking

__all__ = [
    "CA2FL",
    "IAG",
    "Arrival",
    "Arrived",
    "AsyncSolver",
    "FedAsync",
    "FedBuff",
    "Rennala",
    "Ringleader",
    "Ringmaster",
    "Tracking",
]
