"""Simulating one method, from Python in a few lines."""

import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from safetensors.numpy import save

from flanp.algorithm import Method, State, flanp
from flanp.checkpoint import load_checkpoint, save_checkpoint
from flanp.checks import BadInput, require
from flanp.data import FederatedData, Source
from flanp.describe import describe
from flanp.files import write_atomically
from flanp.history import TARGETS, History, Row
from flanp.interrupts import uninterrupted
from flanp.participation import Flanp, Participation
from flanp.problems import Problem
from flanp.progress import Progress
from flanp.simulator import Simulator
from flanp.solvers import Solver
from flanp.speeds import Clock, Speeds, Uniform
from flanp.stopping import GradientNoise, StageRule, StatisticalAccuracy
from flanp.streams import Stream, generator
from flanp.work import Equal, Work

Precision = Literal["float32", "float64"]


START = "That is the start model's: look at the loss function and the data"


class Diverged(RuntimeError):
    """The loss became NaN or infinite. `history` holds what there was before."""

    def __init__(self, row: Row, history: History):
        super().__init__(
            f"the loss became {row.loss} in round {row.round} (stage {row.stage + 1}, "
            f"{row.n} clients). {'Lower eta, gamma or tau' if row.round else START}"
        )
        self.history = history


class Simulation:
    """A run of one method: iterate over it to advance it round by round.

    >>> from flanp import data, problems, solvers
    >>> run = Simulation(
    ...     problems.LinearRegression(), data.Synthetic(clients=8), solvers.FedGATE(eta=0.1),
    ...     max_rounds=3,
    ... )
    >>> [row.n for row in run]
    [0, 1, 1, 1]
    """

    def __init__(
        self,
        problem: Problem,
        data: FederatedData | Source,
        solver: Solver,
        participation: Participation | None = None,
        stop: StageRule | None = None,
        work: Work | None = None,
        speeds: Speeds | None = None,
        *,
        seed: int = 0,
        target: dict[str, float] | None = None,
        endless: bool = False,
        max_rounds: int = 1000,
        max_time: float = math.inf,
        record_every: int = 1,
        record_after: float = 0.0,
        precision: Precision = "float32",
        resume: Path | None = None,
    ):
        """Set a run up; see `simulate` for the arguments. `resume` is a checkpoint's folder."""
        require(max_rounds >= 1, "max_rounds", max_rounds, "1 or more")
        require(max_time > 0, "max_time", max_time, "a positive number")
        require(record_every >= 1, "record_every", record_every, "1 or more")
        require(record_after >= 0, "record_after", record_after, "zero or a positive number")
        if isinstance(data, Source):
            data = data.load(seed)
        if target:
            _check_target(target, problem, data)
        speeds = speeds or Uniform()
        stop = stop or GradientNoise()
        if isinstance(stop, StatisticalAccuracy):
            stop = stop.complete(problem, data)
        self.method = Method(solver, participation or Flanp(), stop, work or Equal(tau=10))
        self.method.participation.check(data.N)
        self.sizes = self.method.participation.stages(data.N)
        self.target, self.max_rounds, self.max_time = target, max_rounds, max_time
        self.endless = endless or bool(target)
        self.record_every, self.record_after = record_every, record_after
        T = speeds.draw(data.ids, generator(seed, Stream.SPEEDS))
        self.clock = Clock(T, speeds.jitter, seed)
        self.engine = Simulator(
            problem,
            data,
            solver,
            self.clock.ranking,
            batch=self.method.work.batch,
            seed=seed,
            precision=precision,
        )
        self.about = {
            "problem": describe(problem),
            **{
                part: describe(getattr(self.method, part))
                for part in ("solver", "participation", "stop", "work")
            },
            "speeds": describe(speeds),
            "clients": data.N,
            "samples": int(data.s.sum()),
            "seed": seed,
            "precision": precision,
        }
        start = self.engine.start()
        # So that a checkpoint of other data, speeds or another start model is noticed.
        parts = (*data.batch, data.weights, T, np.asarray(start.w))
        self.about["checksum"] = checksum(parts)
        self.history = History(about={**self.about, "metric": problem.metric_name, "ended": None})
        if resume is None:
            self.state = State(start)
        else:
            self.state = load_checkpoint(resume, self.engine, self.about)
            rows = History.load(resume).rows
            self.history.rows = [row for row in rows if row.round <= self.state.rounds]

    def __iter__(self) -> Iterator[Row]:
        """Run, and yield each recorded round; at the end `history.about['ended']` says why."""
        if not self.history.rows or self.history.rows[-1].round < self.state.rounds:
            yield self._record(self.state)
        states = flanp(self.engine, self.method, self.clock, self.state, self.endless)
        reason = self._limit()
        while reason is None:
            recorded = len(self.history.rows)
            # An interrupt comes when the state and the history are of the same round.
            with uninterrupted():
                reason = self._step(states)
            if len(self.history.rows) > recorded:
                yield self.history.rows[-1]
        self.history.about["ended"] = reason
        self.history.params = self.engine.params(self.state.model)

    def save(self, folder: Path | str) -> None:
        """Write the history and a checkpoint into a folder."""
        self.history.save(folder)
        save_checkpoint(Path(folder), self.engine, self.state, self.about)

    def save_params(self, folder: Path | str) -> None:
        """Write the global model, leaf by leaf, as model.safetensors."""
        leaves = jax.tree_util.tree_leaves_with_path(self.engine.params(self.state.model))
        named = {
            jax.tree_util.keystr(path, simple=True, separator=".") or "w": np.asarray(leaf)
            for path, leaf in leaves
        }
        write_atomically(Path(folder) / "model.safetensors", save(named))

    def _step(self, states: Iterator[State]) -> str | None:
        """Do a round and record it if it is due; return why the run is over, if it is."""
        state = next(states, None)
        if state is not None:
            if state.k > self.state.k and self.history.rows[-1].round < self.state.rounds:
                self._record(self.state)  # the last round of a stage is always recorded
            self.state = state
        reason = "accuracy reached" if state is None else self._limit()
        last = self.history.rows[-1]
        often = self.state.rounds % self.record_every == 0
        late = self.state.time - last.time >= self.record_after
        if (reason or (often and late)) and last.round < self.state.rounds:
            self._record(self.state)
        return reason or self._limit()

    def _limit(self) -> str | None:
        last = self.history.rows[-1]
        if self.target and all(getattr(last, name) <= v for name, v in self.target.items()):
            return "target reached"
        if self.state.rounds >= self.max_rounds:
            return f"limit of {self.max_rounds} rounds"
        if self.state.time >= self.max_time:
            return f"limit of {self.max_time:g} virtual seconds"
        return None

    def _record(self, state: State) -> Row:
        active = self.clock.ranking[: self.sizes[0]] if state.active is None else state.active
        of_active, of_all = self.engine.measure(state.model, active, whole=True)
        assert of_all is not None
        row = Row(
            round=state.rounds,
            stage=state.k,
            n=len(active) if state.rounds else 0,
            time=state.time,
            loss=of_all.loss,
            grad_norm_sq=of_all.grad_norm_sq,
            stage_grad_norm_sq=of_active.grad_norm_sq,
            waiting=state.waiting,
            **self.engine.evaluate(state.model),
        )
        if not math.isfinite(row.loss) or not math.isfinite(row.grad_norm_sq):
            self.history.about["ended"] = f"diverged in round {row.round}, stage {row.stage + 1}"
            raise Diverged(row, self.history)
        self.history.rows.append(row)
        return row


