"""The league over a Ray cluster: Ray comes with Flower's simulation."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from flanp.checks import BadInput
from flanp.league.playing import Pairing, play_all, played
from flanp.league.scenarios import SCENARIOS
from test_league import TINY

SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Workers are nice by default: beside other tests they would not get anywhere."""
TODO = [Pairing(TINY, SCENARIOS["paper"], name) for name in ("FedGATE", "FedAvg")]


@pytest.fixture
def cluster():
    """A cluster of two workers on this machine, as `ray start` makes it; return its address.

    In a folder of its own: others who start Ray would join it, or look for it when it is gone.
    """
    folder = tempfile.mkdtemp(prefix="ray")  # a short one, for sockets have paths
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = f"--node-ip-address=127.0.0.1 --port={port} --num-cpus=2 --include-dashboard=false"
    process = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", *here.split()],
        env={**os.environ, **SETTINGS, "RAY_TMPDIR": folder},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that it alone is stopped
    )
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    yield f"127.0.0.1:{port}"
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(timeout=30)
    shutil.rmtree(folder, ignore_errors=True)


def test_cells_are_the_same_over_a_cluster_of_two_workers(tmp_path, cluster):
    ours = {cell["method"]: cell for cell in play_all(tmp_path / "ours", TODO, workers=1)}
    theirs = {c["method"]: c for c in play_all(tmp_path / "ray", TODO, workers=1, ray=cluster)}
    assert ours.keys() == theirs.keys() == {"FedGATE", "FedAvg"}
    for name, cell in ours.items():
        assert theirs[name]["results"] == cell["results"]
        assert theirs[name]["knobs"] == cell["knobs"]
    assert all(played(tmp_path / "ray", pairing) is not None for pairing in TODO)


def test_a_cluster_that_is_not_there_is_told_in_words(tmp_path):
    with pytest.raises(BadInput, match=r"--ray nowhere: .*nowhere"):
        list(play_all(tmp_path, TODO, workers=1, ray="nowhere"))
