"""Running the test app's scenarios in a deployment."""

import contextlib
import json
import time
from pathlib import Path

from flanp.flower.local.deployment import Deployment

APP = Path(__file__).parent / "app"


@contextlib.contextmanager
def with_nodes(folder, count, slow=None):
    """Start a deployment; `slow` has the seconds by which each node is slower."""
    with Deployment(folder) as deployment:
        for i in range(count):
            deployment.start_node(i, node_config(i, count, slow))
        deployment.wait_for_nodes(count)
        yield deployment


def node_config(i, count, slow=None):
    own = {} if slow is None else {"slow": slow[i]}
    return {"partition-id": i, "num-partitions": count, **own}


def run(deployment, scenario, name=None, wait=True, **config):
    """Run a scenario of the app and return what it found."""
    out = deployment.folder / f"{name or scenario}.json"
    process = deployment.run(
        APP, {"scenario": scenario, "out": str(out), **config}, name=name or scenario
    )
    return found(deployment, process, out, name or scenario) if wait else (process, out)


def found(deployment, process, out, name):
    process.wait(300)
    del deployment.processes[name]
    assert out.exists(), deployment.log(name)[-4000:]
    return json.loads(out.read_text())


def wait_for(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.2)


def lines(path):
    return len(path.read_text().splitlines())
