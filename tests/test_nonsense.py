"""What parts of one's own may return, and what is refused in words."""

from dataclasses import dataclass

import numpy as np
import pytest

import flanp
from flanp import Method
from flanp.checks import BadInput
from flanp.measurement import Look
from flanp.parts import field_types

PROBLEM = flanp.problems.LinearRegression()
DATA = flanp.data.Synthetic(clients=4, samples=6, dim=2)
GATE = flanp.solvers.FedGATE(eta=0.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": [(np.ones((3, 2)), np.ones(3))]}, r"data = .*from_clients"),
        ({"data": flanp.data.Synthetic}, r"data = the class Synthetic: it must be a FederatedData"),
        ({"speeds": [1.0, 2.0, 3.0, 4.0]}, r"speeds = \[1.0.*Measured"),
        ({"solver": flanp.solvers.FedGATE}, r"solver = the class FedGATE: it must be a Solver"),
        ({"method": GATE}, r"method = FedGATE.*: it must be a Method. Give it as flanp.Method"),
        ({"problem": "LinearRegression"}, r"problem = 'LinearRegression': it must be a Problem"),
        ({"participation": 3}, r"participation = 3: it must be a Participation, such as Growing"),
        ({"stop": 0.1}, r"stop = 0.1: it must be a StageRule"),
        ({"work": 10}, r"work = 10: it must be a Work"),
        ({"max_rond": 3}, r"max_rond: unknown keyword; did you mean 'max_rounds'\?"),
        ({"max_rounds": 2**40}, r"max_rounds = 1099511627776: it must be a whole number"),
        ({"seed": -1}, r"seed = -1"),
        ({"seed": 2**40}, r"seed = 1099511627776"),
        ({"precision": "float16"}, r"precision = 'float16'"),
        ({"target": {"loss": float("nan")}}, r"target.loss = nan"),
        ({"target": 0.3}, r"target = 0.3: it must be one level"),
        ({"max_time": float("nan")}, r"max_time = nan"),
    ],
)
def test_simulate_refuses_what_it_cannot_use(given, message):
    with pytest.raises(BadInput, match=message):
        simulate(**given)


def simulate(problem=PROBLEM, data=DATA, method=None, **given):
    parts = {name: given.pop(name) for name in field_types(Method) if name in given}
    return flanp.simulate(problem, data, method or Method(**{"solver": GATE, **parts}), **given)


def test_a_source_that_loads_nothing():
    with pytest.raises(BadInput, match="Nothing.load = None: it must be a FederatedData"):
        flanp.simulate(PROBLEM, Nothing(), Method(GATE))


class TooLarge(flanp.data.Source):
    def load(self, seed=0):
        raise MemoryError


def test_memory_that_runs_out_is_not_called_bad_input():
    with pytest.raises(MemoryError):
        flanp.simulate(PROBLEM, TooLarge(), Method(GATE))


def test_compare_refuses_what_it_cannot_use():
    with pytest.raises(BadInput, match="solver = the class FedGATE"):
        flanp.Method(flanp.solvers.FedGATE, None, None, None)
    with pytest.raises(BadInput, match="data = 'mnist'"):
        flanp.compare(PROBLEM, "mnist", {})
    with pytest.raises(BadInput, match="endless: unknown keyword"):
        flanp.compare(PROBLEM, DATA, {}, endless=True)
    with pytest.raises(BadInput, match="dict of flanp.Method"):
        flanp.compare(PROBLEM, DATA, [GATE])
    with pytest.raises(BadInput, match=r"methods.A = FedGATE.*it must be a Method"):
        flanp.compare(PROBLEM, DATA, {"A": GATE})
    with pytest.raises(BadInput, match="unknown keyword"):
        flanp.compare(PROBLEM, DATA, {}, sede=3)


class Everyone(flanp.participation.Participation):
    """A policy of a user's own, which goes wrong in one of two ways."""

    def __init__(self, stages=(4,), selected=None):
        self.given, self.selected = stages, selected

    def stages(self, N):
        return self.given

    def select(self, n, known):
        return known.ranking if self.selected is None else self.selected


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Everyone(stages=[]), r"Everyone.stages\(4\) = \[\]: it must be at least one stage"),
        (Everyone(stages=[3, 2]), "more clients than the one before"),
        (Everyone(stages=[5]), "1 to 4"),
        (Everyone(stages=[1.5]), "1 to 4"),
        (Everyone(selected=[0, 9]), r"Everyone.select\(n = 4\) = \[0, 9\]: it must be"),
        (Everyone(selected=[-1]), "different clients of the ranking"),
        (Everyone(selected=[1, 1]), "different clients of the ranking"),
        (Everyone(selected=[]), "different clients of the ranking"),
        (Everyone(selected=[True, False]), "different clients of the ranking"),
        (Everyone(selected=[[0, 1]]), "different clients of the ranking"),
    ],
)
def test_policies_that_return_nonsense(policy, message):
    with pytest.raises(BadInput, match=message):
        flanp.simulate(PROBLEM, DATA, Method(GATE, policy))


@dataclass(frozen=True)
class Odd(flanp.work.Work):
    answer: object = None

    def steps(self, T, s, exchange):
        return self.answer


@pytest.mark.parametrize("steps", [np.zeros(1, int), np.array([2**40]), np.array([1.5]), 3, None])
def test_work_that_returns_nonsense(steps):
    with pytest.raises(BadInput, match=r"Odd\(tau = 1.*local steps"):
        flanp.simulate(PROBLEM, DATA, Method(GATE, work=Odd(tau=1, answer=steps)))


