"""A convolutional network in the simulator and in the PyTorch loop that a user would write.

20 clients x 10 steps of batch 50 on 32x32x3: conv16-pool-conv32-pool-dense. Seconds of a round, the
best of three, taken in turn; the look is loss and gradient of all 10,000 rows. In the simulator the
network is a JAX function, and the PyTorch module of the loop itself.

    python benchmarks/convolutions.py
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from flanp import Method, prepare, problems, solvers, speeds, work
from flanp.data import from_clients
from flanp.measurement import Look
from flanp.participation import Everyone
from flanp.stopping import Never

N, S, TAU, BATCH, ETA = 20, 500, 10, 50, 0.05


def main() -> None:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((N, S, 32, 32, 3), dtype=np.float32)
    labels = rng.integers(0, 10, (N, S))
    in_jax = simulated(problems.Custom(init, loss), images, labels)
    channels_first = np.ascontiguousarray(images.transpose(0, 1, 4, 2, 3))
    module = problems.Torch(network, torch.nn.functional.cross_entropy)
    in_torch = simulated(module, channels_first, labels)
    ours = dict(zip(("flanp", "flanp, a look"), in_jax, strict=True))
    ours |= zip(("flanp on PyTorch", "flanp on PyTorch, a look"), in_torch, strict=True)
    loops = {f"PyTorch loop, {n} threads": torch_loop(images, labels, n) for n in (2, 1)}
    best = dict.fromkeys([*ours, *loops], np.inf)
    for _ in range(3):
        for name, go in {**ours, **loops}.items():
            best[name] = min(best[name], seconds(go))
    for name, took in best.items():
        print(f"{name}: {took:.2f} s")
    fastest = min(best[name] for name in loops)
    for name in ("flanp", "flanp on PyTorch"):
        print(f"{name} takes {best[name] / fastest:.2f} times as long as the quicker loop")


def seconds(go: Callable[[], None]) -> float:
    began = time.perf_counter()
    go()
    return time.perf_counter() - began


def init(key: jax.Array) -> dict[str, jax.Array]:
    shapes = {"k1": (3, 3, 3, 16), "k2": (3, 3, 16, 32), "W": (2048, 10)}
    params = {}
    for name, shape in shapes.items():
        key, mine = jax.random.split(key)
        bound = np.prod(shape[:-1]) ** -0.5
        params[name] = jax.random.uniform(mine, shape, minval=-bound, maxval=bound)
    return params | {"b1": jnp.zeros(16), "b2": jnp.zeros(32), "b": jnp.zeros(10)}


def loss(params: dict[str, jax.Array], batch: tuple[jax.Array, ...]) -> jax.Array:
    x, y = batch
    for layer in "12":
        x = lax.conv_general_dilated(
            x, params[f"k{layer}"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + params[f"b{layer}"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    z = x.reshape(len(x), -1) @ params["W"] + params["b"]
    return jnp.mean(jax.nn.logsumexp(z, axis=-1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0])


def simulated(
    problem: problems.Objective, images: np.ndarray, labels: np.ndarray
) -> tuple[Callable, Callable]:
    data = from_clients(list(zip(images, labels, strict=True)), classes=10)
    method = Method(solvers.FedAvg(ETA), Everyone(), Never(), work.Equal(tau=TAU, batch=BATCH))
    run = prepare(problem, data, method, speeds.Homogeneous())
    engine, everyone = run.engine, np.arange(N)
    models = [engine.start()]

    def round_() -> None:
        steps, numbers = np.full(N, TAU), (len(models), everyone)
        models[0] = engine.rounds.round(models[0], *numbers, steps, ETA, 1.0, float(N * S))
        jax.block_until_ready(models[0].w)

    def look() -> None:
        engine.look(models[0], everyone, Look.WHOLE)

    round_()  # compiles
    look()
    return round_, look


def network() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(2048, 10)),
    )


def torch_loop(images: np.ndarray, labels: np.ndarray, threads: int) -> Callable[[], None]:
    net = network()
    x = torch.tensor(images).permute(0, 1, 4, 2, 3).contiguous()
    y = torch.tensor(labels)
    params = list(net.parameters())

    def round_() -> None:
        torch.set_num_threads(threads)
        start = [p.detach().clone() for p in params]
        mean = [torch.zeros_like(p) for p in params]
        for i in range(N):
            with torch.no_grad():
                for p, w in zip(params, start, strict=True):
                    p.copy_(w)
            optimiser = torch.optim.SGD(params, lr=ETA)
            order = torch.randperm(S)
            for rows in order.split(BATCH)[:TAU]:
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(net(x[i, rows]), y[i, rows]).backward()
                optimiser.step()
            for m, p in zip(mean, params, strict=True):
                m += p.detach() / N
        with torch.no_grad():
            for p, m in zip(params, mean, strict=True):
                p.copy_(m)

    return round_


if __name__ == "__main__":
    main()
