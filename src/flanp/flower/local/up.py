"""One command for a whole deployment on this machine: SuperLink, nodes, app, and the end of all."""

import json
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flanp.checks import BadInput, first_line, nearest
from flanp.files import read_number
from flanp.flower.local.deployment import CONNECTION, Deployment

Say = Callable[[str], None]


def example_app() -> Path:
    """Return the folder of the example that is run unless another app is named."""
    installed = Path(__file__).parents[1] / "example"
    return installed if installed.exists() else Path(__file__).parents[4] / "examples/flower-numpy"


def read_app(app: Path) -> dict[str, Any]:
    """Return the run configuration of a Flower app, with its defaults."""
    try:
        project = tomllib.loads((app / "pyproject.toml").read_text("utf-8"))
        return dict(project["tool"]["flwr"]["app"].get("config", {}))
    except Exception as error:  # not TOML, not text, or tables that are none
        raise BadInput(
            f"{app} is not the folder of a Flower app: its pyproject.toml: {first_line(error)}"
        ) from error


def parse_slow(slow: str | None, nodes: int | None) -> list[float]:
    """Return the seconds that each node's rounds take longer.

    >>> parse_slow("0,0,1.5", None)
    [0.0, 0.0, 1.5]
    >>> parse_slow(None, 2)
    [0.0, 0.0]
    """
    seconds = [0.0] * (nodes or 2)
    if slow:
        try:
            seconds = [read_number(part.strip(), f"--slow {slow}") for part in slow.split(",")]
        except BadInput as error:
            raise BadInput(f"{error}; give seconds, such as 0,0,1,4") from None
    if nodes is not None and len(seconds) != nodes:
        raise BadInput(
            f"--slow {slow}: {len(seconds)} numbers for {nodes} nodes; give one for each"
        )
    if not seconds or min(seconds) < 0:
        raise BadInput(f"--slow {slow}: seconds cannot be negative")
    return seconds


def run_config(
    app: Path, given: Sequence[str], folder: Path, nodes: int, resume: bool
) -> dict[str, Any]:
    """Return the app's configuration: what was given, and where to save if the app asks."""
    known = read_app(app)
    own = {"save": str(folder / "run"), "min-nodes": nodes, "resume": resume}
    config: dict[str, Any] = {key: value for key, value in own.items() if key in known}
    if resume and "resume" not in known:
        raise BadInput(f"{app} has no setting 'resume': it cannot go on with a run")
    for text in given:
        key, sign, value = text.partition("=")
        if not sign:
            raise BadInput(f"--set {text}: write key=value")
        if key not in known:
            raise BadInput(f"--set {text}: the app has no such setting{nearest(key, known)}")
        config[key] = _typed(value)
    return config


def up(app: Path, slow: Sequence[float], config: Mapping[str, Any], folder: Path, say: Say) -> bool:
    """Start everything, run the app to its end, stop everything; return whether it went well."""
    say(f"starting a SuperLink and {len(slow)} SuperNodes with TLS and keys ...")
    with Deployment(folder) as deployment:
        for number, seconds in enumerate(slow):
            deployment.start_node(
                number,
                {"partition-id": number, "num-partitions": len(slow), "slow": seconds},
            )
        deployment.wait_for_nodes(len(slow))
        say(f"{len(slow)} nodes are connected; running {app.name} (logs: {folder / 'logs'}/)")
        process = deployment.run(app, config)
        shown = 0
        while True:
            ended = process.poll() is not None
            lines = deployment.log("run")
            for line in lines[shown:].splitlines(keepends=True):
                if line.endswith("\n") or ended:
                    say(line.rstrip())
                    shown += len(line)
            if ended:
                return process.returncode == 0 and _completed(deployment)
            time.sleep(0.3)


def _completed(deployment: Deployment) -> bool:
    """Return whether Flower says that the run has gone well: its own exit code does not."""
    runs = json.loads(deployment.flwr("list", CONNECTION, "--format", "json")).get("runs", [])
    return bool(runs) and all("completed" in str(run.get("status")) for run in runs)


def _typed(value: str) -> Any:
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value
