"""Adaptive federated optimisation: the server takes the mean update for a gradient."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Literal, final

from flanp.parts import Within
from flanp.solvers.base import Solver, Step
from flanp.trees import Tree, Vector

Share = Annotated[float, Within(0, 0.999999)]


@final
@dataclass(frozen=True)
class FedOpt(Solver):
    """FedAvg's local steps, and an optimiser at the server: SGD, Adagrad, Adam or Yogi.

    The mean of w - w_i is the server's gradient and gamma its step size. SGD is FedAvg. The
    others are optax's: its Adam and Yogi correct the bias of a start at zero, which the paper's
    pseudocode does not, and its Adagrad divides by sqrt(v + epsilon^2), not by sqrt(v) + epsilon.

    Reference: Reddi et al., Adaptive Federated Optimization, ICLR 2021, whose epsilon = 1e-3,
    beta_1 = 0.9 and beta_2 = 0.99 are the defaults.
    """

    optimiser: Literal["sgd", "adagrad", "adam", "yogi"] = "adam"
    beta_1: Share = 0.9
    """How much of the mean gradient is remembered, by Adam and Yogi."""
    beta_2: Share = 0.99
    """How much of the squared gradients is remembered, by Adam and Yogi."""
    epsilon: Annotated[float, Within(1e-12, 1.0)] = 1e-3
    """Below which size of gradients steps shrink with them."""

    def server_start(self, w: Vector) -> Tree:
        """Return the optimiser's memory."""
        with _precision_of(w):
            return self._transform().init(w)

    def tell(self, server: Tree) -> Tree:
        """Keep the memory at the server."""
        return ()

    def server_step(self, w: Vector, server: Tree, m: Vector, step: Step) -> tuple[Vector, Tree]:
        """Return w - gamma (what the optimiser makes of eta mean(Delta_i))."""
        with _precision_of(w):
            update, server = self._transform().update(step.eta * m, server)
            return w - step.gamma * update, server

    def _transform(self) -> Tree:
        import optax  # at the server only: clients on small machines need neither it nor JAX

        if self.optimiser == "sgd":
            return optax.identity()
        if self.optimiser == "adagrad":
            return optax.scale_by_rss(0.0, self.epsilon**2)  # which stands below the root
        betas = {"b1": self.beta_1, "b2": self.beta_2, "eps": self.epsilon}
        if self.optimiser == "adam":
            return optax.scale_by_adam(**betas)
        return optax.scale_by_yogi(**betas, initial_accumulator_value=0.0)


def _precision_of(w: Vector) -> AbstractContextManager[None]:
    """Let JAX keep double precision where the model has it, as it may on real machines."""
    import jax

    context: AbstractContextManager[None] = jax.enable_x64(w.dtype == "float64")
    return context
