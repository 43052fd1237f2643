"""`flanp flower up`: one command, and nothing left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from flanp.checks import BadInput
from flanp.flower.local.up import example_app, parse_slow, run_config
from flanp.history import History

FLANP = str(Path(sys.executable).parent / "flanp")
# Tests that run in the background of a shell ignore Ctrl-C, and so would their children.
HEED_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def processes_of(folder):
    """Return the processes that have a folder in their command line or environment."""
    mark = str(folder).encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if mark in words and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def up(folder, *options):
    return subprocess.Popen(
        [
            *(sys.executable, "-c", HEED_CTRL_C),
            *(FLANP, "flower", "up", "--out", str(folder / "out"), "--nodes", "2", *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
    )


def gone(folder, seconds=30):
    end = time.monotonic() + seconds
    while processes_of(folder) and time.monotonic() < end:
        time.sleep(0.2)
    return not processes_of(folder)


def test_up_runs_the_example_and_leaves_nothing_running(tmp_path):
    process = up(tmp_path, "--set", "num-rounds=2")
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert "limit of 2 rounds" in output
    history = History.load(tmp_path / "out" / "run")
    assert history.rows[-1].loss < history.rows[0].loss
    assert (tmp_path / "out" / "run" / "curves.png").exists()
    assert gone(tmp_path)
    again = up(tmp_path)
    output, _ = again.communicate(timeout=60)
    assert again.returncode == 2
    assert "--overwrite" in output


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_up_stops_everything_it_started_when_it_is_killed(tmp_path):
    """Ctrl-C is tested with the README's own command: test_docs.py."""
    process = up(tmp_path)
    for line in process.stdout:
        if "nodes are connected" in line:
            break
    assert len(processes_of(tmp_path)) > 3
    process.kill()
    process.communicate(timeout=120)
    assert gone(tmp_path)


def test_options_that_do_not_fit_are_refused(tmp_path):
    for slow, nodes in (("1,2", 3), ("fast", None), ("-1", None)):
        with pytest.raises(BadInput, match="--slow"):
            parse_slow(slow, nodes)
    with pytest.raises(BadInput, match="did you mean 'num-rounds'"):
        run_config(example_app(), ["num-round=3"], tmp_path, 2, False)
    with pytest.raises(BadInput, match="not the folder of a Flower app"):
        run_config(tmp_path, [], tmp_path, 2, False)
    config = run_config(example_app(), ["eta=0.5"], tmp_path, 2, False)
    assert config == {"save": str(tmp_path / "run"), "min-nodes": 2, "resume": False, "eta": 0.5}
