"""Random streams: each use of a seed has its own, so that none depends on another."""

from enum import IntEnum

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


ORDER, NOISE, MODULE = 1, 2, 3
"""What the keys of a client's rounds are for: its order of samples, its compression's numbers, what
a PyTorch module draws, such as dropout.
The simulator and the clients on real machines make the same ones."""


def generator(seed: int, stream: Stream, *more: int) -> np.random.Generator:
    """Return the generator of a stream; `more` numbers, such as the round, divide it further.

    >>> bool(generator(0, Stream.SPEEDS).random() == generator(0, Stream.JITTER).random())
    False
    """
    if type(seed) is not int or not 0 <= seed < 2**32:  # each round asks: only if in doubt
        seed = check_is("seed", seed, Seed)
    return np.random.default_rng([seed, stream, *more])
