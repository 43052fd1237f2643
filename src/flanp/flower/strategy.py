"""The strategy: Algorithm 1 over Flower's nodes, in place of FedAvg."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from flwr.serverapp.strategy import Result

from flanp.checkpoint import FILE
from flanp.checks import BadInput, calling
from flanp.clock import Clock
from flanp.flower.asking import Asking, NobodyAnswered
from flanp.flower.clients import FlanpClients, PlainClients
from flanp.flower.exchange import Exchange
from flanp.flower.fleet import Fleet
from flanp.flower.members import Members
from flanp.flower.naming import told
from flanp.flower.plain import PLAIN, OwnTraining
from flanp.flower.records import Counts, EvaluateFn, Log, Results, server_evaluation
from flanp.flower.timing import Deadlines, Time, WallTime
from flanp.flower.tracking import Tracking
from flanp.flower.vectors import Names, names_of
from flanp.history import History
from flanp.hooks import Checkpointer, Hook
from flanp.limits import Limits
from flanp.measurement import Look
from flanp.method import Method
from flanp.parts import Seed, check_is, field_types
from flanp.run import Run
from flanp.solvers import Solver
from flanp.solvers.checking import check_solver
from flanp.speeds import Seconds
from flanp.stopping import Authors, StatisticalAccuracy
from flanp.target import Target
from flanp.trees import leaves


class Flanp(FlowerFedAvg):
    """FLANP: start with the fastest nodes, add slower ones as their data is needed.

    Without a method the clients are plain FedAvg clients, unchanged: they train on the arrays
    they get and return theirs with `num-examples`. With one, such as Method(FedGATE(eta=0.05)),
    they are built by `flanp.flower.client`, and the run is the paper's: gradient tracking and the
    test on the participants' gradient. Other participation or rules with plain clients:
    Method(OwnTraining(), Growing(n0=3)).

    It takes the constructor's arguments and the evaluation of Flower's FedAvg; who trains and how
    replies are averaged is decided here, so `configure_train` and `aggregate_train` are not called.

    Reference: Reisizadeh et al., Straggler-Resilient Federated Learning, arXiv:2012.14453.
    """

    def __init__(
        self,
        method: Method = PLAIN,
        *,
        min_available_nodes: int = 2,
        fraction_evaluate: float = 0.0,
        speeds: Mapping[str, float] | None = None,
        target: dict[str, float] | None = None,
        metrics: Mapping[str, bool | None] | None = None,
        seed: int = 0,
        save: Path | str | None = None,
        resume: bool = False,
        hooks: Sequence[Hook] = (),
        time: Time | None = None,
        **fedavg: Any,
    ):
        """Choose the method.

        Args:
            method: what is run. Left out, the clients are plain FedAvg clients.
            min_available_nodes: how many nodes to wait for before the start.
            fraction_evaluate: share of the nodes that evaluate the model after each stage.
            speeds: seconds per step, by client, where they are known and need no measuring.
            target: for instance {"loss": 0.3}, of the last stage's participants or of
                `evaluate_fn`; the run ends there.
            metrics: the names of what `evaluate_fn` returns beside a loss, and whether higher is
                better, for a target on one.
            seed: of everything random.
            save: folder for the history and a checkpoint after each round.
            resume: go on with the run in that folder.
            hooks: who is told of what happens in the run.
            time: tells the time; the real one if left out.
            fedavg: further arguments of Flower's FedAvg, such as `weighted_by_key`.
        """
        super().__init__(
            min_available_nodes=min_available_nodes,
            fraction_evaluate=fraction_evaluate or 1.0,
            **fedavg,
        )
        self.fraction_evaluate = fraction_evaluate
        if {"fraction_train", "min_train_nodes"} & fedavg.keys():
            log(WARNING, "FLANP decides who trains: fraction_train, min_train_nodes are not used")
        self.method = check_is("method", method, Method, ". Give it as flanp.Method(solver)")
        self.plain = isinstance(method.solver, OwnTraining)
        if self.plain and method.work == Method(method.solver).work:  # where nothing was said
            self.method = replace(method, work=PLAIN.work)
        self._check_method(fedavg)
        self.metrics = {str(name): higher for name, higher in dict(metrics or {}).items()}
        self.target = None if target is None else Target.of(target, self.metrics)
        if self.target is not None and self.target.column == "grad_norm_sq":
            raise BadInput("target.grad_norm_sq: not all clients are asked in each round; use loss")
        self.seed = check_is("seed", seed, Seed)
        self.speeds = {
            str(name): check_is(f"speeds[{name!r}]", T_i, Seconds)
            for name, T_i in dict(speeds or {}).items()
        }
        self.hooks, self.time = tuple(hooks), time or WallTime()
        self.folder, self.resume = Path(save) if save is not None else None, resume
        self.history = History()
        if self.folder is not None and not resume and (self.folder / FILE).exists():
            raise BadInput(f"{self.folder} holds a run: resume it, or choose another folder")
        if resume and self.folder is None:
            raise BadInput("resume: say which run with `save`, its folder")

    def _check_method(self, fedavg: dict[str, Any]) -> None:
        """Refuse what cannot run on real machines, or not with these clients."""
        stop, plain = self.method.stop, self.plain
        if not isinstance(self.method.solver, Solver):
            raise BadInput(
                f"{type(self.method.solver).__name__} is asynchronous: it runs in the simulator. "
                "On Flower take a solver with rounds, such as FedGATE, or "
                "flanp.auto(eta, batch, in_rounds=True)"
            )
        if self.method.participation.sees_losses:
            raise BadInput(
                f"{type(self.method.participation).__name__} chooses by the clients' losses, which "
                "clients on Flower do not report: take Growing, RandomK or FedCS"
            )
        if isinstance(stop, Authors):
            raise BadInput("Authors looks at all clients in each round: use GradientNoise")
        if isinstance(stop, StatisticalAccuracy) and None in (stop.mu, stop.c):
            raise BadInput("StatisticalAccuracy: mu and c of your loss are not known; give both")
        theirs = {"weighted_by_key", "arrayrecord_key", "configrecord_key"} & fedavg.keys()
        if theirs and not plain:
            raise BadInput(f"{', '.join(sorted(theirs))}: only for plain clients, without a solver")
        if plain and self.method.work != PLAIN.work:
            raise BadInput("plain clients decide on their local steps: `work` needs a solver")
        solver = self.method.solver
        if plain and (solver.compression.shortens or solver.local != PLAIN.solver.local):
            raise BadInput("plain clients do not compress, and step as they do: a solver is needed")
        check_solver(solver)
        with calling(f"{type(solver).__name__} on the wire", "its fields must be numbers or texts"):
            json.dumps(told(solver))

    def summary(self) -> None:
        """Log the method."""
        for part in field_types(Method):
            log(INFO, "\t├──> %s: %s", part, getattr(self.method, part))
        log(INFO, "\t└──> clients: %s", "plain FedAvg" if self.plain else "flanp.flower.client")

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 1000,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Run Algorithm 1 until all nodes' data is used, or for `num_rounds` rounds.

        Args:
            grid: Flower's way to the nodes.
            initial_arrays: the start model.
            num_rounds: limit on the rounds.
            timeout: the longest that any round, and the wait for nodes, may take in seconds.
            train_config: passed on to the clients.
            evaluate_config: passed on to the clients that evaluate.
            evaluate_fn: (round, arrays) -> metrics of the global model: numbers, which go into
                the history; "loss" is its loss.
        """
        log(INFO, "Starting %s:", type(self).__name__)
        self.summary()
        self._wait_for_nodes(grid, timeout)
        self.method.participation.check(len(list(grid.get_node_ids())))
        names, result = names_of(initial_arrays), Result()
        fleet = Fleet(
            self._asking(grid, names, initial_arrays, train_config or ConfigRecord(), timeout),
            names.ravel(initial_arrays),
            exact=not self.plain,
            evaluation=server_evaluation(evaluate_fn, names, result),
        )
        results = Results(self, fleet, evaluate_config or ConfigRecord(), result)
        hooks: list[Hook] = [Log(), Counts(fleet, self.folder), results, *self.hooks]
        if self.folder is not None:
            hooks.append(Checkpointer(self.folder, every=0.0))
        asks = self.target is not None and evaluate_fn is None
        run = Run(
            fleet,
            self.method,
            Clock(),
            seed=self.seed,
            about={"problem": {"name": "Flower"}, "parameters": names.size, "clock": "measured"},
            metrics=self.metrics,
            look=Look.ACTIVE if asks else Look.NOTHING,
            target=self.target,
            limits=Limits(max_rounds=num_rounds),
            hooks=hooks,
            resume=self.folder if self.resume else None,
        )
        if self.resume:
            log(INFO, "resumed after round %d, stage %d", run.state.rounds, run.state.k + 1)
        self.history = run.history
        run.to_the_end()
        return result

    def _asking(
        self,
        grid: Grid,
        names: Names,
        initial_arrays: ArrayRecord,
        config: ConfigRecord,
        timeout: float,
    ) -> Asking:
        solver, work, w_0 = self.method.solver, self.method.work, names.ravel(initial_arrays)
        keys = (self.arrayrecord_key, self.configrecord_key)
        clients = (
            PlainClients(names, config, self.weighted_by_key, keys)
            if self.plain
            else FlanpClients(names, config, solver, work, self.seed)
        )
        return Asking(
            exchange=Exchange(grid, self.time),
            clients=clients,
            members=Members(self.speeds, strangers_too=self.plain),
            tracking=Tracking(bool(leaves(solver.join(w_0))) and not solver.remembers_absent),
            method=self.method,
            deadlines=Deadlines(timeout),
        )

    def _wait_for_nodes(self, grid: Grid, timeout: float) -> None:
        end = self.time.now() + timeout
        while len(online := list(grid.get_node_ids())) < self.min_available_nodes:
            if self.time.now() > end:
                raise NobodyAnswered(
                    f"{len(online)} nodes are connected and {self.min_available_nodes} were "
                    f"awaited for {timeout:.0f} s: start more, or lower min_available_nodes"
                )
            self.time.sleep(0.5)
