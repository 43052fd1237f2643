"""The pages' commands for real machines, as they stand there."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from documents import BLOCKS, ON_FLOWER, ROOT, commands
from test_up import HEED_CTRL_C, gone

BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
TYPED = {
    page: [c for b in BLOCKS if b.page == page and b.language == "console" for c in commands(b)]
    for page in {b.page for b in BLOCKS}
}
UP = "flanp flower up --nodes 4 --slow 0,0,1,4"


def wait_for(path, words, seconds, process):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = path.read_text("utf-8", "replace") if path.exists() else ""
        if words in text:
            return
        assert process.poll() is None, text[-4000:]
        time.sleep(0.5)
    raise AssertionError(f"{words!r} did not come in {seconds} s:\n{text[-4000:]}")


@contextmanager
def after_two_rounds(typed, folder):
    """Start a command, and give its process once it has said that two rounds are done."""
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            typed, cwd=folder, env=ENVIRONMENT, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        wait_for(folder / "said", "round 2:", 200, process)
        yield process
    finally:
        process.kill()
        process.wait()


def test_every_command_on_flower_is_run_here():
    here = {UP, UP.replace("up", "up ."), *SEVERAL_MACHINES, *SIMULATED}
    for page, typed in TYPED.items():
        for command in typed:
            known = command in here or command.startswith("pip install 'flanp[flower")
            assert known or not ON_FLOWER.search(command), f"{page}: {command}"


@pytest.mark.parametrize("page", ["README.md", "examples/flower-pytorch/README.md"])
def test_the_whole_deployment_with_one_command(page, tmp_path):
    """It goes on for minutes, so Ctrl-C ends it after two rounds."""
    (command,) = [typed for typed in TYPED[page] if typed.startswith("flanp flower up")]
    if "pytorch" in page:
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'flanp[torch]'")
        shutil.copytree(ROOT / Path(page).parent, tmp_path, dirs_exist_ok=True)
    typed = [sys.executable, "-c", HEED_CTRL_C, "/bin/bash", "-c", f"exec {command}"]
    with after_two_rounds(typed, tmp_path) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    assert (tmp_path / "runs/flower/run/history.csv").exists()
    assert gone(tmp_path)


SIMULATED = [c for c in TYPED["examples/flower-numpy/README.md"] if "flwr run" in c]
SEVERAL_MACHINES = [c for c in TYPED["docs/deploy.md"] if c != UP]
NAMESPACE = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
may_unshare = subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not may_unshare, reason="a host name of its own needs the right to unshare")
def test_several_machines_as_the_page_says(tmp_path):
    """All on this machine, in a namespace where server.example.org is this machine."""
    make, export, superlink, key, register, supernode, run = SEVERAL_MACHINES
    (toml,) = (b.text for b in BLOCKS if b.page == "docs/deploy.md" and b.language == "toml")
    second = supernode.replace("partition-id=0", "partition-id=1").replace("ca.crt", "../ca.crt")
    script = f"""
    set -e
    echo '127.0.0.1 localhost server.example.org' > hosts
    mount --bind hosts /etc/hosts
    mkdir -p srv examples second .flwr && mount --bind srv /srv
    cp -r {ROOT}/examples/flower-numpy examples
    cat > .flwr/config.toml <<'EOF'\n{toml}\nEOF
    export HOME="$PWD"
    {make}
    cp /srv/certificates/ca.crt ca.crt
    {export}
    {superlink} > superlink.log 2>&1 &
    {key}
    until (echo > /dev/tcp/127.0.0.1/8000) 2> /dev/null; do sleep 0.5; done
    {register}
    {supernode} > node0.log 2>&1 &
    cd second
    {key}
    cd ..
    {register.replace("node.key", "second/node.key")}
    (cd second && exec {second} --port 9195) > node1.log 2>&1 &
    {run}
    """
    typed = [*NAMESPACE, "bash", "-c", re.sub(r"^    ", "", script, flags=re.MULTILINE)]
    with after_two_rounds(typed, tmp_path):
        pass
    assert (tmp_path / "srv/run/checkpoint.safetensors").exists()
