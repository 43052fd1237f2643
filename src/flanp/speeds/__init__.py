"""How long each client takes for one local step."""

from flanp.speeds.base import Seconds, Speeds, seconds_from
from flanp.speeds.changes import Change, Drift, SlowDowns, Steady
from flanp.speeds.devices import Devices
from flanp.speeds.distributions import (
    DEFAULT,
    Exponential,
    Homogeneous,
    LogNormal,
    Pareto,
    Uniform,
)
from flanp.speeds.measured import FromCSV, Measured, read_speeds
from flanp.speeds.traces import Trace, read_trace

__all__ = [
    "DEFAULT",
    "Change",
    "Devices",
    "Drift",
    "Exponential",
    "FromCSV",
    "Homogeneous",
    "LogNormal",
    "Measured",
    "Pareto",
    "Seconds",
    "SlowDowns",
    "Speeds",
    "Steady",
    "Trace",
    "Uniform",
    "read_speeds",
    "read_trace",
    "seconds_from",
]
