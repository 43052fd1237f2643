"""Convolutional networks that classify images: a small one, and LeNet-5."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, final

import jax
import jax.numpy as jnp
from jax import lax

from flanp.checks import BadInput, require
from flanp.data.federated import FederatedData
from flanp.memory import require_room
from flanp.metrics import Metric
from flanp.parts import Within
from flanp.problems.base import Batch, Params, Penalty, Problem
from flanp.problems.classification import (
    classes_of,
    cross_entropy,
    draw_layers,
    penalty,
    share_wrong,
)

LENET_SIDE = 32
"""LeNet-5 takes images of 32 by 32, in which a digit of 28 by 28 has a frame."""


@final
@dataclass(frozen=True)
class CNN(Problem):
    """Convolutions with ReLU, each halved by max-pooling, and a dense layer, plus l2/2 ||w||^2."""

    channels: tuple[Annotated[int, Within(1, 1000)], ...] = (16, 32)
    """Features of each convolution."""
    kernel: Annotated[int, Within(1, 11)] = 3
    """Side of the convolutions' windows."""
    l2: Penalty = 0.0

    @property
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        """The share of held-out rows that are classified wrongly."""
        return (Metric("test_error", cnn_error, higher_is_better=False),)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= len(self.channels) <= 10, "channels", self.channels, "1 to 10 numbers")

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Draw uniform weights of variance 1/(3 fan-in)."""
        height, width, depth = image_shape(data.batch[0].shape[2:])
        halvings = len(self.channels)
        height, width = height >> halvings, width >> halvings
        require(
            min(height, width) > 0,
            "channels",
            self.channels,
            "fewer: each halves the image, of which nothing is left",
        )
        before = (depth, *self.channels[:-1])
        convolutions = [
            (self.kernel, self.kernel, *pair) for pair in zip(before, self.channels, strict=True)
        ]
        dense = (height * width * self.channels[-1], classes_of(data))
        return _drawn(key, [*convolutions, dense], f"channels = {self.channels}")

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean cross-entropy plus the penalty."""
        x, y = batch
        return cross_entropy(cnn_logits(params, x), y) + penalty(self.l2, params)


@final
@dataclass(frozen=True)
class LeNet(Problem):
    """LeNet-5: two convolutions with average pooling and three dense layers, with tanh.

    As it is used today: every feature of the second convolution sees all of the first's, and the
    outputs are those of a softmax. Smaller images than 32 by 32 get a frame of zeros.

    Reference: LeCun et al., Proceedings of the IEEE, 1998.
    """

    l2: Penalty = 0.0

    @property
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        """The share of held-out rows that are classified wrongly."""
        return (Metric("test_error", lenet_error, higher_is_better=False),)

    def init(self, key: jax.Array, data: FederatedData) -> Params:
        """Draw uniform weights of variance 1/(3 fan-in)."""
        *sides, depth = image_shape(data.batch[0].shape[2:])
        height, width = (((max(side, LENET_SIDE) - 4) // 2 - 4) // 2 for side in sides)
        convolutions = [(5, 5, depth, 6), (5, 5, 6, 16)]
        dense = [(height * width * 16, 120), (120, 84), (84, classes_of(data))]
        return _drawn(key, [*convolutions, *dense], f"images of {sides}")

    def loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean cross-entropy plus the penalty."""
        x, y = batch
        return cross_entropy(lenet_logits(params, x), y) + penalty(self.l2, params)


def cnn_logits(params: Params, x: jax.Array) -> jax.Array:
    """Return the logits of a `CNN`."""
    h = as_images(x)
    *convolutions, dense = params
    for layer in convolutions:
        h = _halved(jax.nn.relu(_convolved(h, layer, "SAME")), -jnp.inf, lax.max)
    return h.reshape(len(h), -1) @ dense["W"] + dense["b"]


def lenet_logits(params: Params, x: jax.Array) -> jax.Array:
    """Return the logits of a `LeNet`."""
    h = as_images(x)
    spare = [max(0, LENET_SIDE - side) for side in h.shape[1:3]]
    frame = [(rest // 2, rest - rest // 2) for rest in spare]
    h = jnp.pad(h, [(0, 0), *frame, (0, 0)])
    for layer in params[:2]:
        h = _halved(jnp.tanh(_convolved(h, layer, "VALID")), 0.0, lax.add) / 4
    h = h.reshape(len(h), -1)
    for layer in params[2:-1]:
        h = jnp.tanh(h @ layer["W"] + layer["b"])
    return h @ params[-1]["W"] + params[-1]["b"]


def cnn_error(params: Params, batch: Batch) -> jax.Array:
    """Return the share of rows that a `CNN` classifies wrongly."""
    x, y = batch
    return share_wrong(cnn_logits(params, x), y)


def lenet_error(params: Params, batch: Batch) -> jax.Array:
    """Return the share of rows that a `LeNet` classifies wrongly."""
    x, y = batch
    return share_wrong(lenet_logits(params, x), y)


def image_shape(row: tuple[int, ...]) -> tuple[int, int, int]:
    """Return height, width and channels of a row of data.

    A flat row is a square of grey, or three squares one after the other as in CIFAR-10's files.

    >>> image_shape((784,)), image_shape((3072,)), image_shape((8, 6)), image_shape((8, 6, 3))
    ((28, 28, 1), (32, 32, 3), (8, 6, 1), (8, 6, 3))
    """
    if len(row) == 3 and row[0] in (1, 3) and row[2] not in (1, 3, 4):
        raise BadInput(
            f"the data has rows of shape {list(row)}, with the channels first: move them last "
            "(np.moveaxis(x, 1, -1))"
        )
    if len(row) == 3:
        return row[0], row[1], row[2]
    if len(row) == 2:
        return row[0], row[1], 1
    for channels in (1, 3):
        side = math.isqrt(math.prod(row) // channels)
        if len(row) == 1 and row[0] == channels * side * side:
            return side, side, channels
    raise BadInput(
        f"the data has rows of shape {list(row)}, which are no images: they must be (height, "
        "width), (height, width, channels), or flat squares of one or three channels"
    )


def as_images(x: jax.Array) -> jax.Array:
    """Return rows as images (rows, height, width, channels)."""
    height, width, channels = image_shape(x.shape[1:])
    if x.ndim == 2:
        return x.reshape(len(x), channels, height, width).transpose(0, 2, 3, 1)
    return x.reshape(len(x), height, width, channels)


def _drawn(key: jax.Array, shapes: list[tuple[int, ...]], what: str) -> Params:
    P = sum(math.prod(shape) + shape[-1] for shape in shapes)
    require_room(40.0 * P, f"{what}: {P:,} parameters", P, "parameters")
    return draw_layers(key, shapes)


def _convolved(x: jax.Array, layer: Params, padding: str) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, layer["W"], (1, 1), padding, dimension_numbers=numbers)
    return y + layer["b"]


def _halved(x: jax.Array, start: float, join: Callable[..., jax.Array]) -> jax.Array:
    """Return what `join` makes of each window of two by two."""
    window = (1, 2, 2, 1)
    return lax.reduce_window(x, start, join, window, window, "VALID")
