"""Classification: multinomial logistic regression and a fully connected network."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, final

import jax
import jax.numpy as jnp
import numpy as np

from flanp.checks import BadInput, require
from flanp.data.federated import FederatedData
from flanp.memory import require_room
from flanp.metrics import Metric
from flanp.parts import Within
from flanp.problems.base import MOST_COLUMNS, Batch, Constants, Params, Penalty, Problem


@final
@dataclass(frozen=True)
class LogisticRegression(Problem):
    """Multinomial logistic regression with l2/2 (||W||^2 + ||b||^2), so that mu = l2."""

    l2: Penalty = 1e-3

    @property
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        """The share of held-out rows that are classified wrongly."""
        return (Metric("test_error", linear_error, higher_is_better=False),)

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Return zero."""
        del key
        C, d = classes_of(data), _width(data)
        require_room(40.0 * d * C, f"classes = {C} of {d} inputs", C, "classes")
        return {"W": jnp.zeros((d, C)), "b": jnp.zeros(C)}

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean cross-entropy plus the penalty."""
        x, y = batch
        return cross_entropy(linear_logits(params, x), y) + penalty(self.l2, params)

    def constants(self, data: FederatedData) -> Constants | None:
        """Return mu = l2 and L = lambda_max / 2 + l2 of the inputs' second moments.

        The Hessian of the cross-entropy in the logits is at most 1/2 (Boehning, 1992).
        """
        if self.l2 == 0 or _width(data) > 2 * MOST_COLUMNS:
            return None
        x = data.samples()[0].reshape(-1, _width(data)).astype(np.float64)
        x = np.hstack([x, np.ones((len(x), 1))])
        top = np.linalg.eigvalsh(x.T @ x / len(x))[-1]
        return Constants(self.l2, float(top / 2 + self.l2))


@final
@dataclass(frozen=True)
class MLP(Problem):
    """A fully connected network with ReLU, for classification, plus l2/2 ||weights||^2."""

    widths: tuple[Annotated[int, Within(1, 10_000_000)], ...] = (128, 64)
    """Neurons of the hidden layers."""
    l2: Penalty = 0.0

    @property
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        """The share of held-out rows that are classified wrongly."""
        return (Metric("test_error", network_error, higher_is_better=False),)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.widths) <= 30, "widths", self.widths, "at most 30 layers")

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Draw uniform weights of variance 1/(3 fan-in), as PyTorch's linear layers do."""
        sizes = (_width(data), *self.widths, classes_of(data))
        P = sum((fan_in + 1) * fan_out for fan_in, fan_out in zip(sizes, sizes[1:], strict=False))
        require_room(40.0 * P, f"widths = {self.widths}: {P:,} parameters", P, "parameters")
        return draw_layers(key, list(zip(sizes, sizes[1:], strict=False)))

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean cross-entropy plus the penalty."""
        x, y = batch
        return cross_entropy(network_logits(params, x), y) + penalty(self.l2, params)


def draw_layers(key: jax.Array, shapes: Sequence[tuple[int, ...]]) -> Params:
    """Return W and b of layers whose W have these shapes (..., outputs), uniform as PyTorch's."""
    layers = []
    for shape in shapes:
        key, key_W, key_b = jax.random.split(key, 3)
        bound = math.prod(shape[:-1]) ** -0.5
        W = jax.random.uniform(key_W, shape, minval=-bound, maxval=bound)
        b = jax.random.uniform(key_b, shape[-1:], minval=-bound, maxval=bound)
        layers.append({"W": W, "b": b})
    return layers


def linear_logits(params: Params, x: jax.Array) -> jax.Array:
    """Return the logits of a linear model."""
    return _flat(x) @ params["W"] + params["b"]


def network_logits(params: Params, x: jax.Array) -> jax.Array:
    """Return the logits of a fully connected network with ReLU."""
    h = _flat(x)
    for layer in params[:-1]:
        h = jax.nn.relu(h @ layer["W"] + layer["b"])
    return h @ params[-1]["W"] + params[-1]["b"]


def linear_error(params: Params, batch: Batch) -> jax.Array:
    """Return the share of rows that a linear model classifies wrongly."""
    x, y = batch
    return share_wrong(linear_logits(params, x), y)


def network_error(params: Params, batch: Batch) -> jax.Array:
    """Return the share of rows that a network classifies wrongly."""
    x, y = batch
    return share_wrong(network_logits(params, x), y)


def share_wrong(logits: jax.Array, y: jax.Array) -> jax.Array:
    """Return the share of rows whose largest logit is not that of their label."""
    return jnp.mean(jnp.argmax(logits, axis=-1) != y)


def cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
    """Return the mean cross-entropy of logits (rows, classes) and labels (rows,)."""
    correct = jnp.take_along_axis(logits, y[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - correct)


def penalty(l2: float, params: Params) -> jax.Array | float:
    """Return l2/2 times the squared norm of a model."""
    if l2 == 0:
        return 0.0
    return l2 / 2 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))


def _flat(x: jax.Array) -> jax.Array:
    return x.reshape(len(x), -1)


def _width(data: FederatedData) -> int:
    return int(np.prod(data.batch[0].shape[2:]))


def classes_of(data: FederatedData) -> int:
    """Return how many classes there are, of data that has inputs and labels."""
    if data.classes is None:
        raise BadInput("this problem needs labels: use data whose targets are classes")
    if len(data.batch) != 2:
        raise BadInput(
            f"this problem needs inputs and labels; the data has {len(data.batch)} arrays"
        )
    return data.classes