def simulate(
    problem: Problem,
    data: FederatedData | Source,
    solver: Solver,
    participation: Participation | None = None,
    stop: StageRule | None = None,
    work: Work | None = None,
    speeds: Speeds | None = None,
    *,
    progress: bool = True,
    **options: Any,
) -> History:
    """Simulate federated training and return its history.

    Args:
        problem: what is minimised.
        data: the clients' samples, or a source that loads them for the seed.
        solver: the federated solver.
        participation: who takes part; FLANP's growth from n0 = 1 if left out.
        stop: when a stage is over; the parameter-free gradient-noise rule if left out.
        work: local steps; 10 with full local gradients if left out.
        speeds: seconds per local step; uniform on [50, 500] if left out.
        progress: show progress where it takes over two seconds.
        options: keywords of `Simulation`:
            seed: of everything random.
            target: for instance {"loss": 0.3}; the run ends there, and not before.
            endless: go on after the last stage's accuracy is reached, up to the limits.
            max_rounds: limit on the rounds.
            max_time: limit on the virtual time.
            record_every: record, and evaluate, every so many rounds.
            record_after: record no sooner than this much virtual time after the last record.
            precision: "float32" or "float64".

    >>> import flanp
    >>> history = flanp.simulate(
    ...     flanp.problems.LinearRegression(),
    ...     flanp.data.Synthetic(clients=20, samples=50),
    ...     flanp.solvers.FedGATE(eta=0.1),
    ... )
    >>> history.about["ended"]
    'accuracy reached'
    """
    run = Simulation(problem, data, solver, participation, stop, work, speeds, **options)
    with Progress(type(solver).__name__, enabled=progress) as shown:
        for row in run:
            shown.row(row, len(run.sizes), run.engine.s.size)
    return run.history


def checksum(arrays: Iterable[np.ndarray]) -> int:
    """Return one number for some arrays' contents."""
    value = 0
    for a in arrays:
        value = zlib.crc32(np.ascontiguousarray(a).data.cast("B"), value)
    return value


def _check_target(target: dict[str, float], problem: Problem, data: FederatedData) -> None:
    if len(target) != 1:
        raise BadInput(f"target = {target}: it must be one level, such as loss = 0.3")
    (name,) = target
    require(name in TARGETS, "target", name, f"one of {', '.join(TARGETS)}")
    kind = type(problem).__name__
    if name == "metric" and (problem.metric_name is None or data.test is None):
        raise BadInput(f"target = {target}: {kind} has no metric on this data; use loss")
    if name == "distance" and problem.minimiser(data) is None:
        raise BadInput(f"target = {target}: the minimiser of {kind} is not known; use loss")
