"""Parts of one's own that pass for right ones: refused in words before the first round, or kept."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flanp
from flanp import Method, prepare
from flanp.checks import BadInput
from flanp.compression import Compression
from flanp.data import Synthetic
from flanp.history import History
from flanp.hooks import Checkpointer
from flanp.measurement import Look
from flanp.participation import Everyone, Participation
from flanp.patience import Ends, Patience
from flanp.problems import Custom, LinearRegression
from flanp.solvers import FedAvg, Solver
from flanp.solvers.local import LocalStep
from flanp.stopping import Never, StageRule

DATA = Synthetic(clients=6, samples=10, dim=3)


def run(solver=FedAvg(eta=0.05), stop=Never(), **options):  # noqa: B008
    parts = {"participation": Everyone(), "work": flanp.work.Equal(tau=2)}
    method = Method(solver, stop=stop, **{name: options.pop(name, parts[name]) for name in parts})
    problem = options.pop("problem", LinearRegression())
    return prepare(problem, DATA, method, **{"max_rounds": 3, **options})


def resumed(folder, rounds=8, cut=4, **options):
    """Return the rows of a run that was cut and went on, and those of one that was not."""
    whole = run(max_rounds=rounds, **options)
    whole.to_the_end()
    first = run(max_rounds=cut, **options)
    first.to_the_end()
    first.save(folder)
    again = run(max_rounds=rounds, resume=folder, **options)
    again.to_the_end()
    return again, whole


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
    simulation = run(FedAvg(eta=0.05, compression=Signs(number)))
    simulation.to_the_end()
    simulation.save(tmp_path)
    assert History.load(tmp_path).rows[-1].sent == 3 * 6 * 4


@pytest.mark.parametrize("number", [1.5, -1, None, float("nan"), float("inf"), "4", True, (4,)])
def test_bytes_that_are_no_number_are_refused(number):
    with pytest.raises(BadInput, match=r"Signs\.bytes"):
        run(FedAvg(eta=0.05, compression=Signs(number)))


@dataclass(frozen=True)
class Dithered(Compression):
    def send(self, x, error, u):
        return x + 0 * u, error

    def bytes(self, size, each=4):
        return size * each


def test_a_compression_that_draws_must_say_so():
    with pytest.raises(BadInput, match=r"Dithered\.send .*random = True"):
        run(FedAvg(eta=0.05, compression=Dithered()))


@dataclass(frozen=True)
class Kept(Solver):
    """Keeps states of a given form, and looks at it in each step."""

    start: Any = None

    def server_start(self, w):
        return self.start(w)

    def client_start(self, w):
        return self.start(w)

    def server_step(self, w, server, m, step):
        same(server, self.start(w))
        return w - step.eta * m, server

    def client_step(self, client, server, m_i, m, step):
        same(client, self.start(m))
        return client


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert [np.shape(x) for x in jax.tree.leaves(a)] == [np.shape(x) for x in jax.tree.leaves(b)]


def scalar(w):
    return (0.0, 0 * w)


def counter(w):
    return {"t": 0 * w[0], "v": 0 * w}


def with_none(w):
    return (0 * w, None)


def nested_none(w):
    return {"v": [0 * w, None], "extra": None}


@pytest.mark.parametrize("start", [scalar, counter, with_none, nested_none])
def test_states_come_back_in_the_form_they_had(start, tmp_path):
    again, whole = resumed(tmp_path, solver=Kept(eta=0.05, start=start))
    assert again.history.rows == whole.history.rows
    same(again.state.model.server, whole.state.model.server)


def one_name_twice(w):
    return {"a.b": 0 * w, "a": {"b": 0 * w + 5}}


def test_two_arrays_of_one_name_are_refused():
    with pytest.raises(BadInput, match=r"two arrays .*'a\.b'"):
        run(Kept(eta=0.05, start=one_name_twice))
    problem = Custom(
        lambda key: {"a.b": jnp.zeros(3), "a": {"b": jnp.zeros(())}},
        lambda p, b: jnp.mean((b[0] @ p["a.b"] + p["a"]["b"] - b[1]) ** 2),
    )
    with pytest.raises(BadInput, match=r"two arrays .*'a\.b'"):
        run(problem=problem)


@jax.tree_util.register_dataclass
@dataclass
class Weights:
    slope: Any
    offset: Any


def test_a_model_of_any_registered_class_is_saved_as_it_is(tmp_path):
    problem = Custom(
        lambda key: Weights(jnp.zeros(3), [jnp.zeros(())]),
        lambda p, b: jnp.mean((b[0] @ p.slope + p.offset[0] - b[1]) ** 2),
    )
    run(problem=problem, hooks=[Checkpointer(tmp_path)]).to_the_end()
    from safetensors.numpy import load_file

    saved = load_file(tmp_path / "model.safetensors")
    assert {name: a.shape for name, a in saved.items()} == {"slope": (3,), "offset.0": ()}


@dataclass(frozen=True)
class ByStage(StageRule):
    def looks_at(self, stage, rounds):
        return Look.ACTIVE

    def met(self, memory, stage, rounds, seen):
        return False, {**memory, stage.k: 1}


def test_a_rules_memory_has_texts_as_keys():
    with pytest.raises(BadInput, match=r"ByStage\.met: a key of its memory = 0"):
        run(stop=ByStage()).to_the_end()


class Saver(flanp.Hook):
    def __init__(self, folder):
        self.folder = folder

    def on_row(self, run, row):
        run.save(self.folder)


@pytest.mark.parametrize("options", [{"record_every": 4}, {"record_after": 2500.0}])
def test_a_hook_that_saves_each_row_saves_what_can_go_on(options, tmp_path):
    whole = run(max_rounds=14, **options).to_the_end()
    run(max_rounds=5, hooks=[Saver(tmp_path)], **options).to_the_end()
    again = run(max_rounds=14, resume=tmp_path, **options).to_the_end()
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
        run(FedAvg(eta=0.05, local=local))


class ListStep(Solver):
    def server_step(self, w, server, m, step):
        return [*(w - step.eta * m)], server


def test_a_model_must_be_an_array():
    with pytest.raises(BadInput, match=r"ListStep\.server_step returned a list"):
        run(ListStep(eta=0.05))


@dataclass(frozen=True)
class Given(Patience):
    given: Any = None

    def ends(self, n):
        return self.given


@pytest.mark.parametrize("given", [Ends(2.0, 9.0, 2.0), Ends(True, 9.0, True), Ends(2, 9.0, 1.5)])
def test_limits_of_a_round_are_whole_numbers(given):
    method = Method(FedAvg(eta=0.05), Everyone(), Never(), patience=Given(given))
    with pytest.raises(BadInput, match=r"Given\.ends\(6\)"):
        prepare(LinearRegression(), DATA, method, max_rounds=2).to_the_end()


@dataclass(frozen=True)
class Repeated(Participation):
    sizes_: Any = (3,)

    def stages(self, N):
        return [*self.sizes_]

    def select(self, n, ranking, rng):
        return np.broadcast_to(ranking[:1], (n,))


def test_clients_take_part_once():
    for policy, message in (
        (Repeated(), r"Repeated\.select"),
        (Repeated(sizes_=(True,)), r"Repeated\.stages"),
    ):
        with pytest.raises(BadInput, match=message):
            run(participation=policy).to_the_end()


@pytest.mark.parametrize("hooks", [flanp.Hook(), None, 3, [3], [flanp.Hook]])
def test_hooks_that_are_none(hooks):
    with pytest.raises(BadInput, match="hooks"):
        run(hooks=hooks)


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
