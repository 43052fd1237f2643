"""What a problem is: a model and its loss, of your own if you like."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias, final

import jax

from flanp.data.federated import FederatedData
from flanp.metrics import Metric
from flanp.parts import Part, Within
from flanp.streams import takes_key

Params: TypeAlias = Any
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


class Objective(Part):
    """What is minimised, whichever library computes it."""

    l2: float = 0.0
    """Curvature that the loss has in every direction, whatever the data."""
    metrics: tuple[Metric, ...] = ()
    """What is measured on held-out data."""

    def constants(self, data: FederatedData) -> Constants | None:
        """Return mu, L and c, where they are known."""
        del data
        return None


class Problem(Objective):
    """A model and its loss in JAX. Hashable, since compiled programs are kept by problem."""

    @abstractmethod
    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Return the start model."""

    @abstractmethod
    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean loss over the rows of a batch, a differentiable scalar.

        A loss may have a third parameter, `key=None`: local steps then give it a random key of
        their own, while None asks for the loss of the model as it is, without dropout.
        """

    @property
    def draws(self) -> bool:
        """Whether the loss of a local step is random: `loss` takes a key."""
        return takes_key(self.loss)

    def condense(self, data: FederatedData) -> tuple["Problem", FederatedData]:
        """Return an equal problem on less data, for runs that use full local gradients only."""
        return self, data

    def minimiser(self, data: FederatedData) -> Params | None:
        """Return the exact minimiser w* of L_N, where it can be computed."""
        del data
        return None


@final
@dataclass(frozen=True)
class Custom(Problem):
    """Your own model: a pure loss function of (params, batch), params being any pytree.

    The loss must be the mean, over the rows of the batch, of a loss of each row alone: the
    engine relies on it to weight samples. One with dropout takes a third argument, `key`: in each
    local step a fresh random key, and None where the model is looked at, which must draw nothing.

    >>> import jax.numpy as jnp
    >>> mean = Custom(
    ...     init_fn=lambda key: jnp.zeros(()),
    ...     loss_fn=lambda params, batch: jnp.mean((params - batch[0]) ** 2),
    ... )
    """

    init_fn: Callable[[jax.Array], Params]
    """random key -> the start model."""
    loss_fn: Callable[..., jax.Array]
    """(params, batch), or (params, batch, key) -> mean loss."""
    metrics: tuple[Metric, ...] = ()
    """What is measured on held-out data."""

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Call `init_fn`."""
        del data
        return self.init_fn(key)

    def loss(self, params: Params, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Call `loss_fn`, with the key if it takes one."""
        return self.loss_fn(params, batch, key=key) if self.draws else self.loss_fn(params, batch)

    @property
    def draws(self) -> bool:
        """Whether `loss_fn` takes a key."""
        return takes_key(self.loss_fn)
