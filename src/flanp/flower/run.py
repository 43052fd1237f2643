"""One run over Flower's nodes: rounds, history, checkpoints."""

import math
from collections.abc import Callable
from logging import INFO
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp.strategy import Result
from safetensors.numpy import save

from flanp.algorithm import State, flanp
from flanp.checkpoint import load_checkpoint, save_checkpoint
from flanp.describe import describe
from flanp.files import write_atomically, write_json
from flanp.flower.fleet import Fleet
from flanp.flower.replies import average_metrics
from flanp.history import History, Row, at_target
from flanp.streams import Stream, generator

if TYPE_CHECKING:
    from flanp.flower.strategy import Flanp

FLEET = "fleet.json"
"""Ranking and speeds for a person to read; a resumed run has them from the checkpoint."""


class FlowerRun:
    """Drives Algorithm 1 over a fleet and keeps its records."""

    def __init__(
        self,
        strategy: "Flanp",
        fleet: Fleet,
        num_rounds: int,
        evaluate_config: ConfigRecord,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    ):
        self.strategy, self.fleet, self.num_rounds = strategy, fleet, num_rounds
        self.evaluate_config, self.evaluate_fn = evaluate_config, evaluate_fn
        self.method, self.folder = strategy.method, strategy.folder
        fleet.watch = bool(strategy.target) and evaluate_fn is None
        self.about: dict[str, Any] = {
            "problem": {"name": "Flower"},
            **{
                part: describe(getattr(self.method, part))
                for part in ("solver", "participation", "stop", "work")
            },
            "parameters": fleet.clients.names.size,
            "seed": strategy.seed,
            "clock": "measured",
        }
        self.history = History(
            about={
                **self.about,
                "metric": None,
                "higher_is_better": strategy.higher_is_better,
                "target": strategy.target,
                "ended": None,
            }
        )
        self.result = Result()
        self.evaluated: dict[str, float] = {}
        self.took_part = 0
        if strategy.resume:
            self._resume()
        else:
            self.state = State(fleet.start())
        strategy.history = self.history

    def to_the_end(self) -> Result:
        """Run until the accuracy, the target or the limit is reached; save what there is."""
        fleet, target = self.fleet, self.strategy.target
        ended = "accuracy reached"
        try:
            if self.state.r > 0:
                fleet.meet(self.state.model.w)
            self._evaluate(self.state)
            if self.state.rounds >= self.num_rounds:
                ended = f"limit of {self.num_rounds} rounds"
                return self._finish(ended)
            for state in flanp(fleet, self.method, fleet.clock, self.state, bool(target)):
                self._record(self.state)
                if state.k > self.state.k:
                    self._ask_for_evaluation(self.state)
                self.state, self.took_part = state, len(fleet.last)
                self._count_metrics()
                self._evaluate(state)
                self._save()
                if state.rounds >= self.num_rounds:
                    ended = f"limit of {self.num_rounds} rounds"
                    break
                if target and self._reached(target):
                    ended = "target reached"
                    break
            self._ask_for_evaluation(self.state)
        except BaseException as error:
            self._finish(f"{type(error).__name__}: {error}")
            raise
        return self._finish(ended)

    def _finish(self, ended: str) -> Result:
        self._record(self.state)
        self.history.about["ended"] = ended
        self.history.about["counts"] = dict(self.fleet.exchange.counts)
        self.history.params = self.fleet.clients.names.split(self.state.model.w)
        self.result.arrays = self.fleet.clients.names.record(self.state.model.w)
        self._save()
        if self.folder is not None:
            parts = {n: np.ascontiguousarray(a) for n, a in self.history.params.items()}
            write_atomically(self.folder / "model.safetensors", save(parts))
        log(INFO, "%s after %d rounds", ended, self.state.rounds)
        log(INFO, "exchanges and dropped replies: %s", self.history.about["counts"])
        return self.result

    def _record(self, state: State) -> None:
        """Add the row of a state; the participants' loss at w comes with the next exchange."""
        if self.history.rows and self.history.rows[-1].round >= state.rounds:
            return
        seen = self.fleet.measured.get(state.rounds)
        nan, there = math.nan, len(self.fleet.clock.present)
        grad_norm_sq = nan if seen is None else seen.grad_norm_sq
        of_all = seen is not None and seen.clients == there and not self.strategy.plain
        row = Row(
            round=state.rounds,
            stage=state.k,
            n=self.took_part,
            time=state.time,
            loss=self.evaluated.get("loss", nan if seen is None else seen.loss),
            grad_norm_sq=grad_norm_sq if of_all else nan,
            stage_grad_norm_sq=grad_norm_sq,
            waiting=state.waiting,
            metric=self.evaluated.get("metric"),
        )
        self.history.rows.append(row)
        log(
            INFO,
            "round %d: stage %d, %d of %d nodes, %.1f s, loss %.4g",
            *(row.round, row.stage + 1, row.n, there, row.time, row.loss),
        )

    def _reached(self, target: dict[str, float]) -> bool:
        """Whether the target is met, by `evaluate_fn` or by the last stage's participants."""
        values = dict(self.evaluated)
        seen, active = self.fleet.latest, self.state.active
        sizes = self.method.participation.sizes(len(self.fleet.clock.present))
        if seen is not None and active is not None and len(active) >= sizes[-1]:
            values.setdefault("loss", seen.loss)
        ((name, level),) = target.items()
        higher = self.strategy.higher_is_better
        return bool(at_target(name, values.get(name, math.nan), level, higher))

    def _evaluate(self, state: State) -> None:
        if self.evaluate_fn is None:
            return
        metrics = self.evaluate_fn(state.rounds, self.fleet.clients.names.record(state.model.w))
        self.evaluated = {}
        if metrics is not None:
            self.result.evaluate_metrics_serverapp[state.rounds] = metrics
            if "metric" in metrics:
                self.history.about["metric"] = "metric on held-out data"
            self.evaluated = {
                name: float(value)
                for name, value in metrics.items()
                if name in ("loss", "metric") and isinstance(value, int | float)
            }

    def _count_metrics(self) -> None:
        """Average what the clients reported."""
        replies = [answer.metrics for answer in self.fleet.last.values()]
        aggregate, key = self.strategy.train_metrics_aggr_fn, self.strategy.weighted_by_key
        metrics = average_metrics(replies, aggregate, key)
        if metrics is not None:
            self.result.train_metrics_clientapp[self.state.rounds] = metrics

    def _ask_for_evaluation(self, state: State) -> None:
        strategy = self.strategy
        if not strategy.fraction_evaluate:
            return
        arrays = self.fleet.clients.names.record(state.model.w)
        config = ConfigRecord({**self.evaluate_config, "server-round": state.rounds})
        replies = self.fleet.ask_to_evaluate(
            RecordDict({strategy.arrayrecord_key: arrays, strategy.configrecord_key: config}),
            strategy.fraction_evaluate,
            strategy.min_evaluate_nodes,
            strategy.weighted_by_key,
            generator(strategy.seed, Stream.EVALUATION, state.rounds),
        )
        aggregate = strategy.evaluate_metrics_aggr_fn
        metrics = average_metrics(replies, aggregate, strategy.weighted_by_key)
        if metrics is not None:
            self.result.evaluate_metrics_clientapp[state.rounds] = metrics

    def _save(self) -> None:
        if self.folder is None:
            return
        self.history.save(self.folder)
        write_json(self.folder / FLEET, self.fleet.members.save())
        save_checkpoint(self.folder, self.fleet, self.state, self.about, self.history.rows)

    def _resume(self) -> None:
        assert self.folder is not None
        self.state, rows = load_checkpoint(self.folder, self.fleet, self.about)
        self.history.rows = [row for row in rows if row.round < self.state.rounds]
        self.took_part = 0 if self.state.active is None else len(self.state.active)
        log(INFO, "resumed after round %d, stage %d", self.state.rounds, self.state.k + 1)
