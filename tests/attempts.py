"""A process that tries configurations, one after the other, as `flanp run` would.

It stands apart from the tests so that its memory and its time can be judged, and so that a
configuration that takes all of either ends this process and not the tests.
"""

import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SECONDS, BYTES = 10.0, 2e9
"""What any configuration may take before it runs or is refused."""


class Attempts:
    """The tests' end of the process."""

    def __init__(self, folder):
        self.folder = folder
        self._start()

    def _start(self):
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def __call__(self, text):
        """Return (exit code, message, seconds, peak bytes) of a configuration's TOML."""
        timer = threading.Timer(6 * SECONDS, self.process.kill)
        timer.start()
        start = time.monotonic()
        self.process.stdin.write(json.dumps(text) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        timer.cancel()
        if not answer:
            self.errors.seek(0)
            said = self.errors.read().decode()[-2000:]
            self._start()
            return None, f"the process died: {said}", time.monotonic() - start, 0
        return tuple(json.loads(answer))

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


def attempt(text, folder):
    """Return the exit code and the message that `flanp run` would end with."""
    from flanp.checks import BadInput
    from flanp.config import load_config
    from flanp.divergence import Diverged

    path = folder / "attempt.toml"
    try:
        path.write_text(text, "utf-8")
        config = load_config(path)
        for method in config.methods.values():
            with contextlib.redirect_stderr(io.StringIO()):
                for _ in config.simulation(method):
                    pass
    except BadInput as error:
        return 2, str(error)
    except Diverged as error:
        return 1, str(error)
    except BaseException as error:
        return None, f"{type(error).__name__}: {error}"
    return 0, ""


def peak_bytes():
    """Return the most memory this process has had (getrusage would count its parent's, too)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


if __name__ == "__main__":
    import os

    os.environ["FLANP_MEMORY"] = str(int(BYTES))
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        start, worked = time.monotonic(), time.process_time()
        code, message = attempt(json.loads(line), Path(sys.argv[1]))
        # Other load makes the first longer, several cores the second.
        seconds = min(time.monotonic() - start, time.process_time() - worked)
        peak = peak_bytes()
        print(json.dumps([code, message[:2000], seconds, peak]), file=answers, flush=True)
