"""The simulator: rounds of many clients as one compiled JAX program on all cores."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flanp import kernels
from flanp.checks import MOST_WHOLE, BadInput, calling
from flanp.data.federated import FederatedData, largest, pad_rows
from flanp.engine import Round
from flanp.kernels import CLIENTS, Plan, Program, Shard
from flanp.layout import layout_of
from flanp.measurement import Measurement, noise
from flanp.memory import require_room
from flanp.probing import check_problem, name_of
from flanp.problems import Problem
from flanp.schedules import Constant
from flanp.solvers import Solver, Step

PATIENCE = (
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=604800",
    "--xla_cpu_collective_call_terminate_timeout_seconds=604800",
)
"""XLA ends the process when a device waits 40 seconds for another that has more clients."""


class Model(NamedTuple):
    """What the simulator keeps of a run."""

    w: jax.Array
    """The global model, as one vector."""
    server: Any
    """The solver's state at the server."""
    clients: Any
    """The solver's state at the clients: arrays with a row for each client, or ()."""
    inbox: Any
    """Room for the clients' messages, where their states need them; else ()."""


class _Measured(NamedTuple):
    """The last measurement: whoever records a round and the stage rule ask for the same one."""

    w: jax.Array
    active: np.ndarray
    of_active: Measurement
    of_all: Measurement | None


