"""Algorithm 1: stages, warm start, growth, the end, the clock; and the invariants of runs."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flanp
from flanp import Method, Metric, prepare
from flanp.checks import BadInput
from flanp.clock import Clock
from flanp.data import from_clients
from flanp.participation import Everyone, Growing, RandomK
from flanp.problems import Custom, LinearRegression
from flanp.solvers import FedAvg, FedGATE, FedNova, Scaffold
from flanp.speeds import Exponential, Measured
from flanp.stopping import FixedRounds, GradientNoise, Never, StatisticalAccuracy
from flanp.work import Equal, SpeedMatched

from small import linear_clients, models, one_round, run, speeds

SIZES = [(1, 1, 2), (2, 1, 2), (7, 2, 1.5), (7, 3, 3), (37, 5, 2)]


@pytest.mark.parametrize(("N", "n0", "growth"), SIZES)
@pytest.mark.parametrize("seed", [0, 1])
def test_stages_are_the_n_fastest_and_end_with_everyone(N, n0, growth, seed):
    _, trace = run(N=N, participation=Growing(n0, growth), stop=FixedRounds(2), seed=seed)
    T = speeds(N, seed)
    sizes = Growing(n0, growth).stages(N)
    assert [len(state.active) for state, _ in trace] == [n for n in sizes for _ in range(2)]
    for state, _ in trace:
        n = len(state.active)
        assert sorted(T[state.active]) == sorted(T)[:n]
    assert len(trace[-1][0].active) == N


@pytest.mark.parametrize(("N", "n0", "growth"), SIZES)
@pytest.mark.parametrize("work", [Equal(tau=4), SpeedMatched(tau=3, limit=5)])
def test_virtual_time_is_the_sum_over_stages(N, n0, growth, work):
    """sum over stages of (rounds x tau x T of the slowest participant)."""
    _, trace = run(N=N, participation=Growing(n0, growth), stop=FixedRounds(3), work=work)
    T = np.sort(speeds(N))
    expected = sum(3 * work.tau * T[n - 1] for n in Growing(n0, growth).stages(N))
    assert trace[-1][0].clock.time == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("N", [1, 2, 7, 37])
@pytest.mark.parametrize(
    "solver", [FedAvg(eta=0.05), FedGATE(eta=0.05), FedNova(eta=0.05), Scaffold(eta=0.05)]
)
def test_flanp_from_all_clients_is_the_bare_solver(N, solver):
    _, with_flanp = run(N=N, solver=solver, participation=Growing(n0=N))
    _, bare = run(N=N, solver=solver, participation=Everyone())
    np.testing.assert_array_equal(models(with_flanp), models(bare))
    assert [s.clock.time for s, _ in with_flanp] == [s.clock.time for s, _ in bare]


def test_each_stage_starts_from_the_model_reached():
    """A run cut at a transition and a run of the next stage alone from there give the same."""
    engine, trace = run(N=7, participation=Growing(3, 3), stop=FixedRounds(4))
    first_of_second = next(j for j, (state, _) in enumerate(trace) if state.k == 1)
    warm = trace[first_of_second - 1][1]["w"]
    model, _ = engine.load({"w": warm, "clients.own": np.zeros((7, 3))}, Clock())
    state, arrays = trace[first_of_second]
    after = one_round(engine, model, state.rounds - 1, state.active, np.full(7, 4), 0.05, 1.0)
    np.testing.assert_allclose(np.asarray(after.w), arrays["w"], atol=1e-12)


def test_every_stage_ends_at_its_own_accuracy():
    mu, c = 0.5, 0.4
    rule = StatisticalAccuracy(mu, c)
    engine, trace = run(N=37, participation=Growing(2), stop=rule, rounds=1000)
    data = linear_clients(37)
    for (state, arrays), following in zip(trace, [*trace[1:], None], strict=True):
        w, active = arrays["w"], state.active
        gradient = np.mean(
            [x.T @ (x @ w - y) / len(y) for x, y in (data[i] for i in active)], axis=0
        )
        reached = gradient @ gradient <= 2 * mu * c / (20 * len(active))
        stage_over = following is None or following[0].k > state.k
        assert reached == stage_over
    assert len(trace[-1][0].active) == 37


def test_a_stage_whose_start_is_accurate_takes_no_round():
    _, trace = run(N=7, participation=Growing(1), stop=StatisticalAccuracy(mu=1e9, c=1e9))
    assert trace == []


def simulation(order=None, N=7, seed=0, solver=FedGATE(eta=0.05), shift=0.0, **options):  # noqa: B008
    clients = [(x, y + shift) for x, y in linear_clients(N, unequal=True)]
    order = range(N) if order is None else order
    data = from_clients([clients[i] for i in order], [f"c{i}" for i in order])
    parts = {"participation": Growing(2), "stop": FixedRounds(3), "work": Equal(tau=4, batch=6)}
    method = Method(solver, **{name: options.pop(name, part) for name, part in parts.items()})
    options = {"speeds": Exponential(), **options}
    return prepare(LinearRegression(), data, method, seed=seed, **options)


def history_bytes(run, folder):
    list(run)
    run.save(folder)
    return {
        name: (folder / name).read_bytes() for name in ("history.csv", "checkpoint.safetensors")
    }


@pytest.mark.parametrize("seed", [0, 3])
def test_same_seed_same_bytes(tmp_path, seed):
    a = history_bytes(simulation(seed=seed), tmp_path / "a")
    assert a == history_bytes(simulation(seed=seed), tmp_path / "b")
    assert a != history_bytes(simulation(seed=seed + 1), tmp_path / "c")


@pytest.mark.parametrize("order", [[6, 5, 4, 3, 2, 1, 0], [3, 0, 6, 1, 5, 2, 4]])
@pytest.mark.parametrize("speeds", [Exponential(), Measured((2.0, 1.0, 1.0, 2.0, 1.0, 3.0, 2.0))])
def test_the_order_of_clients_does_not_matter(tmp_path, order, speeds):
    a = history_bytes(simulation(speeds=speeds), tmp_path / "a")
    assert a == history_bytes(simulation(speeds=speeds, order=order), tmp_path / "b")


def test_ties_in_speed_are_broken_by_id():
    _, trace = run(N=7, T=[2, 1, 1, 2, 1, 3, 2], participation=Growing(2, 1.5), stop=FixedRounds(1))
    assert trace[0][0].active.tolist() == [1, 2]
    assert trace[1][0].active.tolist() == [1, 2, 4]
    assert trace[2][0].active.tolist() == [1, 2, 4, 0]


def resumable(folder=None, **options):
    return prepare(
        LinearRegression(),
        from_clients(linear_clients(4)),
        Method(FedGATE(eta=0.01), stop=Never()),
        resume=folder,
        **{"max_rounds": 12, "record_every": 5, **options},
    )


class AfterSeven(flanp.Hook):
    """Does something to a run after its seventh round, which is between two records."""

    def __init__(self, action):
        self.action = action

    def on_round(self, run):
        if run.state.rounds == 7:
            self.action(run)


def interrupt(run):
    raise KeyboardInterrupt


@pytest.mark.parametrize("options", [{}, {"target": None}, {"record_after": 900.0}])
@pytest.mark.parametrize("cut_by", ["a limit", "an interrupt", "a crash"])
def test_a_resumed_run_records_what_the_uninterrupted_one_does(tmp_path, options, cut_by):
    """Also where the rounds between two records were cut off by a limit, by Ctrl-C or a crash."""
    whole = resumable(**options)
    assert list(whole)
    if "target" in options:  # a level that is met between two records, and seen at the second
        options = {"target": {"loss": whole.history.rows[2].loss}}
        whole = resumable(**options)
        assert list(whole)[-1].round == 10
    if cut_by == "a limit":
        cut = resumable(**options, max_rounds=7)
        list(cut)
        cut.save(tmp_path)
    elif cut_by == "an interrupt":
        cut = resumable(**options, hooks=[AfterSeven(interrupt)])
        with pytest.raises(KeyboardInterrupt):
            list(cut)
        cut.save(tmp_path)
    else:
        list(resumable(**options, hooks=[AfterSeven(lambda run: run.save(tmp_path))]))
    again = resumable(tmp_path, **options)
    assert again.state.rounds == 7
    list(again)
    assert again.history.rows == whole.history.rows
    assert again.history.ended == whole.history.ended


def test_a_crash_between_the_files_of_a_save_after_a_resume(tmp_path):
    """The row that a limit made is replaced: the history is then another, not a longer one."""
    cut = resumable(max_rounds=7)
    list(cut)
    cut.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = resumable(tmp_path)
    list(again)
    again.save(tmp_path)
    for name in ("history.json", "checkpoint.safetensors"):
        (tmp_path / name).write_bytes(before[name])
    third = resumable(tmp_path)
    list(third)
    assert third.history.rows == again.history.rows


def test_a_run_that_was_stopped_before_its_first_record_is_resumed(tmp_path):
    resumable().save(tmp_path)
    again, whole = resumable(tmp_path), resumable()
    assert list(again) == list(whole)


def test_a_run_is_not_resumed_to_an_end_that_it_has_passed(tmp_path):
    run = resumable(record_every=1)
    list(run)
    run.save(tmp_path)
    loss, time = run.history.rows[5].loss, run.history.rows[5].time
    for limits in ({"max_rounds": 3}, {"max_time": time}, {"target": {"loss": loss}}):
        with pytest.raises(BadInput, match="has gone past"):
            resumable(tmp_path, record_every=1, **limits)


def test_another_loss_or_other_held_out_data_is_another_run(tmp_path):
    def bias(p, b):
        return jnp.mean(b[1] - b[0] @ p)

    def run(scale, test, folder=None):
        problem = Custom(
            lambda key: jnp.zeros(3),
            lambda p, b: scale * jnp.mean((b[0] @ p - b[1]) ** 2),
            metrics=(Metric("bias", bias),),
        )
        clients = linear_clients(4)
        data = from_clients(clients, test=clients[test])
        return prepare(problem, data, Method(FedGATE(eta=0.01)), max_rounds=2, resume=folder)

    first = run(1, 0)
    list(first)
    first.save(tmp_path)
    list(run(1, 0, tmp_path))
    for scale, test in ((2, 0), (1, 1)):
        with pytest.raises(BadInput, match="of another run: "):
            run(scale, test, tmp_path)


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"solver": Scaffold(eta=0.05), "work": SpeedMatched(tau=2, batch=6)},
        {"solver": FedAvg(eta=0.05), "participation": RandomK(3), "stop": FixedRounds(9)},
        {"stop": GradientNoise(theta=0.5)},
        {"stop": flanp.stopping.Halving()},
        {"stop": flanp.stopping.Authors(3, 2)},
        {"speeds": Exponential(jitter=0.5), "precision": "float64"},
    ],
)
@pytest.mark.parametrize("cut", [1, 3, 6])
def test_resume_is_the_uninterrupted_run_bit_for_bit(tmp_path, kind, cut):
    whole = history_bytes(simulation(**kind), tmp_path / "whole")
    first = simulation(**kind, max_rounds=cut)
    list(first)
    first.save(tmp_path / "cut")
    assert first.state.rounds == cut
    second = simulation(**kind, resume=tmp_path / "cut")
    assert whole == history_bytes(second, tmp_path / "cut")


def test_a_run_cut_between_two_records_goes_on_as_if_it_had_not_been(tmp_path):
    whole = simulation(record_every=4)
    list(whole)
    first = simulation(record_every=4, max_rounds=1)
    list(first)
    first.save(tmp_path)
    second = simulation(record_every=4, resume=tmp_path)
    list(second)
    # Every end of a run is recorded: the cut is one row more, and nothing else differs.
    assert [row for row in second.history.rows if row.round != 1] == whole.history.rows


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    run_ = simulation(max_rounds=2)
    list(run_)
    run_.save(tmp_path)
    with pytest.raises(flanp.BadInput, match="another run: solver differ"):
        simulation(solver=FedGATE(eta=0.06), resume=tmp_path)
    with pytest.raises(flanp.BadInput, match="another run: checksum differ"):
        simulation(speeds=Exponential(), seed=0, N=7, shift=1e-3, resume=tmp_path)
    with pytest.raises(flanp.BadInput, match="no checkpoint"):
        simulation(resume=tmp_path / "nowhere")


def test_jitter_redraws_speeds_around_the_mean():
    run_ = simulation(
        speeds=Measured((1.0,) * 7, jitter=0.3), stop=FixedRounds(50), participation=Everyone()
    )
    rows = list(run_)
    seconds = np.diff([row.time for row in rows])
    assert len(set(seconds)) == 50
    assert 4 < seconds.mean() < 8  # tau = 4, and the slowest of seven is above the mean


@given(
    N=st.integers(1, 3000),
    n0=st.integers(1, 3000),
    growth=st.floats(1.01, 10, allow_nan=False),
)
@settings(max_examples=200)
def test_growth_is_strict_and_ends_at_N(N, n0, growth):
    sizes = Growing(n0, growth).stages(N)
    if n0 > N:
        with pytest.raises(flanp.BadInput, match="at most the number of clients"):
            Growing(n0, growth).check(N)
    assert sizes[0] == min(n0, N)
    assert sizes[-1] == N
    for a, b in zip(sizes, sizes[1:], strict=False):
        assert a < b <= max(a + 1, growth * a)
