"""Finding each method's own best knobs, on seeds that are not used afterwards."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from flanp.checks import BadInput, nearest, require
from flanp.method import Method
from flanp.parts import field_types


class OutOfReach(BadInput):
    """No value of any knob that was tried leads to the target."""


class Attempt(NamedTuple):
    """What came of a run."""

    time: float
    """To the target; infinite if it was not reached, NaN if the run diverged."""
    gap: float = 1.0
    """If it was not reached: the best value over the target's, above 1."""


Run = Callable[[Method, int, float], Attempt]
"""(method, seed, limit) -> what came of it by that time."""

ETA, TAU = "solver.eta", "work.tau"
GRIDS: dict[str, tuple[float, ...]] = {
    "solver.eta": tuple(2.0 ** (k / 4) for k in range(-48, 17)),
    "solver.gamma": (0.25, 0.5, 1.0, 2.0, 4.0),
    "solver.alpha": (0.1, 0.2, 0.4, 0.6, 0.8, 1.0),
    "solver.rho": (0.05, 0.1, 0.2, 0.5, 1.0),
    "solver.K": (1, 2, 5, 10, 20, 50, 100),
    "solver.S": (1, 2, 5, 10, 20, 50, 100),
    "solver.R": (1, 2, 5, 10, 20, 50, 100, 200),
    "solver.cap": (1.0, 2.0, 3.0, 5.0, 10.0),
    "work.tau": (1, 2, 5, 10, 20, 50),
    "work.limit": (1, 2, 3, 5, 10),
    "participation.n0": (1, 2, 4, 8, 16, 32),
    "participation.growth": (1.5, 2.0, 3.0, 4.0, 8.0),
    "participation.k": (2, 4, 8, 16, 32, 64),
    "patience.share": (0.3, 0.5, 0.7, 0.8, 0.9, 1.0),
}
"""The values that are tried of a knob for which none are given."""
PASSES = 2
"""How often each knob is looked at again after the others have changed."""
STARTS, FEW = 2, 3
"""From how many places the search begins, where there are more than a few knobs."""
LONG, STRIDE = 20, 4
"""Of a list longer than that every fourth value is tried first, then those between."""
FAR = 1e3
"""What is added to the score of a run that misses the target; its logarithmic gap tells how far."""
SLACK = 1.5
"""A run that takes so many times the best one's time on the same seed is not gone on with."""


class Tuned(NamedTuple):
    """What tuning found."""

    method: Method
    knobs: dict[str, float]
    """The values that were chosen."""
    time: float
    """Geometric mean of the times to the target on the tuning seeds."""
    runs: int
    """How many runs it took."""


def knobs_of(
    method: Method, given: Sequence[str] | Mapping[str, Sequence[float]], N: int
) -> dict[str, list[float]]:
    """Return the values to try of each knob that a method has.

    Knobs are fields of its parts, such as "solver.eta", or "eta" for short. Those that are given
    without values have some of their own (`GRIDS`). What a method does not have, others may.
    """
    values = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, ())
    paths = {path.split(".")[1]: path for path in GRIDS}
    knobs: dict[str, list[float]] = {}
    for name, tried in values.items():
        path = name if "." in name else paths.get(name, name)
        part, _, attribute = path.partition(".")
        if path not in GRIDS and (part not in field_types(Method) or not attribute):
            raise BadInput(f"tune: there is no knob {name!r}{nearest(name, [*paths, *GRIDS])}")
        if attribute not in {f.name for f in fields(getattr(method, part))}:
            continue
        if getattr(getattr(method, part), attribute) is None:
            continue
        if path == TAU and method.work.chooses_tau:
            continue
        if not isinstance(given, Mapping):
            tried = GRIDS.get(path, ())
        good = isinstance(tried, list | tuple) and all(
            isinstance(v, int | float) and 0 < v < math.inf for v in tried
        )
        require(good and len(tried) > 0, f"tune.{name}", tried, "a list of values to try, above 0")
        numbers = [float(v) for v in tried]
        kind = type(getattr(getattr(method, part), attribute))
        most = N if path in ("participation.n0", "participation.k") else math.inf
        knobs[path] = sorted({kind(v) for v in numbers if v <= most})
    return knobs


def with_knobs(method: Method, values: Mapping[str, float]) -> Method:
    """Return a method with some fields of its parts changed.

    >>> from flanp.solvers import FedGATE
    >>> with_knobs(Method(FedGATE(eta=0.1)), {"solver.eta": 0.5, "work.tau": 3}).work.tau
    3
    """
    for path, value in values.items():
        part, _, attribute = path.partition(".")
        method = replace(method, **{part: replace(getattr(method, part), **{attribute: value})})
    return method


