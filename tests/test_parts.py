"""Parts say what they take, in the same words from Python and from a configuration."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

import flanp
from flanp.checks import BadInput
from flanp.parts import Part, Within, conform


@dataclass(frozen=True)
class Mine(Part):
    count: Annotated[int, Within(1, 9)] = 1
    share: Annotated[float, Within(0, 1, above=True)] = 0.5
    widths: tuple[Annotated[int, Within(1, 9)], ...] = ()
    anything: object = None


@dataclass(frozen=True)
class Unresolved(Part):
    field: "NotImported" = 1  # noqa: F821


def test_values_are_brought_to_their_types():
    part = Mine(count=np.int64(3), share=1, widths=[1, 2])
    assert (part.count, part.share, part.widths) == (3, 1.0, (1, 2))
    assert type(part.count) is int
    assert type(part.share) is float
    assert Mine(share=np.float32(0.5)).share == 0.5
    assert Mine(widths=np.array([4, 5])).widths == (4, 5)
    assert Unresolved("x").field == "x"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, r"count = 0: it must be a whole number from 1 to 9"),
        ({"count": True}, r"count = True"),
        ({"count": 2.0}, r"count = 2.0"),
        ({"count": np.float64(3.5)}, r"count = 3.5: "),
        ({"count": None}, r"count = None"),
        ({"share": 0}, r"share = 0.0: it must be a number above 0 to 1"),
        ({"share": float("nan")}, r"share = nan"),
        ({"share": "0.5"}, r"share = '0.5'"),
        ({"share": 10**400}, r"share = a whole number of about 400 digits"),
        ({"share": np.ones(2)}, r"share = array"),
        ({"widths": [1, 0]}, r"widths\[1\] = 0: it must be a list, each a whole number"),
        ({"widths": 3}, r"widths = 3"),
        ({"cuont": 1}, r"cuont: unknown key; did you mean 'count'\?"),
    ],
)
def test_what_does_not_fit_is_refused(values, message):
    with pytest.raises(BadInput, match=message):
        Mine(**values)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(BadInput, match=r"(?s)count = 0.*share = 2.0"):
        Mine(count=0, share=2)


def test_calls_that_lack_something_or_have_too_much():
    with pytest.raises(BadInput, match="eta: it is missing"):
        flanp.solvers.FedGATE()
    with pytest.raises(BadInput, match="takes 2 arguments in order, not 3"):
        flanp.participation.Growing(1, 2.0, 3)
    with pytest.raises(BadInput, match="a value twice"):
        flanp.participation.Growing(1, n0=1)


def test_other_types_take_anything():
    assert conform(3, list[int]) == 3
