"""What becomes of a message on its way to the server: exact, quantised, or its largest parts."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

from flanp.checks import calling, require
from flanp.parts import Part, Within
from flanp.trees import Tree, Vector


class Compression(Part):
    """Shortens messages. Any solver can be given one.

    The methods use operations that NumPy's and JAX's arrays share, so that the same lines run in
    the simulator and at a client on a real machine.
    """

    random: ClassVar[bool] = False
    """Whether `send` draws numbers."""
    shortens: ClassVar[bool] = True
    """Whether what it sends can be packed into less."""
    biased: ClassVar[bool] = False
    """Whether what it sends differs from the message on average, too."""

    def start(self, w: Vector) -> Tree:
        """Return what a client remembers of what it has not sent; () is nothing."""
        del w
        return ()

    @abstractmethod
    def send(self, x: Vector, error: Tree, u: Vector) -> tuple[Vector, Tree]:
        """Return what the server receives of a message x, and what to remember.

        Args:
            x: the message.
            error: what was remembered.
            u: a uniform number on [0, 1) for each of x, if `random`.
        """

    @abstractmethod
    def bytes(self, size: int, each: int = 4) -> int:
        """Return how many bytes a message of so many numbers takes, which have `each`."""

    def message_bytes(self, size: int, each: int) -> int:
        """Return `bytes(size, each)`, after a look at whether a run can use it."""
        name, expected = f"{type(self).__name__}.bytes", "a whole number, 0 or more"
        with calling(name, f"it must take (size, each) and return {expected}"):
            number = self.bytes(size, each)
            ok = not isinstance(number, bool) and number >= 0 and int(number) == number
        require(bool(ok), f"{name}({size}, {each})", number, expected)
        return int(number)

    def variance(self, size: int) -> float:
        """Return omega: E||C(x) - x||^2 <= omega ||x||^2, for an unbiased C."""
        del size
        return 0.0


@final
@dataclass(frozen=True)
class Exact(Compression):
    """Messages arrive as they are."""

    shortens: ClassVar[bool] = False

    def send(self, x: Vector, error: Tree, u: Vector) -> tuple[Vector, Tree]:
        """Return x."""
        del u
        return x, error

    def bytes(self, size: int, each: int = 4) -> int:
        """Return 4 d, or 8 d of double precision."""
        return each * size


@final
@dataclass(frozen=True)
class QSGD(Compression):
    """Each number as one of s levels of the norm, rounded at random so that the mean is right.

        Q(x)_j = ||x|| sign(x_j) l_j / s,  l_j = floor(s |x_j| / ||x|| + u_j)

    With b bits a number, one of them its sign, there are s = 2^(b-1) - 1 levels above zero. The
    error is up to omega = min(d / s^2, sqrt(d) / s) times the message: solvers that do not make up
    for it, all but DIANA, need enough bits that this stays below one or so, or small steps.

    Reference: Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and
    Encoding, NeurIPS 2017; in federated learning FedPAQ (arXiv:1909.13014) and FedCOMGATE.
    """

    bits: Annotated[int, Within(2, 16)] = 4
    random: ClassVar[bool] = True

    @property
    def levels(self) -> int:
        """Return s."""
        return 2 ** (self.bits - 1) - 1

    def send(self, x: Vector, error: Tree, u: Vector) -> tuple[Vector, Tree]:
        """Return Q(x)."""
        xp, s = x.__array_namespace__(), self.levels
        norm = xp.sqrt(xp.sum(x * x))
        scale = xp.where(norm > 0, norm, xp.ones_like(norm))
        level = xp.floor(s * xp.abs(x) / scale + u)
        return (norm / s) * xp.sign(x) * level, error

    def bytes(self, size: int, each: int = 4) -> int:
        """Return d b / 8, and the norm."""
        return math.ceil(size * self.bits / 8) + each

    def variance(self, size: int) -> float:
        """Return min(d / s^2, sqrt(d) / s)."""
        return min(size / self.levels**2, math.sqrt(size) / self.levels)


@final
@dataclass(frozen=True)
class TopK(Compression):
    """The largest numbers only; what is left out is remembered and added to the next message.

    A solver with a state at the clients would be led astray by messages that lag behind: it is
    refused, but for DIANA, whose own memories take the place of this one.

    Reference: Stich et al., Sparsified SGD with Memory, NeurIPS 2018.
    """

    biased: ClassVar[bool] = True

    share: Annotated[float, Within(0, 1, above=True)] = 0.1
    """How many of the numbers are sent."""

    def start(self, w: Vector) -> Tree:
        """Return e_i = 0."""
        return 0 * w

    def send(self, x: Vector, error: Tree, u: Vector) -> tuple[Vector, Tree]:
        """Return the k largest of x + e_i, and the rest of it as the new e_i."""
        del u
        whole = x + error
        xp = whole.__array_namespace__()
        size = xp.abs(whole)
        least = xp.sort(size)[-self.kept(size.shape[0])]
        sent = xp.where(size >= least, whole, xp.zeros_like(whole))
        return sent, whole - sent

    def kept(self, size: int) -> int:
        """Return k."""
        return max(1, math.ceil(self.share * size))

    def bytes(self, size: int, each: int = 4) -> int:
        """Return the numbers that are sent, and four for each one's place."""
        return (each + 4) * self.kept(size)
