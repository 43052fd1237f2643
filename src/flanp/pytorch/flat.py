"""A PyTorch module whose parameters, and whose gradients, lie in one vector each."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from flanp.checks import BadInput, calling, qualified


class FlatModule:
    """A module that shares its memory with two vectors of NumPy's: `w` and `g`.

    A local step is then one expression on flat vectors, and nothing is copied to and fro. A model
    as one vector is w, then all buffers, which are copied, for a module may replace them.
    """

    def __init__(self, module: torch.nn.Module):
        self.module = module
        trained = [p for p in module.parameters() if p.requires_grad]
        self.size = sum(p.numel() for p in trained)
        self.carried = sum(b.numel() for b in module.buffers())
        whole = torch.cat([p.detach().reshape(-1) for p in trained])
        gradient = torch.zeros_like(whole)
        end = 0
        for p in trained:
            start, end = end, end + p.numel()
            p.data = whole[start:end].view(p.shape)
            p.grad = gradient[start:end].view(p.shape)
        self.w, self.g = whole.numpy(), gradient.numpy()

    def load(self, model: np.ndarray) -> None:
        """Take a model over; what the module counts in whole numbers is rounded."""
        self.w[:] = model[: self.size]
        end = self.size
        for buffer in self.module.buffers():
            start, end = end, end + buffer.numel()
            part = torch.from_numpy(model[start:end].copy()).view(buffer.shape)
            buffer.copy_(part if buffer.is_floating_point() else part.round())

    def read(self) -> np.ndarray:
        """Return the model as one vector."""
        buffers = (b.detach().reshape(-1).numpy() for b in self.module.buffers())
        return np.concatenate([self.w, *buffers], dtype=self.w.dtype, casting="unsafe")


def first_module(factory: Callable[[], Any], seed: int, precision: str) -> torch.nn.Module:
    """Return the start model that a factory makes; its draws depend on the seed alone."""
    if isinstance(factory, torch.nn.Module):
        raise BadInput(
            f"module is a {type(factory).__name__} already: give its class, or a function without "
            "arguments that returns one"
        )
    name = f"module ({qualified(factory)})"
    with (
        calling(name, "it must take no arguments and return an nn.Module"),
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(seed)
        made = factory()
        if not isinstance(made, torch.nn.Module):
            raise BadInput(f"{name} returns a {type(made).__name__}: it must be an nn.Module")
        module = deepcopy(made).to("cpu", getattr(torch, precision))
        parameters = list(module.parameters())
        if not any(p.requires_grad and p.numel() for p in parameters):
            raise BadInput(f"{name} has no parameter that requires a gradient: nothing is trained")
        if not all(p.isfinite().all() for p in parameters):
            raise BadInput(f"{name} starts with parameters that are NaN or infinite")
        most = 2 / torch.finfo(getattr(torch, precision)).eps
        for label, b in module.named_buffers():
            if not b.is_floating_point() and b.numel() and b.double().abs().max() > most:
                raise BadInput(
                    f"{name}: its buffer {label!r} holds whole numbers that {precision} cannot: "
                    'set precision = "float64"'
                )
    return module
