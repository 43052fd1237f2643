"""Which client lies where: dealt to the devices like cards, fast to slow."""

import os
from contextlib import suppress
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flanp.cores import usable_cores
from flanp.data.federated import FederatedData, pad_rows
from flanp.simulator.measuring import Covered
from flanp.simulator.program import CLIENTS, Shard
from flanp.simulator.rounds import Seats

PATIENCE = (
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=604800",
    "--xla_cpu_collective_call_terminate_timeout_seconds=604800",
)
"""XLA ends the process when a device waits 40 seconds for another that has more clients."""


class Placement:
    """The client of rank r is in slot r // D of device r mod D, so any n fastest are spread evenly.

    Arrays with a row for each client have the D devices' slots one after the other.
    """

    def __init__(self, ranking: np.ndarray, precision: str, devices: int | None = None):
        """Deal the clients, given fastest first."""
        N = len(ranking)
        used = local_devices()[: min(N, devices or N)]
        self.N, self.precision = N, np.dtype(precision)
        self.mesh = Mesh(np.array(used), (CLIENTS,))
        self.D = len(used)
        self.slots = -(-N // self.D)
        self.on_clients = NamedSharding(self.mesh, PartitionSpec(CLIENTS))
        self.everywhere = NamedSharding(self.mesh, PartitionSpec())
        self._rank = np.empty(N, int)
        self._rank[ranking] = np.arange(N)
        # Padding repeats a client; nothing ever names it.
        ranks = (np.arange(self.slots)[None, :] * self.D + np.arange(self.D)[:, None]).ravel()
        self._owner = ranking[np.minimum(ranks, N - 1)]
        self.row_of_client = (self._rank % self.D) * self.slots + self._rank // self.D

    @property
    def rows(self) -> int:
        """How many rows an array of clients has."""
        return self.D * self.slots

    def put(self, a: np.ndarray) -> jax.Array:
        """Return an array that each device holds."""
        return jax.device_put(a, self.everywhere)

    def put_rows(self, a: np.ndarray) -> jax.Array:
        """Return an array of which each device holds its clients' rows."""
        return jax.device_put(a, self.on_clients)

    def deal(self, data: FederatedData) -> Shard:
        """Put the clients' data on their devices."""
        return Shard(
            batch=tuple(self._dealt(a, self.dtype(a)) for a in data.batch),
            weights=self._dealt(data.weights, self.precision),
            rows=self._dealt((data.weights > 0).sum(axis=1), np.dtype(np.int32)),
            number=self._dealt(np.arange(self.N), np.dtype(np.int32)),
        )

    def deal_rows(self, test: tuple[np.ndarray, ...]) -> tuple[tuple[jax.Array, ...], jax.Array]:
        """Spread held-out rows over the devices; return them and the weight of each."""
        rows = -(-len(test[0]) // self.D) * self.D
        weights = (np.arange(rows) < len(test[0])).astype(self.precision)
        batch = tuple(pad_rows(a, rows).astype(self.dtype(a)) for a in test)
        return jax.device_put(batch, self.on_clients), jax.device_put(weights, self.on_clients)

    def dtype(self, a: np.ndarray) -> np.dtype:
        """Return the type that an array has on the devices."""
        return self.precision if np.issubdtype(a.dtype, np.floating) else np.dtype(np.int32)

    def seats(
        self, clients: np.ndarray, tau: np.ndarray, length: np.ndarray, p: np.ndarray, chunk: int
    ) -> Seats:
        """Say which slots of which device work, how many steps they do, and with what weight."""
        steps = tau.astype(np.int32), length.astype(self.precision)
        return Seats(*self._spread(clients, chunk, *steps, p.astype(self.precision)))

    def covered(
        self, clients: np.ndarray, active: np.ndarray, s: np.ndarray, chunk: int
    ) -> Covered:
        """Say which slots of which device a measurement covers, and who of them is active."""
        inside = active.astype(np.int32)
        return Covered(*self._spread(clients, chunk, inside, s.astype(self.precision)))

    def at_seats(self, clients: np.ndarray, values: np.ndarray, chunk: int) -> np.ndarray:
        """Return one row for each seat, on each device, of values by client."""
        out = np.zeros((self.D, self._room(chunk), *values.shape[1:]), values.dtype)
        for d, mine in enumerate(self._by_device(clients)):
            out[d, : len(mine)] = values[mine]
        return out

    def from_seats(self, clients: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what `at_seats` was given."""
        values = np.empty((len(clients), *rows.shape[2:]), rows.dtype)
        for d, mine in enumerate(self._by_device(clients)):
            values[mine] = rows[d, : len(mine)]
        return values

    def _spread(self, clients: np.ndarray, chunk: int, *columns: np.ndarray) -> list[Any]:
        """Return the slots, the columns and the number of some clients by device."""
        slot = np.full((self.D, self._room(chunk)), self.slots, np.int32)
        count = np.zeros(self.D, np.int32)
        for d, mine in enumerate(self._by_device(clients)):
            count[d] = len(mine)
            slot[d, : len(mine)] = self._rank[clients[mine]] // self.D
        return [slot, *(self.at_seats(clients, column, chunk) for column in columns), count]

    def _by_device(self, clients: np.ndarray) -> list[np.ndarray]:
        """Return for each device which of some clients are there, fastest first."""
        order = np.argsort(self._rank[clients])
        device = self._rank[clients][order] % self.D
        return [order[device == d] for d in range(self.D)]

    def _room(self, chunk: int) -> int:
        return -(-self.slots // chunk) * chunk

    def _dealt(self, a: np.ndarray, dtype: np.dtype) -> jax.Array:
        shards = [
            jax.device_put(a[rows].astype(dtype, copy=False), device)
            for rows, device in zip(np.split(self._owner, self.D), self.mesh.devices, strict=True)
        ]
        shape = (self.rows, *a.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, self.on_clients, shards)


def local_devices() -> list[Any]:
    """Return the accelerators or, on a machine without any, one CPU device for each core."""
    with suppress(RuntimeError):  # JAX is running already: use the devices that it has
        jax.config.update("jax_num_cpu_devices", len(usable_cores()))
        given = [f for f in os.environ.get("XLA_FLAGS", "").split() if f not in PATIENCE]
        os.environ["XLA_FLAGS"] = " ".join((*PATIENCE, *given))
    return jax.local_devices()


def chunk_size(size: int, rows: int, slots: int) -> int:
    """Return how many clients a core works on side by side.

    A step of a tiny model takes less time than starting it, so several clients share one; a
    larger one is quickest alone, where it fills the core's caches (benchmarks/round.py).
    """
    return max(1, min(16, slots, 4096 // (size * rows)))
