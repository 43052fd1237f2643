"""Playing the league: cells side by side on the cores, or over a Ray cluster; it can be stopped."""

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from flanp.checks import BadInput, first_line, nearest
from flanp.comparison import slug
from flanp.cores import usable_cores
from flanp.describe import describe
from flanp.files import write_json
from flanp.league.cells import play
from flanp.league.entries import QUICK, entries
from flanp.league.scenarios import QUICK_SCENARIOS, SCENARIOS, SETTINGS, Scenario, Setting, quick

Cell = dict[str, Any]
RULES = 8
"""Counts the ways in which cells were played: one of an earlier way is played again."""
ORPHAN_SECONDS = 2.0
"""How often a worker looks whether its parent is still there."""


class Pairing(NamedTuple):
    """What a cell is of."""

    setting: Setting
    scenario: Scenario
    method: str

    @property
    def path(self) -> Path:
        """Where it is kept, within the league's folder."""
        folders = (self.setting.name, slug(self.scenario.name))
        return Path("cells", *folders, f"{slug(self.method)}.json")

    def about(self) -> Cell:
        """Return what decides it: a cell of anything else is not taken for this one."""
        entry = entries(self.setting, 1.0)[self.method]
        parts = {
            "rules": RULES,
            "setting": vars(self.setting) | {"problem": describe(self.setting.problem)},
            "scenario": {k: describe(v) for k, v in vars(self.scenario).items()},
            "entry": describe(entry.method) | {"knobs": entry.knobs},
        }
        return dict(json.loads(json.dumps(parts, default=str)))


def pairings(
    scenarios: Sequence[str] = (),
    methods: Sequence[str] = (),
    small: bool = False,
    problems: Sequence[str] = (),
) -> list[Pairing]:
    """Return the cells of the league: all of them, or those of some scenarios or methods."""
    known = entries(SETTINGS["convex"], 1.0)
    for option, names, there in (
        ("--scenario", scenarios, SCENARIOS),
        ("--method", methods, known),
        ("--problem", problems, SETTINGS),
    ):
        for name in names:
            if name not in there:
                raise BadInput(f"{option} {name}: unknown{nearest(name, there)}")
    chosen = list(scenarios) or (list(QUICK_SCENARIOS) if small else list(SCENARIOS))
    played = list(methods) or (list(QUICK) if small else list(known))
    settings = [SETTINGS[name] for name in problems or SETTINGS]
    return [
        Pairing(quick(setting) if small else setting, SCENARIOS[scenario], method)
        for setting in settings
        for scenario in chosen
        for method in played
    ]


def played(folder: Path, pairing: Pairing) -> Cell | None:
    """Return a cell that was played before, if it is there and of the same league."""
    try:
        cell: Cell = json.loads((folder / pairing.path).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return cell if cell.get("about") == pairing.about() else None


def play_all(
    folder: Path, todo: Sequence[Pairing], workers: int, ray: str | None = None
) -> Iterator[Cell]:
    """Play cells, keep each in its file as soon as it is done, and yield it."""
    run = _over_ray(ray) if ray is not None else _on_cores(workers)
    for pairing, cell in run(todo):
        cell = cell | {"about": pairing.about()}
        path = folder / pairing.path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, cell)
        yield cell


Runner = Callable[[Sequence[Pairing]], Iterator[tuple[Pairing, Cell]]]


def _on_cores(workers: int) -> Runner:
    def run(todo: Sequence[Pairing]) -> Iterator[tuple[Pairing, Cell]]:
        context = multiprocessing.get_context("spawn")
        cores = context.Queue()
        for core in usable_cores()[:workers] * -(-workers // len(usable_cores())):
            cores.put(core)
        settling = partial(_settle, parent=os.getpid())
        pool = ProcessPoolExecutor(workers, context, settling, (cores,))
        futures = {pool.submit(play, *pairing): pairing for pairing in todo}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            processes = list((pool._processes or {}).values())  # an interrupt does not wait
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()

    return run


def _over_ray(address: str) -> Runner:
    try:
        import ray
    except ImportError as error:
        raise BadInput("--ray needs Ray: pip install 'flanp[ray]'") from error

    def run(todo: Sequence[Pairing]) -> Iterator[tuple[Pairing, Cell]]:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as it will always be
        try:
            ray.init(None if address == "local" else address, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise BadInput(f"--ray {address}: {first_line(error)}") from error
        try:
            task = ray.remote(num_cpus=1)(play)
            waiting = {task.remote(*pairing): pairing for pairing in todo}
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1)
                for reference in done:
                    yield waiting.pop(reference), ray.get(reference)
        finally:
            ray.shutdown()

    return run


def _settle(cores: Any, parent: int) -> None:
    """Keep a worker on one core, so that two do not share the two, and end it with its parent."""
    core = cores.get()
    threadpool_limits(1)  # NumPy's threads would wait for each other on that core
    with suppress(AttributeError, OSError):
        os.sched_setaffinity(0, {core})
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent was killed: what it does would be lost."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_SECONDS)
    os._exit(1)


def cores() -> int:
    """Return how many cells are played side by side."""
    return len(usable_cores())
