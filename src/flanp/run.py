"""One run of a method on any engine: records, target, limits, checkpoints, hooks."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic

import numpy as np
from safetensors.numpy import save

from flanp.algorithm import Moment, State, flanp
from flanp.checkpoint import load_checkpoint, save_checkpoint
from flanp.checks import BadInput, first_line
from flanp.clock import Clock
from flanp.describe import describe
from flanp.divergence import Diverged
from flanp.ended import Ended, Reason
from flanp.engine import Engine, M
from flanp.files import write_atomically
from flanp.history import History, Row
from flanp.hooks import Hook, hooks_of, tell
from flanp.interrupts import uninterrupted
from flanp.limits import LIMITS, Limits
from flanp.measurement import Look, Seen
from flanp.method import Method
from flanp.parts import check_is, field_types
from flanp.stopping import Endless
from flanp.target import Target

LOSS = "loss"


class Run(Generic[M]):
    """A run of one method: iterate over it to advance it, record by record."""

    def __init__(
        self,
        engine: Engine[M],
        method: Method,
        clock: Clock,
        *,
        seed: int,
        about: dict[str, Any],
        metrics: dict[str, bool | None] | None = None,
        look: Look = Look.NOTHING,
        target: Target | None = None,
        endless: bool = False,
        limits: Limits = LIMITS,
        hooks: Sequence[Hook] = (),
        resume: Path | None = None,
    ):
        """Set a run up.

        Args:
            engine: what does the rounds.
            method: the method.
            clock: the time, and what is known of the clients' speeds.
            seed: of the choice of participants.
            about: what else decides the run; a checkpoint must agree with it.
            metrics: the names of what `engine.evaluate` returns; whether higher is better.
            look: what is to be seen of each model that is recorded.
            target: the run ends there, and not before.
            endless: go on after the last stage's accuracy is reached, up to the limits.
            limits: how far it goes, and how much of it is recorded.
            hooks: who is told of what happens.
            resume: folder of a checkpoint to go on from.
        """
        self.engine, self.seed, self.target, self.look = engine, seed, target, look
        self.method = method
        if endless or target is not None:
            self.method = replace(method, stop=Endless(method.stop))
        self.limits = limits
        self.hooks = hooks_of(hooks)
        parts = {part: describe(getattr(method, part)) for part in field_types(Method)}
        self.about = {**parts, **about, "seed": seed}
        given = {"target": target and target.given(), "metrics": dict(metrics or {})}
        self.history = History(about={**self.about, **given})
        self.state: State[M] = State(engine.start(), clock)
        self._closed = False
        """Whether the last row was recorded only because the run ended there."""
        self._metrics: dict[str, float] | None = None
        """What was evaluated of the state's model, if it was."""
        if resume is not None:
            self._resume(check_is("resume", resume, Path))

    @property
    def ended(self) -> Ended | None:
        """Why the run is over, if it is."""
        return self.history.ended

    def __iter__(self) -> Iterator[Row]:
        """Run, and yield each recorded round; at the end `ended` says why it is over."""
        moments = flanp(self.engine, self.method, self.state, self.seed, self._watch)
        self.history.ended = None
        try:
            while self.ended is None:
                # An interrupt comes when the state and the history are of the same round.
                with uninterrupted():
                    rows = self._step(next(moments, None))
                yield from rows
        except (Exception, KeyboardInterrupt) as error:
            self._fail(error)
            raise
        self._end()

    def to_the_end(self) -> History:
        """Run, and return the history."""
        for _ in self:
            pass
        return self.history

    def save(self, folder: Path | str) -> None:
        """Write the history and a checkpoint into a folder.

        A row that was recorded only because the run ended is not the checkpoint's: a run that goes
        on from there is then the one that did not end.
        """
        self.history.save(folder)
        rows = self.history.rows[:-1] if self._closed else self.history.rows
        arrays = self.engine.save(self.state.model, self.state.clock)
        save_checkpoint(
            Path(folder), self.state, arrays, self.about, History(rows, self.history.about)
        )

    def save_params(self, folder: Path | str) -> None:
        """Write the global model, array by array, as model.safetensors."""
        named = self.engine.named(self.state.model)
        arrays = {name or "w": np.asarray(a, order="C") for name, a in named.items()}
        write_atomically(Path(folder) / "model.safetensors", save(arrays))

    def _watch(self, state: State[M]) -> Look | None:
        """Note a state; return what is to be seen of its model, or None if the run ends there."""
        done = state.rounds > self.state.rounds
        self.state, self._metrics = state, None
        if done:
            self._tell("on_round")
        if self._limit() is not None or (not self._unrecorded() and self._at_target()):
            return None
        if not self._due():
            return Look.NOTHING
        metrics = self._evaluate()
        at_target = self.target is not None and self.target.met(
            metrics.get(self.target.column, math.nan)
        )
        return None if at_target else self.look

    def _step(self, moment: Moment[M] | None) -> list[Row]:
        """Record what is due before a round; see whether the run is over."""
        before = len(self.history.rows)
        if moment is None:
            self._close()
            ended = Ended(Reason.TARGET) if self._at_target() else self._limit()
            self.history.ended = ended or Ended(Reason.ACCURACY)
            return self.history.rows[before:]
        self.state = moment.state
        if self._due():
            self._record(moment.seen or self._see())
        new = len(self.history.rows) > before
        # The loss of some clients counts only where they are all that will ever take part.
        if new and (self._at_target() or (moment.stage.last and self._at_target(of_some=True))):
            self.history.ended = Ended(Reason.TARGET)
        elif moment.accurate and self.state.r:
            if self._unrecorded():  # the last round of a stage is always recorded
                self._record(self._see())
            if len(self.history.rows) > before:
                self._tell("on_stage", self.history.stages()[-1])
        return self.history.rows[before:]

    def _close(self) -> None:
        """Record the last round, as far as it can be seen without the next."""
        if self._unrecorded():
            self._record(self._see(), closing=True)

    def _fail(self, error: BaseException) -> None:
        """Note what ended the run, and tell the hooks, which may save it."""
        if isinstance(error, Diverged):
            words = f"diverged in round {error.row.round}, stage {error.row.stage + 1}"
            self.history.ended = Ended(Reason.DIVERGED, words)
        else:
            with suppress(Exception):
                self._close()
            interrupted = isinstance(error, KeyboardInterrupt)
            words = "interrupted" if interrupted else first_line(error)
            reason = Reason.INTERRUPTED if interrupted else Reason.FAILED
            self.history.ended = Ended(reason, words)
        try:
            self._end()
        except Exception as also:  # what ended the run is what must be told
            error.add_note(str(also))

    def _end(self) -> None:
        self.history.params = self.engine.params(self.state.model)
        self._tell("on_end", self.history.ended)

    def _tell(self, event: str, *what: Any) -> None:
        tell(self.hooks, event, self, *what)

    def _resume(self, folder: Path) -> None:
        note, arrays, self.history.rows = load_checkpoint(folder, self.about)
        active = np.array(note.pop("active"), int)
        losses = np.array(note.pop("losses"), float).reshape(-1, 3)
        model, clock = self.engine.load(arrays, self.state.clock.after(note.pop("time")))
        self.state = State(model, clock, active=active, losses=losses, **note)
        for name in [name for row in self.history.rows for name in row.metrics]:
            self.history.about["metrics"].setdefault(name, None)
        self._refuse_what_is_past()

    def _refuse_what_is_past(self) -> None:
        """Refuse to resume to an end that the run has gone past."""
        before, limits, time = self.history.rows[:-1], self.limits, self.state.clock.time
        if self.state.rounds > limits.max_rounds:
            past = f"max_rounds = {limits.max_rounds}: it has done {self.state.rounds} rounds"
        elif before and before[-1].time >= limits.max_time:
            past = f"max_time = {limits.max_time:g}: it has taken {time:g} {self.history.seconds}"
        elif self.target and any(self.target.met(r.value(self.target.column)) for r in before):
            past = f"target = {self.target.given()}: it was there in an earlier round"
        else:
            return
        raise BadInput(f"the run to resume has gone past {past}. Start anew, or give more")

    def _see(self) -> Seen:
        return self.engine.look(self.state.model, self.state.active, self.look)

    def _unrecorded(self) -> bool:
        return not self.history.rows or self.history.rows[-1].round < self.state.rounds

    def _due(self) -> bool:
        """Whether the state's row is to be recorded."""
        if not self._unrecorded():
            return False
        if not self.history.rows:
            return True
        limits, last = self.limits, self.history.rows[-1].time
        since = self.state.clock.time - last
        often = self.state.rounds % limits.record_every == 0
        return often and since >= max(limits.record_after, limits.record_growth * last)

    def _limit(self) -> Ended | None:
        if self.state.rounds >= self.limits.max_rounds:
            return Ended(Reason.ROUNDS, f"limit of {self.limits.max_rounds} rounds")
        if self.state.clock.time >= self.limits.max_time:
            return Ended(Reason.TIME, f"limit of {self.limits.max_time:g} {self.history.seconds}")
        return None

    def _at_target(self, of_some: bool = False) -> bool:
        """Whether the last row is at the target, by all clients or also by those who took part."""
        if self.target is None or not self.history.rows:
            return False
        row, column = self.history.rows[-1], self.target.column
        evaluated = column in row.metrics or column in (self._metrics or ())
        of_all = math.isfinite(row.grad_norm_sq) or evaluated
        return (of_all or of_some) and self.target.met(row.value(column))

    def _record(self, seen: Seen, closing: bool = False) -> None:
        row = self._row(seen, self._evaluate())
        if seen.whole is not None and not math.isfinite(row.loss + row.grad_norm_sq):
            raise Diverged(row, self.history)
        self.history.rows.append(row)
        self._closed = closing
        self._tell("on_row", row)

    def _evaluate(self) -> dict[str, float]:
        if self._metrics is None:
            self._metrics = self.engine.evaluate(self.state.model, self.state.rounds)
        return dict(self._metrics)

    def _row(self, seen: Seen, metrics: dict[str, float]) -> Row:
        state, nan = self.state, math.nan
        for name in metrics.keys() - {LOSS}:
            self.history.about["metrics"].setdefault(name, None)
        of = seen.whole or seen.active
        return Row(
            round=state.rounds,
            stage=state.k,
            n=len(state.active),
            time=state.clock.time,
            loss=metrics.pop(LOSS, nan if of is None else of.loss),
            grad_norm_sq=nan if seen.whole is None else seen.whole.grad_norm_sq,
            stage_grad_norm_sq=nan if seen.active is None else seen.active.grad_norm_sq,
            waiting=state.waiting,
            sent=state.sent,
            received=state.received,
            spent=state.spent,
            lost=state.lost,
            metrics=metrics,
        )