@dataclass(frozen=True)
class Rule(flanp.stopping.StageRule):
    at: object = Look.ACTIVE
    answer: object = (True, {})

    def looks_at(self, stage, rounds):
        return self.at

    def met(self, memory, stage, rounds, seen):
        return self.answer


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule(at="everything"), r"Rule.looks_at = 'everything': it must be a flanp.stopping.Look"),
        (Rule(at=None), r"Rule.looks_at = None"),
        (Rule(answer=True), r"Rule.met failed .*\(whether the stage ends, what to remember\)"),
        (Rule(answer=("no", {})), r"Rule.met returned \('no', {}\)"),
        (Rule(answer=(np.nan, {})), r"Rule.met returned"),
        (Rule(answer=(True, 3)), r"Rule.met returned"),
        (Rule(answer=(True, {"a": np.ones(2)})), r"memory\['a'\]"),
    ],
)
def test_rules_that_return_nonsense(rule, message):
    with pytest.raises(BadInput, match=message):
        flanp.simulate(PROBLEM, DATA, Method(GATE, stop=rule))


@dataclass(frozen=True)
class Hands(flanp.data.Split):
    answer: object = None

    def deal(self, y, clients, rng):
        return self.answer


@pytest.mark.parametrize(
    "hands", [None, [[0], [0]], [[0, 1]], [[0], [9]], [[-1], [0]], [[True], [False]], [[0.5], [1]]]
)
def test_splits_that_return_nonsense(hands):
    with pytest.raises(BadInput, match=r"Hands.deal .*it must return 2 lists of row numbers"):
        flanp.data.from_arrays(np.ones((4, 1)), np.ones(4), Hands(hands), clients=2)


@dataclass(frozen=True)
class Sizes(flanp.schedules.Schedule):
    answer: object = None

    def step_sizes(self, stage, eta, gamma):
        return self.answer


@pytest.mark.parametrize("answer", [None, "ab", 0.1, (0.1,), (0.1, 1, 2), (np.nan, 1), (0, 1)])
def test_schedules_that_return_nonsense(answer):
    avg = flanp.solvers.FedAvg(eta=0.1, schedule=Sizes(answer))
    with pytest.raises(BadInput, match=r"Sizes.step_sizes failed|by the solver's schedule"):
        flanp.simulate(PROBLEM, DATA, Method(avg))


def test_policies_cannot_change_the_ranking():
    class Sorting(Everyone):
        def select(self, n, known):
            known.ranking.sort()
            return known.ranking

    with pytest.raises(BadInput, match=r"Sorting.select failed .*read-only"):
        flanp.simulate(PROBLEM, DATA, Method(GATE, Sorting()))


class Nothing(flanp.data.Source):
    def load(self, seed=0):
        return None


class Drawn(flanp.speeds.Speeds):
    def __init__(self, T):
        object.__setattr__(self, "drawn", T)

    def draw(self, ids, rng):
        return self.drawn


@pytest.mark.parametrize("T", [[1.0], [1, 2, 3, 0], [1, 2, 3, np.inf], [1, 2, 3, np.nan], "fast"])
def test_speeds_that_return_nonsense(T):
    with pytest.raises(BadInput, match=r"Drawn.draw"):
        flanp.simulate(PROBLEM, DATA, Method(GATE), speeds=Drawn(T))


def test_steps_that_no_data_could_bear():
    steep = flanp.problems.LinearRegression(l2=100.0)
    with pytest.raises(BadInput, match=r"\(l2, eta, gamma, tau\) = \(100.0, 0.1, 1.0, 10\)"):
        flanp.simulate(steep, DATA, Method(GATE))
    with pytest.raises(BadInput, match=r"\(rho, eta\) = \(30.0, 0.1\)"):
        flanp.simulate(PROBLEM, DATA, Method(flanp.solvers.FedProx(eta=0.1, rho=30.0)))
    wild = flanp.solvers.FedGATE(eta=1e9, schedule=flanp.schedules.Shrinking(1000.0))
    many = flanp.data.Synthetic(clients=1 << 12, samples=1, dim=1)
    with pytest.raises(BadInput, match="eta of stage 1 by the solver's schedule"):
        flanp.simulate(PROBLEM, many, Method(wild))


@pytest.mark.parametrize(
    ("l2", "solver", "tau"),
    [
        (0.0, flanp.solvers.FedProx(eta=0.01, rho=10.0), 5),
        (0.0, flanp.solvers.FedProx(eta=0.3, rho=30.0), 1),
        (1.0, flanp.solvers.FedAvg(eta=10.0, gamma=0.01), 1),
        (3.0, flanp.solvers.FedAvg(eta=0.4), 2),
    ],
)
def test_steps_that_data_can_bear_are_not_refused(l2, solver, tau):
    problem = flanp.problems.LinearRegression(l2)
    method = Method(solver, work=flanp.work.Equal(tau=tau))
    run = flanp.simulate(problem, DATA, method, max_rounds=5, record_every=1)
    assert run.rows[-1].loss < run.rows[0].loss


def test_a_start_at_the_minimum_is_no_mistake():
    data = flanp.data.from_clients([(np.ones((3, 2)), np.zeros(3))] * 2)
    assert str(flanp.simulate(PROBLEM, data, Method(GATE)).ended) == "accuracy reached"


def test_the_smallest_and_the_largest_seed_differ():
    losses = [
        flanp.simulate(PROBLEM, DATA, Method(GATE), seed=seed, max_rounds=1).rows[0].loss
        for seed in (0, 1, 2**32 - 1)
    ]
    assert len(set(losses)) == 3
