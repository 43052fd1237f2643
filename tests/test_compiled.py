"""Compiled programs are kept from one command to the next, and nothing depends on it."""

import os
import subprocess
import sys

import pytest
from filelock import FileLock

from flanp.cli.compiled import FOLDER, keep_compiled, remove_half_written
from flanp.simulator.placement import local_devices

TOML = """
max_rounds = 5
[problem]
name = "LogisticRegression"
[data]
name = "Digits"
clients = 4
[solver]
name = "FedAvg"
eta = 0.1
[work]
name = "Equal"
tau = 2
batch = 8
"""


@pytest.fixture
def flanp(tmp_path):
    """Run a command as users do, with a cache folder of its own; return what it printed."""
    (tmp_path / "a.toml").write_text(TOML)
    env = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    env["FLANP_CACHE"] = str(tmp_path / "cache")

    def run(*args):
        command = [sys.executable, "-m", "flanp", *args]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


def rounds(folder):
    """Return the programs of a round, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("jit_round*-cache")}


def test_the_second_command_finds_the_programs_of_the_first(flanp, tmp_path):
    flanp("run", "a.toml", "--out", "one")
    before = rounds(tmp_path / "cache")
    assert len(before) == 1
    flanp("run", "a.toml", "--out", "two")
    assert rounds(tmp_path / "cache") == before
    for name in ("model.safetensors", "history.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_what_a_killed_process_left_half_written_is_cleared_away(flanp, tmp_path):
    flanp("run", "a.toml", "--out", "one")
    (program,) = rounds(tmp_path / "cache")
    program.write_bytes(program.read_bytes()[:100])
    program.with_name(program.name.removesuffix("-cache") + "-atime").unlink()
    assert "persistent compilation" not in flanp("run", "a.toml", "--out", "two")
    assert program.stat().st_size > 1000
    program.write_bytes(b"damaged")
    assert "persistent compilation" not in flanp("run", "a.toml", "--out", "three")


def test_nothing_is_kept_where_it_is_not_wanted(flanp, tmp_path):
    flanp("--no-cache", "run", "a.toml", "--out", "one")
    assert not (tmp_path / "cache").exists()


def test_what_is_being_written_now_stays(tmp_path):
    (tmp_path / "a-cache").write_bytes(b"half")
    (tmp_path / "b-cache").write_bytes(b"whole")
    (tmp_path / "b-atime").write_bytes(b"date")
    with FileLock(tmp_path / ".lockfile"):
        remove_half_written(tmp_path)
    assert (tmp_path / "a-cache").exists()
    remove_half_written(tmp_path)
    assert [path.name for path in tmp_path.glob("*-cache")] == ["b-cache"]


@pytest.mark.parametrize("given", [True, False])
def test_a_folder_that_cannot_be_made_or_that_the_user_has_named(tmp_path, monkeypatch, given):
    monkeypatch.delenv(FOLDER, raising=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLANP_CACHE", str(tmp_path / "file" / "cache"))
    if given:
        monkeypatch.setenv(FOLDER, "mine")
    keep_compiled()
    assert os.environ.get(FOLDER) == ("mine" if given else None)


def test_the_flags_of_xla_stay_the_same_however_often_it_is_asked(monkeypatch):
    """They are part of a program's name in the folder."""
    local_devices()
    flags = os.environ["XLA_FLAGS"]
    local_devices()
    assert os.environ["XLA_FLAGS"] == flags
