"""The simulators' arrays in NumPy, and local steps in PyTorch, on processes of one thread each."""

from flanp.pytorch.arriving import TorchArrivals
from flanp.pytorch.machine import TorchMachine
from flanp.pytorch.rounds import TorchRounds
from flanp.simulator.backend import Backend

PYTORCH = Backend(TorchMachine, TorchRounds, TorchArrivals)

__all__ = ["PYTORCH"]
