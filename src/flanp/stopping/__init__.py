"""When the n active clients are done: the stage rules."""

from flanp.measurement import Look, Measurement
from flanp.stopping.base import Memory, StageRule
from flanp.stopping.noise import GradientNoise, LossNoise
from flanp.stopping.paper import Authors, Halving, StatisticalAccuracy
from flanp.stopping.simple import Endless, FixedRounds, Never

__all__ = [
    "Authors",
    "Endless",
    "FixedRounds",
    "GradientNoise",
    "Halving",
    "Look",
    "LossNoise",
    "Measurement",
    "Memory",
    "Never",
    "StageRule",
    "StatisticalAccuracy",
]
