"""The example apps on Flower's simulation runtime, by the commands that their pages name."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from flanp.flower.local.leftovers import kill_all
from flanp.history import History

from documents import BLOCKS, ROOT, commands

TOO_SLOW, STARTS = "Failed to start local SuperLink within", 4
"""Flower gives its SuperLink 15 s, which other tests at the same time can use up: start again."""


@pytest.mark.parametrize("name", ["flower-numpy", "flower-pytorch"])
def test_the_examples_run_on_the_simulation_runtime(name, tmp_path):
    """Two rounds are enough to see that they do."""
    if name == "flower-pytorch":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'flanp[torch]'")
    page = f"examples/{name}/README.md"
    (block,) = (b for b in BLOCKS if b.page == page and "flwr run" in b.text)
    export, run = commands(block)
    shutil.copytree(ROOT / "examples" / name, tmp_path / "app")
    home, saved = tmp_path / "flwr", tmp_path / "run"
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    command = ["bash", "-c", f"{export}\n{run} -c \"num-rounds=2 save='{saved}'\""]
    options = {"cwd": tmp_path / "app", "env": env, "capture_output": True, "text": True}
    try:
        for _ in range(STARTS):
            done = subprocess.run(command, timeout=240, **options)
            if TOO_SLOW not in done.stdout + done.stderr:
                break
    finally:
        kill_all(home)
    assert (saved / "model.safetensors").exists(), done.stdout[-4000:] + done.stderr[-2000:]
    history = History.load(saved)
    assert str(history.ended) == "limit of 2 rounds"
    assert history.rows[-1].loss < history.rows[0].loss
