"""Small modules and data that the tests of the PyTorch backend share."""

import random

import numpy as np
import torch
from torch import nn

from flanp import Method, prepare, speeds
from flanp.data import from_clients
from flanp.participation import Growing
from flanp.patience import All
from flanp.problems import Torch
from flanp.solvers import FedGATE
from flanp.stopping import FixedRounds
from flanp.work import Equal

cross_entropy = nn.functional.cross_entropy


def labelled(sizes=(7, 12, 9, 20), seed=0):
    """Return clients that differ in rows, with three classes and held-out rows."""
    rng = np.random.default_rng(seed)

    def rows(n):
        x = rng.standard_normal((n, 6)).astype(np.float32)
        return x, np.argmax(x[:, :3] + 0.3 * rng.standard_normal((n, 3)), axis=1)

    return from_clients([rows(n) for n in sizes], test=rows(30), classes=3)


class Plain(nn.Sequential):
    """Two layers."""

    def __init__(self):
        super().__init__(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


class Realistic(nn.Module):
    """With dropout, BatchNorm's buffers and counter, masks, and a layer that is not trained."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.hidden = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(5, 3)
        self.register_buffer("mask", torch.tensor([-torch.inf, 0.0]))
        self.register_buffer("used", torch.tensor([True, False]))

    def forward(self, x):
        return self.head(self.hidden(self.frozen(x)))


class Noisy(nn.Module):
    """Draws in looks, too, and from three generators."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        scale = 1 + 0.1 * random.random() + 0.1 * np.random.random()  # noqa: NPY002
        return nn.functional.dropout(self.layer(x), 0.2) * scale


def run(module=Plain, solver=FedGATE(eta=0.1), data=None, loss=cross_entropy, **options):  # noqa: B008
    """Return a run of FLANP with mini-batches."""
    parts = {"participation": Growing(2), "stop": FixedRounds(2), "patience": All()}
    parts["work"] = Equal(tau=3, batch=5)  # leaves nobody with a batch of one, as BatchNorm needs
    method = Method(solver, **{name: options.pop(name, part) for name, part in parts.items()})
    problem = Torch(module, loss, **options.pop("problem", {}))
    options = {"speeds": speeds.Exponential(), "max_rounds": 8, "devices": 2, **options}
    return prepare(problem, data or labelled(), method, **options)


def trained(run):
    """Return the last row and the model of a run to its end."""
    history = run.to_the_end()
    return history.rows[-1], {name: t.numpy() for name, t in history.params.items()}


def same(a, b):
    """Whether two state dicts are equal, bit for bit."""
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
