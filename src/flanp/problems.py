"""What is minimised: linear and logistic regression, an MLP, and any model of your own."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from flanp.checks import BadInput, require
from flanp.data.federated import FederatedData
from flanp.memory import require_room
from flanp.parts import Part, Within

Params = Any
"""A model: any pytree of floating-point arrays."""
Batch = tuple[jax.Array, ...]
"""Rows of samples: a tuple of arrays with the same leading length."""


Penalty = Annotated[float, Within(0, 1e6)]
"""Weight of the squared norm of the model in its loss."""
MOST_COLUMNS = 2000
"""Up to so many columns, normal equations are solved and eigenvalues found in a few seconds."""


class Constants(NamedTuple):
    """The constants of a convex problem's risk L_N."""

    mu: float
    """Strong convexity."""
    L: float
    """Smoothness."""
    c: float | None = None
    """Constant of the statistical accuracy V_ns = c/(n s), where it is known."""

    @property
    def kappa(self) -> float:
        """Condition number, L/mu."""
        return self.L / self.mu


class Problem(Part):
    """A model and its loss. Hashable, since compiled programs are kept by problem."""

    metric_name: str | None = None
    """What `metric` measures on held-out data; None if there is nothing to measure."""
    higher_is_better: bool | None = None
    """The metric's direction, without which no target can be set on it."""
    l2: float = 0.0
    """Curvature that the loss has in every direction, whatever the data."""

    @abstractmethod
    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Return the start model."""

    @abstractmethod
    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean loss over the rows of a batch, a differentiable scalar."""

    def metric(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean metric over the rows of a held-out batch."""
        raise NotImplementedError

    def condense(self, data: FederatedData) -> tuple["Problem", FederatedData]:
        """Return an equal problem on less data, for runs that use full local gradients only."""
        return self, data

    def constants(self, data: FederatedData) -> Constants | None:
        """Return mu, L and c, where they are known."""
        del data
        return None

    def minimiser(self, data: FederatedData) -> Params | None:
        """Return the exact minimiser w* of L_N, where it can be computed."""
        del data
        return None


@final
@dataclass(frozen=True)
class Custom(Problem):
    """Your own model: a pure loss function of (params, batch), params being any pytree.

    The loss must be the mean, over the rows of the batch, of a loss of each row alone: the
    engine relies on it to weight samples.

    >>> mean = Custom(
    ...     init_fn=lambda key: jnp.zeros(()),
    ...     loss_fn=lambda params, batch: jnp.mean((params - batch[0]) ** 2),
    ... )
    """

    init_fn: Callable[[jax.Array], Params]
    """random key -> the start model."""
    loss_fn: Callable[[Params, Batch], jax.Array]
    """(params, batch) -> mean loss."""
    metric_fn: Callable[[Params, Batch], jax.Array] | None = None
    """(params, batch) -> mean metric on held-out rows."""
    metric_name: str | None = "metric"
    higher_is_better: bool | None = None
    """Whether a higher metric is better (accuracy) or a lower one (error)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric_fn is None:
            object.__setattr__(self, "metric_name", None)

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Call `init_fn`."""
        del data
        return self.init_fn(key)

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Call `loss_fn`."""
        return self.loss_fn(params, batch)

    def metric(self, params: Params, batch: Batch) -> jax.Array:
        """Call `metric_fn`."""
        assert self.metric_fn is not None
        return self.metric_fn(params, batch)


@final
@dataclass(frozen=True)
class LinearRegression(Problem):
    """Half the mean squared error of x.w, plus l2/2 ||w||^2; the start is w = 0."""

    l2: Penalty = 0.0

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Return zero."""
        del key
        shapes = [a.shape[2:] for a in data.batch]
        if len(shapes) != 2 or len(shapes[0]) != 1 or shapes[1] != ():
            raise BadInput(
                f"LinearRegression needs a row of inputs and one number as target for each sample; "
                f"the data has rows of shapes {shapes}"
            )
        return jnp.zeros(shapes[0])

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean of (x.w - y)^2 / 2 + l2/2 ||w||^2."""
        x, y = batch
        return jnp.mean((x @ params - y) ** 2) / 2 + self.l2 / 2 * params @ params

    def condense(self, data: FederatedData) -> tuple[Problem, FederatedData]:
        """Replace each half of a client's rows by its Gram matrix, where that is smaller."""
        x, y = (a.astype(np.float64) for a in data.batch)
        if x.shape[1] <= 2 * x.shape[2]:
            return self, data
        w_0 = _reference(x[data.weights > 0], y[data.weights > 0])
        residual = y - x @ w_0
        parts = []
        for half in (np.s_[:, 0::2], np.s_[:, 1::2]):
            v = data.weights[half].astype(np.float64)
            s = v.sum(axis=1)
            vx = x[half] * v[..., None] / np.maximum(s, 1)[:, None, None]
            A = np.swapaxes(vx, 1, 2) @ x[half]
            b = (vx * residual[half][..., None]).sum(axis=1)
            rr = (v * residual[half] ** 2).sum(axis=1) / np.maximum(s, 1)
            parts.append((A, b, rr, np.broadcast_to(w_0, b.shape), s))
        *batch, s = (np.stack(p, axis=1) for p in zip(*parts, strict=True))
        return Quadratic(self.l2), replace(data, batch=tuple(batch), weights=s, test=None)

    def constants(self, data: FederatedData) -> Constants:
        """Return the extreme eigenvalues of the Hessian, and c = d sigma^2 / 2.

        With normal noise of variance sigma^2, which is estimated from the residuals, the
        minimiser over n s samples has expected excess risk d sigma^2 / (2 n s).
        """
        if data.batch[0].shape[2] > MOST_COLUMNS:
            raise BadInput(
                f"mu and c of LinearRegression are known for up to {MOST_COLUMNS:,} inputs (dim); "
                f"the data has {data.batch[0].shape[2]:,}"
            )
        x, y = (a.astype(np.float64) for a in data.samples())
        w = self._solve(x, y)
        eigenvalues = np.linalg.eigvalsh(x.T @ x / len(x)) + self.l2
        if eigenvalues[0] <= 1e-12 * eigenvalues[-1]:
            raise BadInput(
                f"linear regression on {len(x)} samples of dimension {x.shape[1]} is not strongly "
                "convex: mu = 0. Give an l2 above 0, or more samples"
            )
        sigma2 = ((y - x @ w) ** 2).sum() / max(1, len(x) - x.shape[1])
        c = x.shape[1] * sigma2 / 2
        return Constants(float(eigenvalues[0]), float(eigenvalues[-1]), float(c))

    def minimiser(self, data: FederatedData) -> Params | None:
        """Solve the normal equations, unless they are too large for that."""
        if data.batch[0].shape[2] > MOST_COLUMNS:
            return None
        x, y = (a.astype(np.float64) for a in data.samples())
        return self._solve(x, y)

    def _solve(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        A = x.T @ x / len(x) + self.l2 * np.eye(x.shape[1])
        return np.linalg.lstsq(A, x.T @ y / len(x), rcond=None)[0]


@final
@dataclass(frozen=True)
class Quadratic(Problem):
    """Linear regression on Gram matrices: rows are (A, b, rr, w_0).

    With v = w - w_0 and b, rr made of the residuals at w_0 the loss is v.A.v/2 - b.v + rr/2. At
    w_0 = 0 its terms would cancel to far below what float32 can tell apart.
    """

    l2: float = 0.0

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Return zero."""
        del key
        return jnp.zeros(data.batch[1].shape[2:])

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean over the rows."""
        A, b, rr, w_0 = batch
        v = params - w_0
        quadratic = jnp.mean(((A @ v[..., None])[..., 0] / 2 - b) * v, axis=0).sum()
        quadratic += jnp.mean(rr) / 2
        return quadratic + self.l2 / 2 * params @ params


@final
@dataclass(frozen=True)
class LogisticRegression(Problem):
    """Multinomial logistic regression with l2/2 (||W||^2 + ||b||^2), so that mu = l2."""

    l2: Penalty = 1e-3

    metric_name = "test error"
    higher_is_better = False

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Return zero."""
        del key
        C, d = _classes(data), _width(data)
        require_room(40.0 * d * C, f"classes = {C} of {d} inputs", C, "classes")
        return {"W": jnp.zeros((d, C)), "b": jnp.zeros(C)}

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean cross-entropy plus the penalty."""
        x, y = batch
        logits = _flat(x) @ params["W"] + params["b"]
        return cross_entropy(logits, y) + _penalty(self.l2, params)

    def metric(self, params: Params, batch: Batch) -> jax.Array:
        """Return the share of rows that are classified wrongly."""
        x, y = batch
        return jnp.mean(jnp.argmax(_flat(x) @ params["W"] + params["b"], axis=-1) != y)

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

    metric_name = "test error"
    higher_is_better = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.widths) <= 30, "widths", self.widths, "at most 30 layers")

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Draw uniform weights of variance 1/(3 fan-in), as PyTorch's linear layers do."""
        sizes = (_width(data), *self.widths, _classes(data))
        P = sum((fan_in + 1) * fan_out for fan_in, fan_out in zip(sizes, sizes[1:], strict=False))
        require_room(40.0 * P, f"widths = {self.widths}: {P:,} parameters", P, "parameters")
        layers = []
        for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
            key, key_W, key_b = jax.random.split(key, 3)
            bound = fan_in**-0.5
            W = jax.random.uniform(key_W, (fan_in, fan_out), minval=-bound, maxval=bound)
            b = jax.random.uniform(key_b, (fan_out,), minval=-bound, maxval=bound)
            layers.append({"W": W, "b": b})
        return layers

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean cross-entropy plus the penalty."""
        x, y = batch
        return cross_entropy(self._logits(params, x), y) + _penalty(self.l2, params)

    def metric(self, params: Params, batch: Batch) -> jax.Array:
        """Return the share of rows that are classified wrongly."""
        x, y = batch
        return jnp.mean(jnp.argmax(self._logits(params, x), axis=-1) != y)

    def _logits(self, params: Params, x: jax.Array) -> jax.Array:
        h = _flat(x)
        for layer in params[:-1]:
            h = jax.nn.relu(h @ layer["W"] + layer["b"])
        return h @ params[-1]["W"] + params[-1]["b"]


def _reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return a model near the minimiser, in numbers that float32 holds exactly."""
    A = x.T @ x / len(x)
    A += 1e-9 * np.trace(A) / len(A) * np.eye(len(A))
    try:
        w = np.linalg.solve(A, x.T @ y / len(x))
    except np.linalg.LinAlgError:
        w = np.zeros(len(A))
    return w.astype(np.float32).astype(np.float64)


def cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
    """Return the mean cross-entropy of logits (rows, classes) and labels (rows,)."""
    correct = jnp.take_along_axis(logits, y[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - correct)


def _penalty(l2: float, params: Params) -> jax.Array | float:
    if l2 == 0:
        return 0.0
    return l2 / 2 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))


def _flat(x: jax.Array) -> jax.Array:
    return x.reshape(len(x), -1)


def _width(data: FederatedData) -> int:
    return int(np.prod(data.batch[0].shape[2:]))


def _classes(data: FederatedData) -> int:
    if data.classes is None:
        raise BadInput("this problem needs labels: use data whose targets are classes")
    if len(data.batch) != 2:
        raise BadInput(
            f"this problem needs inputs and labels; the data has {len(data.batch)} arrays"
        )
    return data.classes
