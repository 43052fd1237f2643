"""Random streams: each use of a seed has its own, so that none depends on another."""

import inspect
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np

from flanp.parts import Seed, check_is


class Stream(IntEnum):
    """What a stream of random numbers is for."""

    SPEEDS = 0
    JITTER = 1
    SPLIT = 2
    SYNTHETIC = 3
    DIGITS = 4
    CSV = 5
    PARTICIPATION = 6
    EVALUATION = 7
    PROBE = 8
    CHANGE = 9
    AVAILABILITY = 10
    NETWORK = 11
    DROPOUTS = 12
    FEMNIST = 13


ORDER, NOISE, DROPOUT = 1, 2, 3
"""What the keys of a client's rounds are for: its order of samples, its compression's numbers, and
what its loss, or its module, draws. The simulator and the clients on real machines make the same
ones."""


def generator(seed: int, stream: Stream, *more: int) -> np.random.Generator:
    """Return the generator of a stream; `more` numbers, such as the round, divide it further.

    >>> bool(generator(0, Stream.SPEEDS).random() == generator(0, Stream.JITTER).random())
    False
    """
    if type(seed) is not int or not 0 <= seed < 2**32:  # each round asks: only if in doubt
        seed = check_is("seed", seed, Seed)
    return np.random.default_rng([seed, stream, *more])


def takes_key(loss: Callable[..., Any]) -> bool:
    """Whether a loss draws random numbers, as with dropout: one of its parameters is `key`.

    >>> takes_key(lambda params, batch: 0.0), takes_key(lambda params, batch, key: 0.0)
    (False, True)
    """
    try:
        return "key" in inspect.signature(loss).parameters
    except (TypeError, ValueError):  # some built-in functions do not say what they take
        return False
