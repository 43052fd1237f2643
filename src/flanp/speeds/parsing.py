"""Speeds as the command line takes them."""

import os
from pathlib import Path

from flanp.checks import BadInput, nearest, require
from flanp.files import NUMBER
from flanp.speeds.base import Speeds
from flanp.speeds.devices import Devices
from flanp.speeds.distributions import Exponential, Homogeneous, LogNormal, Pareto, Uniform
from flanp.speeds.measured import Measured, read_speeds

KINDS: dict[str, tuple[type[Speeds], str, str]] = {
    "uniform": (Uniform, "uniform:low:high", "uniform:50:500"),
    "exp": (Exponential, "exp:rate:offset", "exp:1"),
    "lognormal": (LogNormal, "lognormal:median:sigma", "lognormal:1:1"),
    "pareto": (Pareto, "pareto:least:shape", "pareto:1:1.5"),
    "same": (Homogeneous, "same:T", "same:1"),
    "devices": (Devices, "devices", "devices"),
}
KINDS |= {"exponential": KINDS["exp"], "homogeneous": KINDS["same"]}


def parse_speeds(text: str) -> Speeds:
    """Read speeds from a text: a CSV file, or name:parameter:parameter.

    >>> parse_speeds("uniform:50:500") == Uniform(low=50.0, high=500.0)
    True
    >>> parse_speeds("devices").per_sample
    True
    """
    name, *numbers = text.split(":")
    if name.lower() not in KINDS:
        if os.path.exists(text) or Path(name).suffix or "/" in text or "\\" in text:
            return Measured(tuple(read_speeds(Path(text)).values()))
        raise BadInput(f"--speeds {text}: unknown distribution {name!r}{nearest(name, KINDS)}")
    kind, form, example = KINDS[name.lower()]
    ok = len(numbers) <= form.count(":") and all(NUMBER.fullmatch(x) for x in numbers)
    allowed = f"{form} with numbers, for instance {example}" if ":" in form else f"{form} alone"
    require(ok, "--speeds", text, allowed)
    return kind(*(float(x) for x in numbers))
