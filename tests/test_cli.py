"""The command line as a user meets it: real processes where signals and exits matter."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from flanp.cli import app
from flanp.history import History

SMALL = """
max_rounds = 40
[problem]
name = "LinearRegression"
[data]
name = "Synthetic"
clients = 8
samples = 30
dim = 4
[solver]
name = "FedGATE"
eta = 0.1
"""
ENDLESS = SMALL.replace("max_rounds = 40", "max_rounds = 100000000") + '[stop]\nname = "Never"\n'


@pytest.fixture
def flanp(tmp_path, monkeypatch):
    """Run a command in this process: one of its own costs two seconds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def process(tmp_path):
    """Run a command as users do."""

    def run(*args):
        command = [sys.executable, "-m", "flanp", *map(str, args)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)

    (tmp_path / "small.toml").write_text(SMALL)
    return run


def test_run_writes_everything_and_refuses_to_overwrite(process, flanp, tmp_path):
    done = process("run", "small.toml")
    assert done.returncode == 0, done.stderr
    assert "accuracy reached" in done.stdout
    folder = tmp_path / "runs" / "small"
    written = {path.name for path in folder.iterdir()}
    assert written == {
        "history.csv",
        "history.json",
        "checkpoint.safetensors",
        "model.safetensors",
        "curves.png",
        "curves.svg",
    }
    before = (folder / "history.csv").read_bytes()
    again = flanp("run", "small.toml", "--set", "seed=1")
    assert again.exit_code == 2
    assert "holds results already" in again.stderr
    assert (folder / "history.csv").read_bytes() == before
    assert flanp("run", "small.toml", "--set", "seed=1", "--overwrite").exit_code == 0
    assert (folder / "history.csv").read_bytes() != before
    about = json.loads((folder / "history.json").read_text())
    assert about["config"]["seed"] == 1
    wild = flanp("run", "small.toml", "--set", "solver.eta=500.0", "--overwrite")
    assert wild.exit_code == 1
    left = {path.name for path in folder.iterdir()}
    assert left == {"history.csv", "history.json"}  # nothing of the run before


def test_resume_notices_that_the_data_changed(flanp):
    assert flanp("run", "small.toml", "--set", "max_rounds=3").exit_code == 0
    changed = flanp("run", "small.toml", "--resume", "--set", "data.noise=5.0")
    assert changed.exit_code == 2
    assert "of another run: checksum differ" in changed.stderr


def test_compare_prints_a_table_and_draws_curves(flanp, tmp_path):
    (tmp_path / "two.toml").write_text(
        SMALL + '[methods.FLANP]\n[methods.FedGATE]\nparticipation = "Everyone"\n'
    )
    done = flanp(
        "compare",
        "two.toml",
        "--set",
        "seeds=2",
        "--set",
        "target=statistical accuracy",
        "--out",
        "here",
    )
    assert done.exit_code == 0, done.stderr
    assert "vs FedGATE (95%)" in done.stdout
    for name in ("comparison.json", "curves.png", "curves.svg", "flanp/seed-1/history.csv"):
        assert (tmp_path / "here" / name).exists()
    rows = json.loads((tmp_path / "here" / "comparison.json").read_text())["methods"]
    assert rows[0]["speed_up"]["FedGATE"]["seeds"] == 2
    assert flanp("compare", "two.toml", "--out", "here").exit_code == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "small.toml", "--set", "solver.etta=1"], "did you mean 'eta'?"),
        (["run", "nothing.toml"], "cannot be read"),
        (["run", "small.toml", "--method", "x"], "unknown"),
        (
            ["run", "small.toml", "--set", "participation={name='Growing',n0=9}"],
            "at most the number of clients, 8",
        ),
        (
            ["run", "small.toml", "--set", "data.clients=0"],
            "data.clients = 0: it must be a whole number from 1 to",
        ),
        (["run", "small.toml", "--resume"], "no checkpoint to resume from"),
        (["run", "small.toml", "--set", "work.tau=1099511627776"], "work.tau = 1099511627776"),
        (["plan", "--speeds", "unifrom:50:500", "--clients", "9"], "did you mean 'uniform'"),
        (["plan", "--speeds", "exp:1", "--clients", "0"], "clients = 0"),
        (["run", "small.toml", "--out", "small.toml"], "cannot be written to"),
        (
            ["compare", "small.toml", "--set", "speeds={name='Measured',seconds=[1,2]}"],
            "2 speeds for 8",
        ),
    ],
)
def test_bad_input_exits_with_2_and_one_line(flanp, args, message):
    done = flanp(*args)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_divergence_exits_with_1_and_keeps_the_history(flanp, tmp_path):
    done = flanp("run", "small.toml", "--set", "solver.eta=500.0")
    assert done.exit_code == 1
    assert "the loss became" in done.stderr
    assert "Traceback" not in done.stderr
    history = History.load(tmp_path / "runs" / "small")
    assert history.rows
    assert history.diverged
    assert "diverged" in str(history.ended)


