"""Simulating one method, from Python in a few lines."""

import inspect
import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
from safetensors.numpy import save

from flanp.algorithm import Method, State, flanp
from flanp.checkpoint import load_checkpoint, save_checkpoint
from flanp.checks import BadInput, nearest
from flanp.data import FederatedData, Source
from flanp.describe import describe
from flanp.divergence import Diverged
from flanp.files import checksum, write_atomically
from flanp.history import History, Row, at_target, check_target
from flanp.interrupts import uninterrupted
from flanp.participation import Flanp, Participation
from flanp.parts import Count, Seed, Within, check_is
from flanp.probing import callbacks_in_words
from flanp.problems import Problem
from flanp.progress import Progress
from flanp.simulator import Simulator
from flanp.solvers import Solver
from flanp.solvers.base import check_step_sizes
from flanp.speeds import Clock, Speeds, Uniform
from flanp.stopping import GradientNoise, StageRule, StatisticalAccuracy
from flanp.streams import Stream, generator
from flanp.work import Equal, Work

Precision = Literal["float32", "float64"]
Duration = Annotated[float, Within(0, math.inf, above=True)]
Pause = Annotated[float, Within(0, 1e300)]


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
        max_rounds = check_is("max_rounds", max_rounds, Count)
        max_time = check_is("max_time", max_time, Duration)
        record_every = check_is("record_every", record_every, Count)
        record_after = check_is("record_after", record_after, Pause)
        check_is("problem", problem, Problem)
        check_is("data", data, FederatedData | Source, ". Arrays: see flanp.data.from_clients")
        check_is("solver", solver, Solver)
        check_is("participation", participation, Participation | None)
        check_is("stop", stop, StageRule | None)
        check_is("work", work, Work | None)
        check_is("speeds", speeds, Speeds | None, ". Numbers: flanp.speeds.Measured((1.0, ...))")
        check_is("precision", precision, Precision)
        seed = check_is("seed", seed, Seed)
        check_is("endless", endless, bool)
        resume = check_is("resume", resume, Path | None)
        if isinstance(data, Source):
            data = data.loaded(seed)
        if target is not None:
            target = _check_target(target, problem, data)
        speeds = speeds or Uniform()
        stop = stop or GradientNoise()
        if isinstance(stop, StatisticalAccuracy):
            stop = stop.complete(problem, data)
        self.method = Method(solver, participation or Flanp(), stop, work or Equal(tau=10))
        self.method.participation.check(data.N)
        self.sizes = self.method.participation.sizes(data.N)
        self.target, self.max_rounds, self.max_time = target, max_rounds, max_time
        self.endless = endless or bool(target)
        self.record_every, self.record_after = record_every, record_after
        T = speeds.seconds_of(data.ids, generator(seed, Stream.SPEEDS))
        self.clock = Clock(T, speeds.jitter, seed)
        tau = self.method.work.local_steps(T, data.s)
        check_step_sizes(solver, self.sizes, data.N, problem.l2, tau, precision)
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
        arrays = (*data.batch, data.weights, *(data.test or ()), T, np.asarray(start.w))
        self.about["checksum"] = checksum(arrays)
        self.history = History(
            about={
                **self.about,
                "metric": problem.metric_name,
                "higher_is_better": problem.higher_is_better,
                "target": target,
                "ended": None,
            }
        )
        self.state = State(start)
        self._closed = False
        """Whether the last row was recorded only because the run ended there."""
        if resume is not None:
            self.state, self.history.rows = load_checkpoint(resume, self.engine, self.about)
            if self.history.rows:
                self._check_start(start)
                self._check_limits()

    def __iter__(self) -> Iterator[Row]:
        """Run, and yield each recorded round; at the end `history.about['ended']` says why."""
        with callbacks_in_words():
            yield from self._rows()

    def _rows(self) -> Iterator[Row]:
        if not self.history.rows:
            yield self._record(self.state)
        states = flanp(self.engine, self.method, self.clock, self.state, self.endless)
        reason = self._limit()
        if reason is not None and self.history.rows[-1].round < self.state.rounds:
            self._closed = True
            yield self._record(self.state)
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
        """Write the history and a checkpoint into a folder.

        A row that was recorded only because the run ended is not the checkpoint's: a run that goes
        on from there is then the one that did not end.
        """
        self.history.save(folder)
        rows = self.history.rows[:-1] if self._closed else self.history.rows
        save_checkpoint(Path(folder), self.engine, self.state, self.about, rows)

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
            self._closed = not (often and late)
        return reason or self._limit()

    def _limit(self) -> str | None:
        for name, level in (self.target or {}).items():
            last = getattr(self.history.rows[-1], name)
            if at_target(name, last, level, self.history.about["higher_is_better"]):
                return "target reached"
        if self.state.rounds >= self.max_rounds:
            return f"limit of {self.max_rounds} rounds"
        if self.state.time >= self.max_time:
            return f"limit of {self.max_time:g} virtual seconds"
        return None

    def _check_limits(self) -> None:
        """Refuse to resume to an end that the run has gone past."""
        before = History(self.history.rows[:-1], self.history.about)
        if self.state.rounds > self.max_rounds:
            past = f"max_rounds = {self.max_rounds}: it has done {self.state.rounds} rounds"
        elif before.rows and before.rows[-1].time >= self.max_time:
            past = f"max_time = {self.max_time:g}: it has taken {self.state.time:g} virtual seconds"
        elif self.target and before.meets(self.target).any():
            past = f"target = {self.target}: it was there in an earlier round"
        else:
            return
        raise BadInput(f"the run to resume has gone past {past}. Start anew, or give more")

    def _check_start(self, start: Any) -> None:
        """Refuse to resume with another loss or metric: they differ at the start model."""
        then, now = self.history.rows[0], self._row(State(start))
        for name in ("loss", "grad_norm_sq", "metric"):
            a, b = getattr(then, name), getattr(now, name)
            # Other devices add up in another order.
            if a is not None and not np.isclose(a, b, rtol=1e-3, atol=1e-6):
                raise BadInput(
                    f"the checkpoint is of another run: its {name} at the start was {a:.6g}, and "
                    f"is {b:.6g}. Resume with the same loss and metric, or start anew"
                )

    def _check_gradient(self) -> None:
        """Refuse a loss that does not depend on the model; a start at its minimum is none."""
        start = self.engine.start()
        nearby = start._replace(w=start.w + 0.1)
        of_active, _ = self.engine.measure(nearby, self.clock.ranking, whole=False)
        if of_active.grad_norm_sq == 0:
            raise BadInput("the gradient of the loss is zero: it does not depend on the parameters")

    def _record(self, state: State) -> Row:
        row = self._row(state)
        if not math.isfinite(row.loss) or not math.isfinite(row.grad_norm_sq):
            self.history.about["ended"] = f"diverged in round {row.round}, stage {row.stage + 1}"
            raise Diverged(row, self.history)
        if row.round == 0 and row.grad_norm_sq == 0:
            self._check_gradient()
        self.history.rows.append(row)
        return row

    def _row(self, state: State) -> Row:
        active = self.clock.ranking[: self.sizes[0]] if state.active is None else state.active
        of_active, of_all = self.engine.measure(state.model, active, whole=True)
        assert of_all is not None
        return Row(
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
    check_options(options)
    run = Simulation(problem, data, solver, participation, stop, work, speeds, **options)
    with Progress(type(solver).__name__, enabled=progress) as shown:
        for row in run:
            shown.row(row, len(run.sizes), run.engine.s.size)
    return run.history


def check_options(options: dict[str, Any], given: Collection[str] = ()) -> None:
    """Refuse keywords that `Simulation` does not have, or that are given in another way."""
    parameters = inspect.signature(Simulation).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in given]
    for key in options:
        if key not in known:
            raise BadInput(f"{key}: unknown keyword{nearest(key, known)}")


def _check_target(target: Any, problem: Problem, data: FederatedData) -> dict[str, float]:
    (name,) = check_target(target, higher_is_better=False)
    kind = type(problem).__name__
    if name == "metric" and (problem.metric_name is None or data.test is None):
        raise BadInput(f"target = {target}: {kind} has no metric on this data; use loss")
    target = check_target(target, problem.higher_is_better)
    if name == "distance" and problem.minimiser(data) is None:
        raise BadInput(f"target = {target}: the minimiser of {kind} is not known; use loss")
    return target
