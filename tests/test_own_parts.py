"""Parts of one's own that pass for right ones: refused in words before the first round, or kept."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import flanp
from flanp import Method, prepare
from flanp.checks import BadInput
from flanp.compression import Compression
from flanp.history import History
from flanp.hooks import Checkpointer
from flanp.measurement import Look
from flanp.participation import Everyone, Participation
from flanp.patience import Ends, Patience
from flanp.problems import LinearRegression
from flanp.solvers import FedAvg, Solver
from flanp.solvers.local import LocalStep
from flanp.stopping import Never, StageRule

from small import SIX, short_run


@dataclass(frozen=True)
class Signs(Compression):
    number: Any = 4

    def send(self, x, error, u):
        xp = x.__array_namespace__()
        return xp.sign(x) * xp.mean(xp.abs(x)), error

    def bytes(self, size, each=4):
        return self.number


@pytest.mark.parametrize("number", [4, 4.0, np.float64(4), np.int64(4)])
def test_bytes_that_are_whole_are_written_as_such(number, tmp_path):
    simulation = short_run(FedAvg(eta=0.05, compression=Signs(number)))
    simulation.to_the_end()
    simulation.save(tmp_path)
    assert History.load(tmp_path).rows[-1].sent == 3 * 6 * 4


@pytest.mark.parametrize("number", [1.5, -1, None, float("nan"), float("inf"), "4", True, (4,)])
def test_bytes_that_are_no_number_are_refused(number):
    with pytest.raises(BadInput, match=r"Signs\.bytes"):
        short_run(FedAvg(eta=0.05, compression=Signs(number)))


@dataclass(frozen=True)
class Dithered(Compression):
    def send(self, x, error, u):
        return x + 0 * u, error

    def bytes(self, size, each=4):
        return size * each


def test_a_compression_that_draws_must_say_so():
    with pytest.raises(BadInput, match=r"Dithered\.send .*random = True"):
        short_run(FedAvg(eta=0.05, compression=Dithered()))


@dataclass(frozen=True)
class ByStage(StageRule):
    def looks_at(self, stage, rounds):
        return Look.ACTIVE

    def met(self, memory, stage, rounds, seen):
        return False, {**memory, stage.k: 1}


def test_a_rules_memory_has_texts_as_keys():
    with pytest.raises(BadInput, match=r"ByStage\.met: a key of its memory = 0"):
        short_run(stop=ByStage()).to_the_end()


class Saver(flanp.Hook):
    def __init__(self, folder):
        self.folder = folder

    def on_row(self, run, row):
        run.save(self.folder)


@pytest.mark.parametrize("options", [{"record_every": 4}, {"record_after": 2500.0}])
def test_a_hook_that_saves_each_row_saves_what_can_go_on(options, tmp_path):
    whole = short_run(max_rounds=14, **options).to_the_end()
    short_run(max_rounds=5, hooks=[Saver(tmp_path)], **options).to_the_end()
    again = short_run(max_rounds=14, resume=tmp_path, **options).to_the_end()
    assert again.rows == whole.rows


@dataclass(frozen=True)
class Local(LocalStep):
    begin: Any = None
    steps: Any = None
    lengths: Any = None

    def start(self, w):
        return self.begin(w) if self.begin else ()

    def length(self, tau):
        return self.lengths(tau) if self.lengths else tau

    def step(self, d_i, memory):
        return self.steps(d_i, memory) if self.steps else (d_i, memory)


@pytest.mark.parametrize(
    ("local", "message"),
    [
        (Local(steps=lambda d, m: (d, (d,))), r"Local\.step returned a state"),
        (Local(steps=lambda d, m: ([*d], m)), r"Local\.step returned a list"),
        (Local(steps=lambda d, m: (d * float(d[0] > 0), m)), r"Local\.step"),
        (Local(lengths=lambda tau: None), r"Local\.length"),
        (Local(lengths=lambda tau: 3), r"Local\.length"),
        (Local(lengths=lambda tau: 0 * tau), r"Local\.length"),
        (Local(lengths=lambda tau: -tau), r"Local\.length"),
        (Local(lengths=lambda tau: tau * np.nan), r"Local\.length"),
        (Local(lengths=lambda tau: 1 / 0), r"Local\.length failed"),
    ],
)
def test_local_steps_that_no_run_can_use(local, message):
    with pytest.raises(BadInput, match=message):
        short_run(FedAvg(eta=0.05, local=local))


class ListStep(Solver):
    def server_step(self, w, server, m, step):
        return [*(w - step.eta * m)], server


def test_a_model_must_be_an_array():
    with pytest.raises(BadInput, match=r"ListStep\.server_step returned a list"):
        short_run(ListStep(eta=0.05))


@dataclass(frozen=True)
class Given(Patience):
    given: Any = None

    def ends(self, n):
        return self.given


@pytest.mark.parametrize("given", [Ends(2.0, 9.0, 2.0), Ends(True, 9.0, True), Ends(2, 9.0, 1.5)])
def test_limits_of_a_round_are_whole_numbers(given):
    method = Method(FedAvg(eta=0.05), Everyone(), Never(), patience=Given(given))
    with pytest.raises(BadInput, match=r"Given\.ends\(6\)"):
        prepare(LinearRegression(), SIX, method, max_rounds=2).to_the_end()


@dataclass(frozen=True)
class Repeated(Participation):
    sizes_: Any = (3,)

    def stages(self, N):
        return [*self.sizes_]

    def select(self, n, known):
        return np.broadcast_to(known.ranking[:1], (n,))


def test_clients_take_part_once():
    for policy, message in (
        (Repeated(), r"Repeated\.select\(n = 3\) = "),
        (Repeated(sizes_=(True,)), r"Repeated\.stages"),
    ):
        with pytest.raises(BadInput, match=message):
            short_run(participation=policy).to_the_end()


@pytest.mark.parametrize("hooks", [flanp.Hook(), None, 3, [3], [flanp.Hook]])
def test_hooks_that_are_none(hooks):
    with pytest.raises(BadInput, match="hooks"):
        short_run(hooks=hooks)


@pytest.mark.parametrize(("folder", "every"), [(None, 1.0), ("x", "1"), ("x", -1.0), (3, 1.0)])
def test_a_checkpointer_says_what_it_takes(folder, every):
    with pytest.raises(BadInput, match=r"folder|every"):
        Checkpointer(folder, every)


def test_a_resumed_run_may_measure_more(tmp_path):
    def go(metrics, **options):
        data = flanp.data.Digits(clients=4, samples=20)
        problem = flanp.problems.LogisticRegression()
        return prepare(problem, data, Method(FedAvg(eta=0.1)), metrics=metrics, **options)

    first = go((), max_rounds=2)
    first.to_the_end()
    first.save(tmp_path)
    more = flanp.Metric("mean", lambda p, b: jnp.mean(b[0]))
    again = go((more,), max_rounds=4, resume=tmp_path).to_the_end()
    assert ["mean" in row.metrics for row in again.rows][-1]
    assert "mean" not in again.rows[0].metrics


@dataclass(frozen=True)
class Picky(Solver):
    def __post_init__(self):
        super().__post_init__()
        raise RuntimeError("not today")

    def server_step(self, w, server, m, step):
        return w, server


def test_a_part_whose_own_checks_fail_is_named():
    with pytest.raises(BadInput, match=r"Picky failed \(RuntimeError: not today\)"):
        Picky(eta=0.1)
