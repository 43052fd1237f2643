"""The simulators' arrays in JAX: compiled programs on all cores."""

from flanp.simulator.backend import Backend
from flanp.simulator.delivering import CompiledArrivals
from flanp.simulator.holding import CompiledRounds
from flanp.simulator.machine import CompiledMachine

COMPILED = Backend(CompiledMachine, CompiledRounds, CompiledArrivals)
