"""What a Flower run records and reports: lines in the log, metrics, evaluations by clients."""

from collections.abc import Callable
from logging import INFO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp.strategy import Result

from flanp.checks import BadInput, shown
from flanp.ended import Ended
from flanp.files import write_json
from flanp.flower.asking import ServerModel
from flanp.flower.fleet import Evaluate, Fleet
from flanp.flower.replies import average_metrics
from flanp.flower.vectors import Names
from flanp.history import Row
from flanp.hooks import Hook
from flanp.metrics import RESERVED
from flanp.run import Run
from flanp.streams import Stream, generator

if TYPE_CHECKING:
    from flanp.flower.strategy import Flanp

FLEET = "fleet.json"
"""Ranking and speeds for a person to read; a resumed run has them from the checkpoint."""
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class Log(Hook):
    """Writes a line for each round into Flower's log."""

    def on_row(self, run: Run[ServerModel], row: Row) -> None:
        """Say where the run is."""
        order = run.state.clock.order
        there = 0 if order is None else len(order)
        log(
            INFO,
            "round %d: stage %d, %d of %d nodes, %.1f s, loss %.4g",
            *(row.round, row.stage + 1, row.n, there, row.time, row.loss),
        )

    def on_end(self, run: Run[ServerModel], ended: Ended) -> None:
        """Say why it ended."""
        log(INFO, "%s after %d rounds", ended, run.state.rounds)


class Counts(Hook):
    """Keeps count of exchanges and dropped replies in the history, and the fleet in a file."""

    def __init__(self, fleet: Fleet, folder: Path | None):
        self.fleet, self.folder = fleet, folder

    def on_round(self, run: Run[ServerModel]) -> None:
        """Count, and write down who is how fast."""
        run.history.about["counts"] = dict(self.fleet.asking.exchange.counts)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(
                self.folder / FLEET, self.fleet.members.described(run.state.clock, run.method.work)
            )

    def on_end(self, run: Run[ServerModel], ended: Ended) -> None:
        """Count for the last time."""
        self.on_round(run)
        counts = run.history.about["counts"]
        log(INFO, "exchanges and dropped replies: %s", counts)


class Results(Hook):
    """Fills Flower's own result: the model, and metrics from clients and server by round."""

    def __init__(
        self, strategy: "Flanp", fleet: Fleet, evaluate_config: ConfigRecord, result: Result
    ):
        self.strategy, self.fleet, self.config = strategy, fleet, evaluate_config
        self.result = result
        self._evaluated = -1
        """The round after which clients have evaluated last."""

    def on_round(self, run: Run[ServerModel]) -> None:
        """Average what the clients reported."""
        strategy = self.strategy
        reports = [MetricRecord(report) for report in run.state.model.reports]
        averaged = average_metrics(
            reports, strategy.train_metrics_aggr_fn, strategy.weighted_by_key
        )
        if averaged is not None:
            self.result.train_metrics_clientapp[run.state.rounds] = averaged

    def on_stage(self, run: Run[ServerModel], stage: dict[str, Any]) -> None:
        """Let clients evaluate the model."""
        self._ask_for_evaluation(run)

    def on_end(self, run: Run[ServerModel], ended: Ended) -> None:
        """Let clients evaluate the last model, and hand it over."""
        self.result.arrays = self.fleet.asking.clients.names.record(run.state.model.w)
        if not ended.failed:
            self._ask_for_evaluation(run)

    def _ask_for_evaluation(self, run: Run[ServerModel]) -> None:
        strategy, rounds = self.strategy, run.state.rounds
        if not strategy.fraction_evaluate or self._evaluated == rounds:
            return
        self._evaluated = rounds
        arrays = self.fleet.asking.clients.names.record(run.state.model.w)
        config = ConfigRecord({**self.config, "server-round": rounds})
        replies = self.fleet.ask_to_evaluate(
            RecordDict({strategy.arrayrecord_key: arrays, strategy.configrecord_key: config}),
            strategy.fraction_evaluate,
            strategy.min_evaluate_nodes,
            strategy.weighted_by_key,
            generator(strategy.seed, Stream.EVALUATION, rounds),
        )
        averaged = average_metrics(
            replies, strategy.evaluate_metrics_aggr_fn, strategy.weighted_by_key
        )
        if averaged is not None:
            self.result.evaluate_metrics_clientapp[rounds] = averaged


def server_evaluation(evaluate_fn: EvaluateFn | None, names: Names, result: Result) -> Evaluate:
    """Return the server's evaluation as an engine has it: all numbers that it returns."""

    def evaluate(rounds: int, w: np.ndarray) -> dict[str, float]:
        metrics = None if evaluate_fn is None else evaluate_fn(rounds, names.record(w))
        if metrics is None:
            return {}
        result.evaluate_metrics_serverapp[rounds] = metrics
        return {name: _number(name, value) for name, value in metrics.items()}

    return evaluate


def _number(name: str, value: Any) -> float:
    if name in RESERVED:
        raise BadInput(f"evaluate_fn: {name!r} is a column of each history; call it otherwise")
    if not isinstance(value, int | float):
        raise BadInput(f"evaluate_fn: its {name!r} is {shown(value)}: it must be a number")
    return float(value)