def tune(
    run: Run,
    method: Method,
    knobs: Mapping[str, Sequence[float]],
    seeds: Sequence[int],
    limit: float = math.inf,
) -> Tuned:
    """Return the method with the knobs with which it reaches its target soonest.

    From the best of every other tau on (the two best, where there are many knobs), each knob goes
    up or down along its values as long as that helps; for each value of another knob, eta is looked
    for anew. A run is given up when it cannot be the best any more.

    Args:
        run: runs a method on a seed and returns the time to the target.
        method: where to start.
        knobs: the values to try, by path.
        seeds: on which to try them; they must not be used for anything else.
        limit: the longest time that a run may take.
    """
    search = Search(run, method, {k: list(v) for k, v in knobs.items()}, seeds, limit)
    best = search.found()
    if not search.score(best) < FAR:
        raise OutOfReach(
            f"tune: with no value of {', '.join(knobs) or 'any knob'} that was tried does the run "
            f"reach its target within {limit:g} seconds. Give other values, more time, or a target "
            "that can be reached"
        )
    chosen = {path: search.knobs[path][i] for path, i in best.items()}
    return Tuned(with_knobs(method, chosen), chosen, math.exp(search.score(best)), search.runs)


Place = dict[str, int]
"""Where each knob stands: the number of its value."""


@dataclass
class Search:
    """A walk along the values of several knobs."""

    run: Run
    method: Method
    knobs: dict[str, list[float]]
    seeds: Sequence[int]
    limit: float
    runs: int = 0
    _scores: dict[tuple[int, ...], float] = field(default_factory=dict)
    _best: list[float] = field(default_factory=list)
    """The times of the best place on each seed."""

    def found(self) -> Place:
        """Return the best place."""
        here = min((self._improved(start) for start in self._starts()), key=self._rank)
        for path in self.knobs:
            here = self._finer(path, self._finer(path, here, STRIDE // 2), STRIDE // 4)
        return here

    def score(self, place: Place) -> float:
        """Return the mean logarithm of the time; NaN where the run diverges.

        Where the target is missed it is larger than any of these: the less, the more seeds came
        before that one, and the nearer the run has come.
        """
        key = tuple(place.values())
        if key not in self._scores:
            self._scores[key] = self._tried(place)
        return self._scores[key]

    def _tried(self, place: Place) -> float:
        method = with_knobs(self.method, {p: self.knobs[p][i] for p, i in place.items()})
        times: list[float] = []
        for j, seed in enumerate(self.seeds):
            limit = min(self.limit, SLACK * self._best[j] if self._best else math.inf)
            self.runs += 1
            attempt = self.run(method, seed, limit)
            if math.isinf(attempt.time):
                return FAR * (len(self.seeds) - j) + math.log(max(attempt.gap, 1.0))
            times.append(attempt.time)
            if math.isnan(attempt.time):
                return math.nan
        score = sum(math.log(t) for t in times) / len(times)
        if not self._best or score < sum(math.log(t) for t in self._best) / len(self._best):
            self._best = times
        return score

    def _eta(self, place: Place) -> Place:
        """Return a place with the best eta beside it."""
        if ETA not in self.knobs:
            return place
        here = place
        stride = self._stride(ETA)
        while math.isnan(self.score(here)) and here[ETA] >= stride:  # diverges: shorter steps
            here = here | {ETA: here[ETA] - stride}
        return self._climb(ETA, here, lambda place: place, stride)

    def _starts(self) -> list[Place]:
        """Return where to begin: the best of every other tau, for between two there may be a hill.

        tau decides which values of the others are good.
        """
        own = {path: self._nearest(path) for path in self.knobs}
        if TAU not in self.knobs:
            return [self._eta(own)]
        some = range(own[TAU] % 2, len(self.knobs[TAU]), 2)
        starts = (self._finer(ETA, self._eta(own | {TAU: i}), STRIDE // 2) for i in some)
        count = STARTS if len(self.knobs) > FEW else 1
        return sorted(starts, key=self._rank)[:count]

    def _improved(self, here: Place) -> Place:
        """Return where one knob after the other leads to."""
        for _ in range(PASSES):
            before = here
            for path in self.knobs:
                if path != ETA:
                    here = self._along(path, here)
            if here == before:
                break
        return here

    def _rank(self, place: Place) -> float:
        score = self.score(place)
        return math.inf if math.isnan(score) else score

    def _finer(self, path: str, here: Place, stride: int) -> Place:
        """Go along a long list of values in shorter strides than before."""
        if path not in self.knobs or self._stride(path) <= stride:
            return here
        return self._climb(path, here, lambda place: place, stride)

    def _along(self, path: str, place: Place) -> Place:
        return self._climb(path, place, self._eta, self._stride(path))

    def _stride(self, path: str) -> int:
        return STRIDE if len(self.knobs[path]) > LONG else 1

    def _climb(
        self, path: str, here: Place, settle: Callable[[Place], Place], stride: int
    ) -> Place:
        """Go up or down along a knob as long as that helps."""
        start = here
        for step in (stride, -stride):
            while 0 <= here[path] + step < len(self.knobs[path]):
                there = settle(here | {path: here[path] + step})
                if not _better(self.score(there), self.score(here)):
                    break
                here = there
            if _better(self.score(here), self.score(start)):
                return here
            here = start
        return here

    def _nearest(self, path: str) -> int:
        part, _, attribute = path.partition(".")
        own: Any = getattr(getattr(self.method, part), attribute)
        values = self.knobs[path]
        return min(range(len(values)), key=lambda i: abs(math.log(values[i] / own)))


def _better(a: float, b: float) -> bool:
    """Whether one score beats another; one that diverges beats none."""
    return not math.isnan(a) and (math.isnan(b) or a < b)