def start_and_interrupt(tmp_path, *args):
    (tmp_path / "endless.toml").write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, "-m", "flanp", *args],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        line = process.stderr.readline()  # plain progress lines, since this is not a terminal
        assert "clients, round" in line
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, rest


def test_ctrl_c_saves_the_run_and_it_can_be_resumed(flanp, tmp_path):
    code, rest = start_and_interrupt(tmp_path, "run", "endless.toml")
    assert code == 130
    assert "interrupted; saved in" in rest
    folder = tmp_path / "runs" / "endless"
    stopped = History.load(folder)
    assert str(stopped.ended) == "interrupted"
    limit = stopped.rows[-1].round + 3
    done = flanp("run", "endless.toml", "--resume", "--set", f"max_rounds={limit}")
    assert done.exit_code == 0, done.stderr
    resumed = History.load(folder)
    assert [row.round for row in resumed.rows] == list(range(limit + 1))
    assert resumed.rows[: len(stopped.rows)] == stopped.rows


def test_ctrl_c_saves_what_a_comparison_has(flanp, tmp_path):
    code, rest = start_and_interrupt(tmp_path, "compare", "endless.toml")
    assert code == 130
    assert "interrupted after 0 of 5 seeds" in rest
    assert (tmp_path / "runs" / "endless-compare" / "comparison.json").exists()


def test_init_writes_a_configuration_and_never_overwrites_one(flanp, tmp_path):
    assert flanp("init", "mine.toml").exit_code == 0
    assert (tmp_path / "mine.toml").read_text().startswith("# What `flanp compare` runs")
    again = flanp("init", "mine.toml")
    assert again.exit_code == 2
    assert "exists already" in again.stderr


def test_nobody_elses_files_are_touched(flanp, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    others = {name: folder / name for name in (".flanp", "history.md", "curves.py", "notes.txt")}
    for path in others.values():
        path.write_text("mine")
    command = ("run", "small.toml", "--set", "max_rounds=1", "--out", "mine")
    assert flanp(*command).exit_code == 0
    assert flanp(*command, "--overwrite").exit_code == 0
    assert all(path.read_text() == "mine" for path in others.values())
    (folder / "README.md").write_text("mine")
    done = flanp("reproduce", "fig9", "--quick", "--out", "mine")
    assert done.exit_code == 2
    assert "README.md is not flanp's" in done.stderr


def test_a_damaged_checkpoint_is_not_called_a_missing_one(flanp, tmp_path):
    assert flanp("run", "small.toml", "--set", "max_rounds=2").exit_code == 0
    path = tmp_path / "runs" / "small" / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    done = flanp("run", "small.toml", "--resume")
    assert done.exit_code == 2
    assert "is damaged: it does not have the checksum" in done.stderr
    assert path.read_bytes() == content


def test_bad_input_of_a_process(process):
    bad = process("run", "small.toml", "--set", "solver.etta=1")
    assert (bad.returncode, len(bad.stderr.splitlines())) == (2, 1)


def test_help_and_version(flanp, process):
    assert "TOML file." in flanp("run", "--help").stdout
    assert "compare" in flanp("--help").stdout
    import flanp as package

    assert package.__version__ in process("--version").stdout
