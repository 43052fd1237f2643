"""A run that goes on is the run that was not cut."""

import jax.numpy as jnp
import pytest

import flanp
from flanp import Method, Metric, prepare
from flanp.checks import BadInput
from flanp.data import from_clients
from flanp.participation import RandomK
from flanp.problems import Custom, LinearRegression
from flanp.solvers import FedAvg, FedGATE, Scaffold
from flanp.speeds import Exponential
from flanp.stopping import FixedRounds, GradientNoise, Never
from flanp.work import SpeedMatched

from small import history_bytes, linear_clients, simulation


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
