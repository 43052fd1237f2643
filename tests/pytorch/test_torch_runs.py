"""Runs of PyTorch modules: the same bytes however they are computed, cut or resumed."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'flanp[torch]'")

import torch
from safetensors.numpy import load_file
from torch.utils.data import TensorDataset

import flanp
from flanp import speeds
from flanp.availability import Random
from flanp.measurement import Seen
from flanp.oort import Oort
from flanp.participation import Everyone, FastestK, RandomK
from flanp.patience import Quorum
from flanp.solvers import FedAvg, FedGATE, Memory, Tracking
from flanp.stopping import LossNoise, Never

from nets import Noisy, Plain, Realistic, labelled, run, same, trained

ASYNCHRONOUS = {"solver": Tracking(eta=0.05), "participation": Everyone(), "stop": Never()}
REMEMBERING = {"solver": Memory(eta=0.1, rho=0.5), "participation": FastestK(2), "stop": Never()}
LATE = {"patience": Quorum(0.5), "participation": Everyone(), "stop": LossNoise()}


@pytest.mark.parametrize("options", [{}, ASYNCHRONOUS, REMEMBERING], ids=["", "async", "memory"])
def test_a_run_has_the_same_bytes_on_any_number_of_workers(options):
    row, params = trained(run(Realistic, devices=1, **options))
    again, others = trained(run(Realistic, devices=3, **options))
    assert same(params, others)
    assert row == again


@pytest.mark.parametrize("options", [{}, ASYNCHRONOUS, REMEMBERING], ids=["", "async", "memory"])
def test_a_resumed_run_is_the_uninterrupted_one(options, tmp_path):
    whole = trained(run(Realistic, **options))
    cut = run(Realistic, max_rounds=3, **options)
    cut.to_the_end()
    cut.save(tmp_path)
    row, params = trained(run(Realistic, resume=tmp_path, **options))
    assert row == whole[0]
    assert same(params, whole[1])


def test_seeds_decide_the_start_and_what_dropout_draws():
    starts = [run(seed=seed, max_rounds=1).engine.machine.start_w for seed in (0, 0, 1)]
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])


def test_buffers_are_averaged_and_frozen_parameters_stay():
    before = run(Realistic)
    start = before.engine.params(before.engine.start())
    _, params = trained(before)
    assert params["hidden.1.num_batches_tracked"] == 3 * before.state.rounds
    assert params["hidden.1.num_batches_tracked"].dtype == np.int64
    assert not np.array_equal(params["hidden.1.running_mean"], start["hidden.1.running_mean"])
    assert np.array_equal(params["frozen.weight"], start["frozen.weight"])
    Realistic().load_state_dict({name: torch.from_numpy(a) for name, a in params.items()})


def test_a_round_averages_buffers_by_the_samples_of_its_participants():
    engine = run(Realistic, FedAvg(eta=0.1), stop=Never()).engine
    model, P, s = engine.start(), engine.machine.size, engine.s
    alone = [
        engine.rounds.round(model, 0, np.array([i]), np.array([2]), 0.1, 1.0, s[i]).w
        for i in (1, 3)
    ]
    both = engine.rounds.round(model, 0, np.array([1, 3]), np.array([2, 2]), 0.1, 1.0, s.sum()).w
    expected = np.average(alone, axis=0, weights=s[[1, 3]])
    np.testing.assert_allclose(both, expected, rtol=1e-5, atol=1e-7)
    assert len(both) == P + 5 + 5 + 1 + 4


def test_buffers_travel_but_are_no_part_of_gradients():
    engine = run(Realistic).engine
    assert engine.machine.carried == 15
    assert engine._model_bytes == engine._message_bytes == 4 * (engine.machine.size + 15)
    assert engine.start().clients.own.shape == (4, engine.machine.size)


def test_the_model_is_saved_by_the_modules_own_names(tmp_path):
    made = run(Realistic, max_rounds=2)
    _, params = trained(made)
    made.save_params(tmp_path)
    assert same(load_file(tmp_path / "model.safetensors"), params)


@pytest.mark.parametrize("options", [LATE, LATE | {"solver": Memory(eta=0.1)}])
def test_unknown_speeds_and_late_work(options):
    made = run(speeds=speeds.Exponential(known=False), **options)
    row, _ = trained(made)
    assert row.loss < made.history.rows[0].loss


@pytest.mark.parametrize("participation", [RandomK(2), Oort(2)])
def test_clients_are_drawn_and_drop_out(participation):
    dropping = Random(dropouts=0.3)
    made = run(participation=participation, stop=Never(), availability=dropping)
    row, _ = trained(made)
    assert row.n == 2
    assert row.lost > 0


def test_a_target_on_a_metric_of_ones_own():
    def right(outputs, y):
        return (outputs.argmax(1) == y).float().mean()

    accuracy = flanp.Metric("accuracy", right, higher_is_better=True)
    made = run(problem={"metrics": (accuracy,)}, target={"accuracy": 0.6}, max_rounds=60)
    row, _ = trained(made)
    assert str(made.ended) == "target reached"
    assert row.metrics["accuracy"] >= 0.6


def test_double_precision_and_regression():
    x = np.random.default_rng(0).standard_normal((3, 10, 6))
    data = flanp.data.from_clients([(a, a[:, :3]) for a in x], test=(x[0], x[0][:, :3]))
    row, params = trained(run(data=data, loss=torch.nn.functional.mse_loss, precision="float64"))
    assert params["0.weight"].dtype == np.float64
    assert row.metrics == {}


def test_methods_are_compared():
    methods = {"GATE": flanp.Method(FedGATE(eta=0.1)), "Avg": flanp.Method(FedAvg(eta=0.1))}
    problem = flanp.problems.Torch(Plain, torch.nn.functional.cross_entropy)
    options = {"target": {"loss": 1.0}, "max_rounds": 60, "progress": False, "devices": 1}
    tuned = {"tune": {"eta": [0.05, 0.1]}, "tuning_seeds": 1}
    result = flanp.compare(problem, labelled(), methods, seeds=1, **tuned, **options)
    assert np.isfinite(result.times("GATE")).all()


def test_masks_stay_as_they_are():
    """The mean of infinite numbers is none."""
    for options in ({}, ASYNCHRONOUS):
        params = trained(run(Realistic, **options))[1]
        assert params["mask"].tolist() == [-np.inf, 0.0]
        assert params["used"].tolist() == [True, False]


def test_what_is_drawn_in_a_look_does_not_depend_on_the_workers():
    rows = [trained(run(Noisy, devices=devices))[0] for devices in (1, 3)]
    assert rows[0] == rows[1]


def test_real_datasets_are_taken():
    x, y = torch.randn(9, 6), torch.arange(9) % 3
    data = flanp.data.from_datasets([TensorDataset(x, y), TensorDataset(x[:4], y[:4])])
    assert (data.N, data.classes, data.s.tolist()) == (2, 3, [9, 4])
    np.testing.assert_array_equal(data.batch[0][0], x)
    np.testing.assert_array_equal(data.batch[1][1, :4], y[:4])


@pytest.mark.parametrize("number", range(20, 28))
def test_a_round_that_fails_halfway_leaves_the_state_before_it(number, monkeypatch):
    begun = run(**REMEMBERING, max_rounds=40, problem={"metrics": ()})
    engine, calls, before = begun.engine, iter(range(100)), []
    apply, collect = engine.apply, engine.machine.workers.collect

    def applied(model, reply):
        before.append(model.clients.own.copy())
        return apply(model, reply)

    def fails(ticket):
        if next(calls) == number:
            raise RuntimeError("no more")
        return collect(ticket)

    monkeypatch.setattr(engine, "apply", applied)
    monkeypatch.setattr(engine.machine.workers, "collect", fails)
    monkeypatch.setattr(engine.machine, "look", lambda *_: Seen())
    with pytest.raises(RuntimeError, match="no more"):
        begun.to_the_end()
    np.testing.assert_array_equal(begun.state.model.clients.own, before[-1])
