"""Linear regression, whose constants and minimiser are known."""

from dataclasses import dataclass, replace
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from flanp.checks import BadInput
from flanp.data.federated import FederatedData
from flanp.problems.base import MOST_COLUMNS, Batch, Constants, Params, Penalty, Problem


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


def _reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return a model near the minimiser, in numbers that float32 holds exactly."""
    A = x.T @ x / len(x)
    A += 1e-9 * np.trace(A) / len(A) * np.eye(len(A))
    try:
        w = np.linalg.solve(A, x.T @ y / len(x))
    except np.linalg.LinAlgError:
        w = np.zeros(len(A))
    return w.astype(np.float32).astype(np.float64)
