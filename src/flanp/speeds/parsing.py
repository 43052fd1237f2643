"""Speeds as the command line takes them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from flanp.checks import BadInput, nearest, require
from flanp.files import NUMBER
from flanp.network import FREE, Exchange, Lines, Network, Phones
from flanp.parts import Part
from flanp.speeds.base import Speeds
from flanp.speeds.devices import Devices
from flanp.speeds.distributions import Exponential, Homogeneous, LogNormal, Pareto, Uniform
from flanp.speeds.measured import Measured, read_speeds

P = TypeVar("P", bound=Part)
KINDS: dict[str, tuple[type[Speeds], str, str]] = {
    "uniform": (Uniform, "uniform:low:high", "uniform:50:500"),
    "exp": (Exponential, "exp:rate:offset", "exp:1"),
    "lognormal": (LogNormal, "lognormal:median:sigma", "lognormal:1:1"),
    "pareto": (Pareto, "pareto:least:shape", "pareto:1:1.5"),
    "same": (Homogeneous, "same:T", "same:1"),
    "devices": (Devices, "devices", "devices"),
}
KINDS |= {"exponential": KINDS["exp"], "homogeneous": KINDS["same"]}


NETWORKS: dict[str, tuple[type[Network], str, str]] = {
    "steps": (Exchange, "steps:count", "steps:10"),
    "lines": (Lines, "lines:down:up", "lines:10000:5000"),
    "phones": (Phones, "phones", "phones"),
}


def parse_network(text: str) -> Network:
    """Read what exchanges cost from a text: seconds, or name:parameter:parameter.

    >>> parse_network("0")
    Free()
    >>> parse_network("steps:10") == Exchange(steps=10.0)
    True
    """
    if NUMBER.fullmatch(text):
        seconds = float(text)
        require(0 <= seconds < 1e9, "--exchange", text, "0 or more seconds")
        return Lines(1e12, 1e12, latency=seconds / 2) if seconds else FREE
    return _parsed("--exchange", text, NETWORKS, "kind of exchange")


def parse_speeds(text: str) -> Speeds:
    """Read speeds from a text: a CSV file, or name:parameter:parameter.

    >>> parse_speeds("uniform:50:500") == Uniform(low=50.0, high=500.0)
    True
    >>> parse_speeds("devices").per_sample
    True
    """
    name = text.split(":")[0]
    is_path = os.path.exists(text) or Path(name).suffix or "/" in text or "\\" in text
    if name.lower() not in KINDS and is_path:
        return Measured(tuple(read_speeds(Path(text)).values()))
    return _parsed("--speeds", text, KINDS, "distribution")


def _parsed(option: str, text: str, kinds: Mapping[str, tuple[type[P], str, str]], what: str) -> P:
    """Return the part that a text names, with its numbers."""
    name, *numbers = text.split(":")
    if name.lower() not in kinds:
        raise BadInput(f"{option} {text}: unknown {what} {name!r}{nearest(name, kinds)}")
    kind, form, example = kinds[name.lower()]
    ok = len(numbers) <= form.count(":") and all(NUMBER.fullmatch(x) for x in numbers)
    allowed = f"{form} with numbers, for instance {example}" if ":" in form else f"{form} alone"
    require(ok, option, text, allowed)
    return kind(*(float(x) for x in numbers))