class Simulator:
    """An engine that simulates all clients on this machine.

    The clients are stored fast to slow and dealt to the devices like cards, so that the n
    fastest are spread evenly for every n. How many take part is data to the compiled program,
    not part of it: one compilation serves all stages.
    """

    def __init__(
        self,
        problem: Problem,
        data: FederatedData,
        solver: Solver,
        ranking: np.ndarray,
        batch: int | None = None,
        seed: int = 0,
        precision: Literal["float32", "float64"] = "float32",
        chunk: int | None = None,
    ):
        """Put the data on the devices.

        Args:
            problem: what is minimised.
            data: the clients' samples.
            solver: the federated solver.
            ranking: all clients, fastest first.
            batch: samples in a mini-batch; None: full local gradients.
            seed: of the start model and of the order of the samples.
            precision: of all arithmetic.
            chunk: clients that a core works on side by side; chosen by the model's size if None.
        """
        self.s = data.s
        self.seed = seed
        self.precision = precision
        self._measured: _Measured | None = None
        self._kept: dict[Any, Any] = {}
        for a in (*data.batch, *(data.test or ())):
            self._check_range(a)
        devices = _devices()[: data.N]
        self._key = jax.random.key(seed)
        with self._in_precision():
            with calling(name_of(problem, "init"), "it must take a random key and return arrays"):
                params = problem.init(jax.random.fold_in(self._key, 0), data)
            self.layout = layout_of(params)
            check_problem(problem, params, data)
            with calling(name_of(problem, "minimiser"), "it must return w* or None"):
                minimiser = problem.minimiser(data)
                w_star = None if minimiser is None else self.layout.ravel(minimiser)
            if w_star is not None and w_star.shape != (self.layout.size,):
                raise BadInput(f"{name_of(problem, 'minimiser')} must return as many numbers as w")
            w = self.layout.ravel(params).astype(precision)
            test = data.test if problem.metric_name else None
            metric = problem
            if batch is None:
                with calling(name_of(problem, "condense"), "it must return a problem and its data"):
                    problem, data = problem.condense(data)
            self.mesh = Mesh(np.array(devices), (CLIENTS,))
            rows = data.weights.shape[1]
            if batch is not None:
                batch = min(batch, rows)  # a larger one would hold the same samples, and padding
            self._slots = -(-data.N // len(devices))
            self.program = Program(
                problem=problem,
                metric=metric,
                # Step sizes are data to the program: one compilation serves a grid of them.
                solver=replace(solver, eta=1.0, gamma=1.0, schedule=Constant()),
                layout=self.layout,
                batch=batch,
                chunk=chunk or _chunk(self.layout.size, batch or rows, self._slots),
                mesh=self.mesh,
            )
            self._require_room(data.N)
            self._position = np.empty(data.N, int)
            self._position[ranking] = np.arange(data.N)
            self._shard = self._deal(data, ranking)
            self._test = None if test is None else self._deal_rows(test)
            everywhere = NamedSharding(self.mesh, PartitionSpec())
            self._start_w = jax.device_put(w, everywhere)
            self._w_star = None
            if w_star is not None:
                self._w_star = jax.device_put(w_star.astype(precision), everywhere)

    def _require_room(self, N: int) -> None:
        """Refuse a model whose states at the clients this machine cannot hold."""
        w = jax.ShapeDtypeStruct((self.layout.size,), self.precision)
        _, client = jax.eval_shape(self.program.solver.start, w)
        numbers = sum(leaf.size for leaf in jax.tree.leaves(client))
        # States, messages, and what XLA copies of both (benchmarks/round.py: 3.6 in all).
        needed = np.dtype(self.precision).itemsize * (4.0 * N * numbers + 10.0 * self.layout.size)
        what = f"clients = {N} of a model with {self.layout.size:,} parameters (see dim or widths)"
        require_room(needed, what, N, "clients")

    def start(self) -> Model:
        """Return the start model."""
        with self._in_precision():
            server, client = self.program.solver.start(self._start_w)
            # A solver whose clients keep a state needs their messages until the mean is known.
            sharded = NamedSharding(self.mesh, PartitionSpec(CLIENTS))
            rows = self._slots * self.mesh.size
            room = jax.tree.map(
                lambda a: jnp.zeros((rows, *a.shape), a.dtype, device=sharded), client
            )
            inbox = jax.tree.map(jnp.zeros_like, room)
            model = Model(self._start_w, server, room, inbox)
            return self.restart(model)

    def restart(self, model: Model) -> Model:
        """Keep w and start the solver afresh."""
        with self._in_precision():
            server, clients = kernels.restart(self.program, model.w, model.clients)
            return model._replace(server=server, clients=clients)

    def round(
        self,
        model: Model,
        number: int,
        active: np.ndarray,
        tau: np.ndarray,
        eta: float,
        gamma: float,
    ) -> Model:
        """Run one round with the active clients, tau_i local steps each."""
        with self._in_precision():
            plan, step = self._on_devices(self._work, active, tau, eta, gamma)
            parts = kernels.round_(
                self.program,
                model.w,
                model.server,
                model.clients,
                model.inbox,
                self._shard,
                plan,
                step,
                self._key,
                np.int32(number),
            )
            # XLA's reductions between CPU devices can deadlock when programs queue up.
            return Model(*jax.block_until_ready(parts))

    def measure(
        self, model: Model, active: np.ndarray, whole: bool, upcoming: Round | None = None
    ) -> tuple[Measurement, Measurement | None]:
        """Return loss and gradient of w over the active clients and, if asked, over all."""
        del upcoming
        last = self._measured
        if (
            last is not None
            and last.w is model.w
            and np.array_equal(last.active, active)
            and (last.of_all is not None or not whole)
        ):
            return last.of_active, last.of_all
        with self._in_precision():
            plan = self._on_devices(self._cover, active, whole)
            sums = np.asarray(kernels.measure(self.program, model.w, self._shard, plan), float)
        of_active, of_all = _measurement(sums[0]), _measurement(sums[1]) if whole else None
        self._measured = _Measured(model.w, active, of_active, of_all)
        return of_active, of_all

    def evaluate(self, model: Model) -> dict[str, float]:
        """Return the metric on held-out data and the distance to w*, where there are any."""
        with self._in_precision():
            values = kernels.evaluate(self.program, model.w, self._test, self._w_star)
        return {name: float(value) for name, value in jax.device_get(values).items()}

    def save(self, model: Model) -> dict[str, np.ndarray]:
        """Return w and the solver's states by name, with a row for each client in order of id."""
        stored = {"w": model.w, "server": model.server}
        arrays = {name: np.asarray(a) for name, a in stored.items() if not isinstance(a, tuple)}
        if not isinstance(model.clients, tuple):
            arrays["clients"] = np.asarray(model.clients)[self._row_of_client()]
        return arrays

    def load(self, arrays: dict[str, np.ndarray]) -> Model:
        """Return the model that `save` was given, bit for bit."""
        model = self.start()
        with self._in_precision():
            everywhere = NamedSharding(self.mesh, PartitionSpec())
            model = model._replace(w=jax.device_put(arrays["w"], everywhere))
            if "server" in arrays:
                model = model._replace(server=jax.device_put(arrays["server"], everywhere))
            if "clients" in arrays:
                rows = np.zeros(model.clients.shape, model.clients.dtype)
                rows[self._row_of_client()] = arrays["clients"]
                model = model._replace(clients=jax.device_put(rows, model.clients.sharding))
        return model

    def _row_of_client(self) -> np.ndarray:
        D = self.mesh.size
        return (self._position % D) * self._slots + self._position // D

    def params(self, model: Model) -> Any:
        """Return the global model as the problem's own pytree."""
        with self._in_precision():
            return self.layout.unravel(model.w)

    def _deal(self, data: FederatedData, ranking: np.ndarray) -> Shard:
        """Place the client of rank r on device r mod D."""
        D, slots = self.mesh.size, self._slots
        sharded = NamedSharding(self.mesh, PartitionSpec(CLIENTS))
        # Row d * slots + j of a sharded array is slot j of device d: rank j * D + d. Padding
        # repeats a client; no plan ever names it.
        ranks = (np.arange(slots)[None, :] * D + np.arange(D)[:, None]).ravel()
        owner = ranking[np.minimum(ranks, data.N - 1)]

        def put(a: np.ndarray, dtype: Any) -> jax.Array:
            shards = [
                jax.device_put(a[rows].astype(dtype, copy=False), device)
                for rows, device in zip(np.split(owner, D), self.mesh.devices, strict=True)
            ]
            return jax.make_array_from_single_device_arrays(
                (D * slots, *a.shape[1:]), sharded, shards
            )

        return Shard(
            batch=tuple(put(a, self._dtype(a)) for a in data.batch),
            weights=put(data.weights, self.precision),
            rows=put((data.weights > 0).sum(axis=1), np.int32),
            number=put(np.arange(data.N), np.int32),
        )

    def _deal_rows(self, test: tuple[np.ndarray, ...]) -> tuple[Any, jax.Array]:
        D = self.mesh.size
        sharded = NamedSharding(self.mesh, PartitionSpec(CLIENTS))
        rows = -(-len(test[0]) // D) * D
        weights = (np.arange(rows) < len(test[0])).astype(self.precision)
        batch = tuple(pad_rows(a, rows).astype(self._dtype(a)) for a in test)
        return jax.device_put(batch, sharded), jax.device_put(weights, sharded)

    def _check_range(self, a: np.ndarray) -> None:
        """Refuse data that would become infinite, or wrap around, on the devices."""
        most = float(np.finfo(self.precision).max) if a.dtype.kind == "f" else MOST_WHOLE
        if largest(a) > most:
            raise BadInput(
                f"the data holds {largest(a):g}, beyond {self.precision}: scale it, or set "
                'precision = "float64"'
            )

    def _dtype(self, a: np.ndarray) -> Any:
        return (
            np.dtype(self.precision) if np.issubdtype(a.dtype, np.floating) else np.dtype(np.int32)
        )

    def _plan(self, clients: np.ndarray, tau: np.ndarray, p: np.ndarray) -> Plan:
        """Say which slots of which device work, how many steps they do, and with what weight."""
        D, C = self.mesh.size, self.program.chunk
        room = -(-self._slots // C) * C
        order = np.argsort(self._position[clients])
        position = self._position[clients][order]
        plan = Plan(
            slot=np.full((D, room), self._slots, np.int32),
            tau=np.zeros((D, room), np.int32),
            p=np.zeros((D, room), self.precision),
            count=np.bincount(position % D, minlength=D).astype(np.int32),
        )
        for d, count in enumerate(plan.count):
            mine = position % D == d
            plan.slot[d, :count] = position[mine] // D
            plan.tau[d, :count] = tau[order][mine]
            plan.p[d, :count] = p[order][mine]
        return plan

    def _work(
        self, active: np.ndarray, tau: np.ndarray, eta: float, gamma: float
    ) -> tuple[Plan, Step]:
        S = self.s[active].sum()
        p = self.s[active] / S
        step = Step(
            eta=eta,
            gamma=gamma,
            tau_mean=p @ tau,
            tau_harmonic=1 / (p / tau).sum(),
            share=S / self.s.sum(),
        )
        return self._plan(active, tau, p), Step(*np.array(step, self.precision))

    def _cover(self, active: np.ndarray, whole: bool) -> Plan:
        covered = np.arange(len(self.s)) if whole else active
        return self._plan(covered, np.isin(covered, active), self.s[covered])

    def _on_devices(self, make: Callable[..., Any], *args: Any) -> Any:
        """Return make(*args) on the devices; in a stage each round asks for the same."""
        key = (make.__name__, *(a.tobytes() if isinstance(a, np.ndarray) else a for a in args))
        if key not in self._kept:
            if len(self._kept) >= 8:
                self._kept.clear()
            sharding = {
                Plan: NamedSharding(self.mesh, PartitionSpec(CLIENTS)),
                Step: NamedSharding(self.mesh, PartitionSpec()),
            }
            self._kept[key] = jax.tree.map(
                lambda part: jax.device_put(part, sharding[type(part)]),
                make(*args),
                is_leaf=lambda part: type(part) in sharding,
            )
        return self._kept[key]

    def _in_precision(self) -> AbstractContextManager[Any]:
        return jax.enable_x64(self.precision == "float64")


def _measurement(sums: np.ndarray) -> Measurement:
    clients, samples, loss, grad_norm_sq, mean_sq, within = sums.tolist()
    return Measurement(
        clients=round(clients),
        samples=samples,
        loss=loss,
        grad_norm_sq=grad_norm_sq,
        noise=noise(round(clients), samples, grad_norm_sq, mean_sq, within),
    )


def _devices() -> list[Any]:
    """Return the accelerators or, on a machine without any, one CPU device for each core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with suppress(RuntimeError):  # JAX is running already: use the devices that it has
        jax.config.update("jax_num_cpu_devices", cores)
        given = os.environ.get("XLA_FLAGS", "").split()
        os.environ["XLA_FLAGS"] = " ".join((*PATIENCE, *given))
    return jax.local_devices()


def _chunk(size: int, rows: int, slots: int) -> int:
    """Return how many clients a core works on side by side.

    A step of a tiny model takes less time than starting it, so several clients share one; a
    larger one is quickest alone, where it fills the core's caches (benchmarks/round.py).
    """
    return max(1, min(16, slots, 4096 // (size * rows)))
