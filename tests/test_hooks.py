"""Observers of a run: when they are told what, and what becomes of a run when one of them fails."""

import signal
import subprocess
import sys
import textwrap

import pytest

from flanp import Checkpointer, Hook, Method, Reason, prepare
from flanp.checks import BadInput
from flanp.data import from_clients
from flanp.divergence import Diverged
from flanp.history import History
from flanp.participation import Growing
from flanp.problems import LinearRegression
from flanp.solvers import FedAvg, FedGATE
from flanp.stopping import FixedRounds

from small import linear_clients


def simulation(*hooks, solver=FedGATE(eta=0.05), **options):  # noqa: B008
    method = Method(solver, Growing(n0=2), FixedRounds(3))
    data = from_clients(linear_clients(5))
    return prepare(LinearRegression(), data, method, hooks=hooks, **options)


class Diary(Hook):
    def __init__(self):
        self.lines = []

    def on_round(self, run):
        self.lines.append(("round", run.state.rounds))

    def on_row(self, run, row):
        self.lines.append(("row", row.round))

    def on_stage(self, run, stage):
        self.lines.append(("stage", stage["n"]))

    def on_end(self, run, ended):
        self.lines.append(("end", ended.reason))


def test_hooks_are_told_in_order():
    diary = Diary()
    simulation(diary, record_every=2).to_the_end()
    assert diary.lines == [
        ("row", 0),
        ("round", 1),
        ("round", 2),
        ("row", 2),
        ("round", 3),
        ("row", 3),
        ("stage", 2),
        ("round", 4),
        ("row", 4),
        ("round", 5),
        ("round", 6),
        ("row", 6),
        ("stage", 4),
        ("round", 7),
        ("round", 8),
        ("row", 8),
        ("round", 9),
        ("row", 9),
        ("stage", 5),
        ("end", Reason.ACCURACY),
    ]


@pytest.mark.parametrize("event", ["on_round", "on_row", "on_stage", "on_end"])
@pytest.mark.parametrize("first", [True, False])
def test_a_hook_that_raises_is_named_and_the_run_is_saved_before(tmp_path, event, first):
    class Fails(Hook):
        pass

    def fail(self, run, *what):
        if run.state.rounds >= 3:
            raise KeyError("boom")

    setattr(Fails, event, fail)
    hooks = [Fails(), Checkpointer(tmp_path, every=1e9)]
    run = simulation(*hooks if first else reversed(hooks))
    with pytest.raises(BadInput, match=rf"the hook Fails.{event} failed \(KeyError: 'boom'\)"):
        run.to_the_end()
    saved = History.load(tmp_path)
    assert saved.rows[-1].round == run.state.rounds >= 3
    if event != "on_end":
        assert saved.ended.reason is Reason.FAILED
        assert "Fails" in str(saved.ended)
    whole, again = simulation(), simulation(resume=tmp_path)
    assert again.to_the_end().rows == whole.to_the_end().rows


def test_whoever_stops_early_can_go_on(tmp_path):
    run = simulation()
    for row in run:
        if row.round == 4:
            break
    assert run.ended is None
    assert [row.round for row in run] == [5, 6, 7, 8, 9]
    assert run.history.rows == simulation().to_the_end().rows


def test_of_a_run_that_diverged_the_history_is_kept_and_no_checkpoint(tmp_path):
    run = simulation(Checkpointer(tmp_path, every=1e9), solver=FedAvg(eta=40.0))
    with pytest.raises(Diverged):
        run.to_the_end()
    assert History.load(tmp_path).diverged
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_ctrl_c_saves_the_round_that_was_done(tmp_path):
    code = """
    import os, signal, sys
    sys.path.insert(0, {tests!r})
    from test_hooks import Checkpointer, Hook, simulation

    class Interrupt(Hook):
        def on_row(self, run, row):
            if row.round == 4:
                os.kill(os.getpid(), signal.SIGINT)

    simulation(Interrupt(), Checkpointer({folder!r}, every=1e9)).to_the_end()
    """
    tests = str(__file__).rpartition("/")[0]
    text = textwrap.dedent(code).format(tests=tests, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=120)
    assert done.returncode in (1, 130, -signal.SIGINT)
    saved = History.load(tmp_path)
    assert saved.ended.reason is Reason.INTERRUPTED
    assert simulation(resume=tmp_path).to_the_end().rows == simulation().to_the_end().rows


def test_a_hook_must_be_one():
    with pytest.raises(BadInput, match="hooks"):
        simulation(print)
