"""Worker processes end with what started them, in every way that it may end."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'flanp[torch]'")

from flanp.checks import BadInput

from nets import Plain, Realistic, run, same, trained

SCRIPT = textwrap.dedent(
    """
    from nets import Plain, run
    made = run(max_rounds=10**6, target={"loss": 1e-9})
    print(*(process.pid for process in made.engine.machine.workers._processes), flush=True)
    made.to_the_end()
    """
)
"""Without a guard, as users write it."""


def gone(pids, seconds=20.0):
    """Whether processes end in time."""
    _, alive = psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], seconds)
    return not alive


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_they_end_with_their_parent(number):
    paths = os.pathsep.join([*sys.path, os.path.dirname(__file__)])
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.3)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert gone(pids)


def test_they_end_when_a_run_is_forgotten():
    """At once: a comparison makes hundreds of runs, and need not wait for a collection."""
    gc.disable()
    try:
        made = run()
        made.to_the_end()
        pids = [process.pid for process in made.engine.machine.workers._processes]
        del made
        assert gone(pids)
    finally:
        gc.enable()


def test_processes_that_are_no_forks_do_the_same(monkeypatch):
    _, forked = trained(run(Realistic, max_rounds=3))
    monkeypatch.setattr("flanp.pytorch.workers.METHOD", "spawn")
    _, spawned = trained(run(Realistic, max_rounds=3))
    assert same(forked, spawned)


class Fails(Plain):
    """A module that fails in training, after the first look at it."""

    def forward(self, x):
        if self.training and len(x) == 5:  # not in the first look, at the smallest batch
            raise KeyError("no such layer")
        return super().forward(x)


def test_a_failure_in_the_module_is_one_line():
    made = run(Fails)
    pids = [process.pid for process in made.engine.machine.workers._processes]
    with pytest.raises(BadInput, match=r"Fails failed \(KeyError: 'no such layer'\)") as error:
        made.to_the_end()
    assert "\n" not in str(error.value)
    assert gone(pids)


class Dies(Plain):
    """A module that takes its process down."""

    def forward(self, x):
        if self.training and len(x) == 5:  # not in the first look, at the smallest batch
            os._exit(3)
        return super().forward(x)


def test_a_worker_that_dies_is_noticed():
    with pytest.raises(RuntimeError, match="a worker process was killed .exit code 3."):
        run(Dies).to_the_end()


def test_an_idle_worker_that_dies_is_noticed():
    begun = run()
    victim = begun.engine.machine.workers._processes[1]
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    with pytest.raises(RuntimeError, match="a worker process was killed .exit code -9."):
        begun.to_the_end()


def test_a_daemon_may_have_no_workers(monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(BadInput, match="ProcessPoolExecutor"):
        run()
