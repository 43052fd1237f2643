"""The strategy: Algorithm 1 over Flower's nodes, in place of FedAvg."""

import time
from collections.abc import Callable, Mapping
from logging import INFO, WARNING
from pathlib import Path
from typing import Annotated, Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from flwr.serverapp.strategy import Result

from flanp import participation as policies
from flanp.algorithm import Method
from flanp.checkpoint import FILE
from flanp.checks import BadInput
from flanp.flower.clients import FlanpClients, PlainClients
from flanp.flower.exchange import Exchange
from flanp.flower.fleet import Fleet, NobodyAnswered
from flanp.flower.members import Members
from flanp.flower.run import FlowerRun
from flanp.flower.timing import Deadlines, MeasuredClock
from flanp.flower.vectors import names_of
from flanp.flower.wire import describe_solver
from flanp.history import History, check_target
from flanp.participation import Participation
from flanp.parts import Positive, Seed, Within, check_is
from flanp.solvers import FedAvg, Solver
from flanp.speeds import Seconds
from flanp.stopping import Authors, GradientNoise, StageRule, StatisticalAccuracy
from flanp.work import Equal, Work


class Flanp(FlowerFedAvg):
    """FLANP: start with the fastest nodes, add slower ones as their data is needed.

    Without a `solver` the clients are plain FedAvg clients, unchanged: they train on the arrays
    they get and return theirs with `num-examples`. With one they are built by
    `flanp.flower.client`, and the run is the paper's: FedGATE with gradient tracking and the
    test on the participants' gradient.

    It takes the constructor's arguments and the evaluation of Flower's FedAvg; who trains and how
    replies are averaged is decided here, so `configure_train` and `aggregate_train` are not called.

    Reference: Reisizadeh et al., Straggler-Resilient Federated Learning, arXiv:2012.14453.
    """

    def __init__(
        self,
        solver: Solver | None = None,
        participation: Participation | None = None,
        stop: StageRule | None = None,
        work: Work | None = None,
        *,
        n0: int | None = None,
        growth: float = 2.0,
        min_available_nodes: int = 2,
        fraction_evaluate: float = 0.0,
        deadline: float | None = None,
        quorum: float = 0.5,
        speeds: Mapping[str, float] | None = None,
        target: dict[str, float] | None = None,
        higher_is_better: bool | None = None,
        seed: int = 0,
        save: Path | str | None = None,
        resume: bool = False,
        **fedavg: Any,
    ):
        """Choose the method.

        Args:
            solver: the federated solver; None: the clients are plain FedAvg clients.
            participation: who takes part; FLANP's growth if left out.
            stop: when a stage is over; the parameter-free gradient-noise rule if left out.
            work: local steps of clients with a solver; 10 full local gradients if left out.
            n0: nodes of the first stage; 1, with plain clients 2, whose updates can be compared.
            growth: by how much the number of nodes grows from stage to stage.
            min_available_nodes: how many nodes to wait for before the start.
            fraction_evaluate: share of the nodes that evaluate the model after each stage.
            deadline: seconds that a round may take; from the observed times if left out.
            quorum: share of the participants who must have answered by then.
            speeds: seconds per step, by client, where they are known and need no measuring.
            target: for instance {"loss": 0.3}, of the last stage's participants or of
                `evaluate_fn`; the run ends there.
            higher_is_better: of the "metric" that `evaluate_fn` returns, for a target on it.
            seed: of everything random.
            save: folder for the history and a checkpoint after each round.
            resume: go on with the run in that folder.
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
        quorum = check_is("quorum", quorum, Annotated[float, Within(0, 1, above=True)])
        deadline = check_is("deadline", deadline, Positive | None)
        check_is("solver", solver, Solver | None)
        check_is("participation", participation, Participation | None)
        check_is("stop", stop, StageRule | None)
        check_is("work", work, Work | None)
        if target is not None:
            target = check_target(target, higher_is_better, ("loss", "metric"))
        if isinstance(stop, Authors):
            raise BadInput("Authors looks at all clients in each round: use GradientNoise")
        if isinstance(stop, StatisticalAccuracy) and None in (stop.mu, stop.c):
            raise BadInput("StatisticalAccuracy: mu and c of your loss are not known; give both")
        self.plain = solver is None
        theirs = {"weighted_by_key", "arrayrecord_key", "configrecord_key"} & fedavg.keys()
        if theirs and not self.plain:
            raise BadInput(f"{', '.join(sorted(theirs))}: only for plain clients, without a solver")
        if self.plain and work is not None:
            raise BadInput("plain clients decide on their local steps: `work` needs a solver")
        if solver is not None:
            describe_solver(solver)
        n0 = n0 or (2 if self.plain else 1)
        self.method = Method(
            # A plain client's own step size is not known: its update is the message.
            solver or FedAvg(eta=1.0),
            participation or policies.Flanp(n0, growth),
            stop or GradientNoise(),
            work or Equal(tau=1 if self.plain else 10),
        )
        self.deadline, self.quorum = deadline, quorum
        self.seed = check_is("seed", seed, Seed)
        self.speeds = {
            str(name): check_is(f"speeds[{name!r}]", T_i, Seconds)
            for name, T_i in dict(speeds or {}).items()
        }
        self.target = target
        self.higher_is_better = check_is("higher_is_better", higher_is_better, bool | None)
        self.folder, self.resume = Path(save) if save is not None else None, resume
        self.history = History()
        if self.folder is not None and not resume and (self.folder / FILE).exists():
            raise BadInput(f"{self.folder} holds a run: resume it, or choose another folder")
        if resume and self.folder is None:
            raise BadInput("resume: say which run with `save`, its folder")

    def summary(self) -> None:
        """Log the method."""
        for part in ("solver", "participation", "stop", "work"):
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
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run Algorithm 1 until all nodes' data is used, or for `num_rounds` rounds.

        Args:
            grid: Flower's way to the nodes.
            initial_arrays: the start model.
            num_rounds: limit on the rounds.
            timeout: the longest that any round, and the wait for nodes, may take in seconds.
            train_config: passed on to the clients.
            evaluate_config: passed on to the clients that evaluate.
            evaluate_fn: (round, arrays) -> metrics of the global model; its "loss" and
                "metric" go into the history.
        """
        log(INFO, "Starting %s:", type(self).__name__)
        self.summary()
        names = names_of(initial_arrays)
        config = train_config or ConfigRecord()
        solver, work = self.method.solver, self.method.work
        clients = (
            PlainClients(
                names, config, self.weighted_by_key, (self.arrayrecord_key, self.configrecord_key)
            )
            if self.plain
            else FlanpClients(names, config, solver, work, self.seed)
        )
        self._wait_for_nodes(grid, timeout)
        self.method.participation.check(len(list(grid.get_node_ids())))
        fleet = Fleet(
            exchange=Exchange(grid),
            clients=clients,
            members=Members(MeasuredClock(self.seed), self.speeds, strangers_too=self.plain),
            solver=solver,
            work=work,
            participation=self.method.participation,
            w_0=names.ravel(initial_arrays),
            deadlines=Deadlines(self.deadline, timeout),
            quorum=self.quorum,
        )
        run = FlowerRun(self, fleet, num_rounds, evaluate_config or ConfigRecord(), evaluate_fn)
        return run.to_the_end()

    def _wait_for_nodes(self, grid: Grid, timeout: float) -> None:
        end = time.monotonic() + timeout
        while len(online := list(grid.get_node_ids())) < self.min_available_nodes:
            if time.monotonic() > end:
                raise NobodyAnswered(
                    f"{len(online)} nodes are connected and {self.min_available_nodes} were "
                    f"awaited for {timeout:.0f} s: start more, or lower min_available_nodes"
                )
            time.sleep(0.5)
