"""The same model, data and start give the same numbers in PyTorch and in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'flanp[torch]'")

import torch

from flanp import Method, Metric, simulate
from flanp.oort import Oort
from flanp.participation import Everyone, FastestK, Growing
from flanp.problems import Custom, Torch
from flanp.solvers import FedAvg, FedBuff, FedGATE, FedNova, Memory, Tracking
from flanp.solvers.local import Momentum
from flanp.speeds import Exponential
from flanp.stopping import FixedRounds, Never
from flanp.work import Equal, SpeedMatched

from nets import Plain, cross_entropy, labelled


def start():
    torch.manual_seed(3)
    return Plain()


def logits(params, x):
    return (
        jnp.tanh(x @ params["0.weight"].T + params["0.bias"]) @ params["2.weight"].T
        + params["2.bias"]
    )


def loss(params, batch):
    z, y = logits(params, batch[0]), batch[1]
    return jnp.mean(jax.nn.logsumexp(z, axis=-1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0])


def error(params, batch):
    return jnp.mean(jnp.argmax(logits(params, batch[0]), axis=-1) != batch[1])


WORK = Equal(tau=4, batch=6)
METHODS = {
    "FLANP": Method(FedGATE(eta=0.3), Growing(2), FixedRounds(3), WORK),
    "FedAvg": Method(FedAvg(eta=0.3), Growing(2), FixedRounds(3), WORK),
    "momentum": Method(FedAvg(eta=0.1, local=Momentum(0.9)), Everyone(), Never(), WORK),
    "full gradients": Method(FedNova(eta=0.3), Everyone(), Never(), SpeedMatched(tau=2)),
    "memory": Method(Memory(eta=0.3, rho=0.5), FastestK(2), Never(), WORK),
    "tracking": Method(Tracking(eta=0.3), Everyone(), Never(), WORK),
    "FedBuff": Method(FedBuff(eta=0.3, K=3), Everyone(), Never(), WORK),
    "by losses": Method(FedAvg(eta=0.3), Oort(k=2), Never(), WORK),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_runs_are_those_of_the_compiled_simulator(method):
    params = {name: jnp.asarray(t.numpy()) for name, t in start().state_dict().items()}
    in_jax = Custom(lambda key: params, loss, (Metric("test_error", error, False),))
    in_torch = Torch(start, cross_entropy)
    options = {"speeds": Exponential(), "max_rounds": 8, "progress": False, "devices": 2}
    a, b = (simulate(problem, labelled(), method, **options) for problem in (in_jax, in_torch))
    assert len(a.rows) == len(b.rows) >= 7
    for ours, theirs in zip(b.rows, a.rows, strict=True):
        for name in ("round", "n", "time", "waiting", "sent", "received"):
            assert ours.value(name) == theirs.value(name)
        for name in ("loss", "grad_norm_sq", "stage_grad_norm_sq", "test_error"):
            assert ours.value(name) == pytest.approx(theirs.value(name), rel=1e-5)
    for name, tensor in b.params.items():
        np.testing.assert_allclose(tensor, a.params[name], rtol=1e-4, atol=1e-6)
