"""A SuperLink and SuperNodes on this machine, with TLS and keys, that leave nothing behind."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from flanp.checks import BadInput
from flanp.flower.local.keys import make_certificates, make_node_key
from flanp.flower.local.leftovers import kill_all, signal_group

CONNECTION = "flanp"
READY_SECONDS = 120.0
GRACE_SECONDS = 8.0
ATTEMPTS, PAUSE_SECONDS = 3, 2.0
"""How often Flower's commands are tried, and how long to wait in between."""


class DeploymentFailed(RuntimeError):
    """A process of the deployment did not do its part."""


@dataclass
class Deployment:
    """Starts Flower's processes in a folder, and stops every one of them at the end."""

    folder: Path
    simulated: int = 0
    """So many clients in Flower's simulation runtime, in place of nodes and their keys."""
    port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> "Deployment":
        self.folder = Path(self.folder).resolve()
        for name in ("flwr", "logs", "keys"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if not (self.folder / "certificates").exists():
            make_certificates(self.folder / "certificates")
        self._watchdog = subprocess.Popen(
            [sys.executable, "-m", "flanp.flower.local.leftovers", str(self._home)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self.start_superlink()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop every process."""
        self.stop(*reversed(self.processes))
        kill_all(self._home)
        self._watchdog.kill()
        self._watchdog.communicate()

    @property
    def environment(self) -> dict[str, str]:
        """Variables for Flower's commands: a home of their own, no telemetry, no network."""
        commands = str(Path(sys.executable).parent)
        return {
            **os.environ,
            "PATH": commands + os.pathsep + os.environ.get("PATH", ""),
            "FLWR_HOME": str(self._home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
        }

    @property
    def _home(self) -> Path:
        return self.folder / "flwr"

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it answers."""
        self.port = self.port or free_port()
        address = f"127.0.0.1:{self.port}"
        trust = f'root-certificates = "{self._certificate("ca.crt")}"'
        (self._home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{address}"\n{"insecure = true" if self.simulated else trust}\n'
        )
        secure = [*self._tls(), "--enable-supernode-auth"]
        self._start(
            "superlink",
            "flower-superlink",
            *(["--insecure", "--simulation"] if self.simulated else secure),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            "--disable-runtime-dependency-installation",
        )
        self._wait("superlink", self._answers, "the SuperLink is not ready")

    def register(self, number: int) -> None:
        """Tell the SuperLink of a node's key."""
        self.flwr("supernode", "register", f"{self._key(number)}.pub", CONNECTION)

    def start_node(self, number: int, config: Mapping[str, Any], registered: bool = True) -> None:
        """Start a SuperNode; without a registered key it gets nowhere."""
        if not self._key(number).exists():
            make_node_key(self._key(number))
        if registered and not (self.folder / "keys" / f"{number}.registered").exists():
            self.register(number)
            (self.folder / "keys" / f"{number}.registered").touch()
        self._start(
            f"node-{number}",
            "flower-supernode",
            *("--root-certificates", self._certificate("ca.crt")),
            *("--superlink", f"127.0.0.1:{self.port}"),
            *("--host", "127.0.0.1", "--port", str(free_port())),
            *self._tls(),
            *("--auth-supernode-private-key", str(self._key(number))),
            *("--node-config", " ".join(f"{k}={_toml(v)}" for k, v in config.items())),
        )

    def wait_for_nodes(self, count: int) -> None:
        """Wait until so many nodes are connected."""
        self._wait(
            None,
            lambda: len(self.nodes()) >= count,
            f"fewer than {count} nodes have connected",
        )

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes that are online."""
        found = json.loads(self.flwr("supernode", "list", CONNECTION, "--format", "json"))
        return [node for node in found.get("nodes", ()) if node.get("status") == "online"]

    def run(
        self, app: Path, config: Mapping[str, Any], name: str = "run"
    ) -> subprocess.Popen[bytes]:
        """Start an app; its log streams to the process's output."""
        values = " ".join(f"{key}={_toml(value)}" for key, value in config.items())
        options = ["-c", values] if values else []
        if self.simulated:
            clients = f"num-supernodes={self.simulated} client-resources-num-cpus=1"
            options += ["--federation-config", clients]
        return self._start(name, "flwr", "run", str(app), CONNECTION, "--stream", *options)

    def log(self, name: str) -> str:
        """Return what a process has printed."""
        return (self.folder / "logs" / f"{name}.log").read_text("utf-8", "replace")

    def flwr(self, *arguments: str) -> str:
        """Run a command of Flower's and return its output.

        On a busy machine it may give up on a SuperLink that is there: it is tried again.
        """
        for attempt in range(1, ATTEMPTS + 1):
            done = subprocess.run(
                [self._command("flwr"), *arguments],
                env=self.environment,
                cwd=self.folder,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                return done.stdout
            words = (done.stderr or done.stdout).strip()
            if "unavailable" not in words or attempt == ATTEMPTS:
                break
            time.sleep(PAUSE_SECONDS)
        raise DeploymentFailed(f"flwr {' '.join(arguments[:2])}: {words}")

    def kill(self, name: str) -> None:
        """Kill a process and its group at once, as a power cut would."""
        process = self.processes.pop(name)
        signal_group(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self, *names: str) -> None:
        """Ask processes and their children to end; after some seconds, end them."""
        processes = [self.processes.pop(name) for name in names]
        for process in processes:
            signal_group(process.pid, signal.SIGTERM)
        end = time.monotonic() + GRACE_SECONDS
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            signal_group(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, command: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [self._command(command), *arguments],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[name] = process
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.write(f"{process.pid}\n".encode())
        self._watchdog.stdin.flush()
        return process

    def _answers(self) -> bool:
        try:
            self.flwr("list", CONNECTION, "--format", "json")
        except DeploymentFailed:
            return False
        return True

    def _wait(self, name: str | None, ready: Any, otherwise: str) -> None:
        end = time.monotonic() + READY_SECONDS
        while not ready():
            dead = [n for n, p in self.processes.items() if p.poll() is not None]
            if name in dead or time.monotonic() > end:
                tail = self.log(name or (dead[0] if dead else "superlink"))[-2000:]
                raise DeploymentFailed(f"{otherwise}; {name or dead} said:\n{tail}")
            time.sleep(0.5)

    def _tls(self) -> list[str]:
        return [
            *("--ssl-ca-certfile", self._certificate("ca.crt")),
            *("--ssl-certfile", self._certificate("server.pem")),
            *("--ssl-keyfile", self._certificate("server.key")),
        ]

    def _certificate(self, name: str) -> str:
        return str(self.folder / "certificates" / name)

    def _key(self, number: int) -> Path:
        return self.folder / "keys" / f"node-{number}"

    def _command(self, name: str) -> str:
        path = Path(sys.executable).parent / name
        if not path.exists():
            raise BadInput(f"there is no {name} beside this Python: pip install 'flanp[flower]'")
        return str(path)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str | Path) else str(value)
