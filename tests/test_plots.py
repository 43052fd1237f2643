"""Pictures: what is on the axes, not how it looks."""

import math
from dataclasses import replace

import numpy as np
import pytest

from flanp.comparison import Comparison
from flanp.ended import Ended, Reason
from flanp.history import History
from flanp.plots import (
    draw_comparison,
    draw_run,
    plot_comparison,
    plot_run,
)

from figures import (
    METRIC,
    compared,
    curves,
    diverged,
    dots,
    marks,
    run,
    scales,
    value_at,
)


def test_falling_positive_curves_are_on_a_logarithmic_axis_in_spite_of_stage_marks():
    figure = draw_run(run(stages=2))
    assert scales(figure) == [("linear", "log"), ("linear", "log")]
    assert [list(line.get_xdata()) for line in figure.axes[1].lines[1:]] == [[10.0, 10.0]]


@pytest.mark.parametrize(("least", "scale"), [(0.0, "linear"), (-0.1, "linear"), (0.1, "log")])
def test_a_curve_that_is_zero_at_times_loses_no_point(least, scale):
    figure = draw_run(run(metrics=[0.5, 0.3, least, 0.2]))
    assert [ax.get_yscale() for ax in figure.axes] == ["log", "log", scale, scale]
    for ax in figure.axes[2:]:
        (data,) = curves(ax)
        assert least in data[1]
        assert ax.get_ylim()[0] < least


def test_a_metric_of_which_more_is_better_is_on_a_linear_axis():
    rising = run(metrics=[0.1, 0.6, 0.8, 0.9], higher_is_better=True, target={METRIC: 0.7})
    figure = draw_run(rising)
    assert [ax.get_yscale() for ax in figure.axes] == ["log", "log", "linear", "linear"]
    assert dots(figure.axes[3]) == [[20.0, 0.7]]


def test_a_target_of_zero_does_not_decide_the_scale():
    figure = draw_run(run(target={"loss": 0.0}))
    assert scales(figure)[0] == ("linear", "log")
    assert marks(figure.axes[0]) == []


@pytest.mark.parametrize("losses", [[1.0], [0.0], [1.0, 1.0, 1.0], [0.0, 0.0], [1e-300, 1e300]])
def test_constant_single_and_extreme_curves_are_drawn(losses, tmp_path):
    assert len(plot_run(run(losses), tmp_path / "run")) == 2
    assert len(plot_comparison(compared(A=run(losses), B=run()), tmp_path / "both")) == 2
    same = compared(A=[run(losses)] * 2)
    assert len(plot_comparison(same, tmp_path / "one")) == 2


def test_rounds_that_take_no_time(tmp_path):
    assert len(plot_run(run(seconds=0.0, stages=2), tmp_path / "run")) == 2
    assert len(plot_comparison(compared(A=run(seconds=0.0), B=run()), tmp_path / "both")) == 2


def test_what_was_not_measured_is_not_drawn(tmp_path):
    # In Flower the loss of a round comes with the next exchange, and may not come at all.
    figure = draw_run(run([math.nan, 1.0, math.nan, 0.5, math.nan]))
    assert len(figure.axes) == 2
    (data,) = curves(figure.axes[0])
    assert [value_at(data, r) for r in (1.1, 2.1, 3.1, 4.0)] == [1.0, 1.0, 0.5, 0.5]
    assert np.isnan(value_at(data, 0.9))
    for nothing in (run([math.nan] * 3), History()):
        assert plot_run(nothing, tmp_path / "none") == []
    assert plot_comparison(Comparison({"A": []}), tmp_path / "none") == []
    assert list(tmp_path.iterdir()) == []
    empty = History(ended=diverged(0))
    assert len(plot_comparison(compared(A=run(), B=empty), tmp_path / "half")) == 2


@pytest.mark.parametrize(("seconds", "scale"), [(99.0, "linear"), (100.0, "log"), (1e4, "log")])
@pytest.mark.parametrize("target", [0.3, None])
def test_the_time_axis_is_logarithmic_if_methods_differ_tenfold(seconds, scale, target):
    figure = draw_comparison(compared(target, fast=run(), slow=run(seconds=seconds)))
    assert [ax.get_xscale() for ax in figure.axes] == ["linear", scale]
    for (at, _), last in zip(curves(figure.axes[1]), (30.0, 3 * seconds), strict=True):
        assert at[-1] == last
        if scale == "log":
            assert at[0] == 10.0  # the earliest positive time of all
            assert np.allclose(np.diff(np.log(at)), np.log(last / 10) / (len(at) - 1))
        else:
            assert at[0] == 0.0


def test_the_rounds_axis_has_the_same_rule():
    slow = run(np.geomspace(2.0, 0.25, 31).tolist(), seconds=1.0)
    figure = draw_comparison(compared(fast=run(), slow=slow))
    assert [ax.get_xscale() for ax in figure.axes] == ["linear", "linear"]
    slow = run(np.geomspace(2.0, 0.25, 40).tolist(), seconds=1.0)
    figure = draw_comparison(compared(fast=run(), slow=slow))
    assert [ax.get_xscale() for ax in figure.axes] == ["log", "linear"]
    assert curves(figure.axes[0])[1][0][0] == 1.0


def test_a_method_that_misses_the_target_is_cut_off_and_does_not_decide():
    endless = run([2.0] * 500, ended=Ended(Reason.ROUNDS, "limit of 499 rounds"))
    figure = draw_comparison(compared(A=run(), endless=endless))
    assert [ax.get_xscale() for ax in figure.axes] == ["linear", "linear"]
    assert [at[-1] for at, _ in curves(figure.axes[1])] == [30.0, 31.5]


def test_the_time_axis_of_a_run_is_logarithmic_if_its_stages_differ_tenfold():
    assert scales(draw_run(run([1.0] * 9, stages=3)))[1][0] == "linear"
    long = run([1.0] * 100, stages=2)
    assert scales(draw_run(long))[1][0] == "linear"
    rows = [row._replace(stage=int(row.round > 5)) for row in long.rows]
    assert scales(draw_run(replace(long, rows=rows))) == [("linear", "log"), ("log", "log")]


def test_runs_that_have_ended_keep_their_last_value():
    low, high = run([2.0, 0.2]), run([2.0, 1.5, 1.0, 0.6, 0.3])
    figure = draw_comparison(compared(A=[low, low, high]))
    (data,) = curves(figure.axes[0])
    assert data[0][-1] == 4.0
    assert value_at(data, 4.0) == 0.2
    assert (np.diff(data[1]) <= 0).all()  # no jump up where two of the three have ended
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 0].max() == 4.0
    assert band[:, 1].min() == 0.2


def test_the_median_of_an_even_number_of_whole_numbers_is_between_two_of_them():
    figure = draw_comparison(compared(None, A=[run([4, 2]), run([4, 1]), run([4, 1]), run([4, 2])]))
    (data,) = curves(figure.axes[0])
    assert set(data[1].tolist()) == {4.0, 1.5}


def test_a_run_that_diverged_is_left_out_from_where_it_ends():
    wild = run([2.0, 3.0, 9.0], ended=diverged(3))
    settled = run([2.0, 1.0, 0.9, 0.8, 0.7])
    for runs, last in (([wild, settled, settled], 0.7), ([wild, settled], 0.7)):
        (data,) = curves(draw_comparison(compared(A=runs)).axes[0])
        assert value_at(data, 4.0) == last
    (data,) = curves(draw_comparison(compared(A=[wild, wild, settled])).axes[0])
    assert np.isfinite(value_at(data, 2.0))
    assert np.isnan(value_at(data, 2.1))


def test_a_method_that_diverged_at_once_is_a_point():
    wild = run([2.0], ended=diverged(1))
    figure = draw_comparison(compared(None, A=run(), wild=[wild, wild, run()]))
    assert [dots(ax) for ax in figure.axes] == [[[0.0, 2.0]], [[0.0, 2.0]]]


def test_a_method_that_diverged_does_not_press_the_others_flat():
    wild = run([2.0, 1e3, 1e9, 1e30, 1e200], ended=diverged(5))
    figure = draw_comparison(compared(A=run(), wild=wild))
    assert [ax.get_ylim()[1] for ax in figure.axes] == [20.0, 20.0]
    assert draw_run(wild).axes[0].get_ylim()[1] == 1e100
    tiny = run([1e-5, 1e-6], target={"loss": 1e-3})
    assert draw_run(tiny).axes[0].get_ylim()[1] > 1e-3  # the picture is cut for no other reason


def test_an_interrupted_seed_is_left_out():
    result = compared(A=[run(), run([2.0, 1.9], ended=None)])
    result.targets.pop()
    (data,) = curves(draw_comparison(result).axes[0])
    assert value_at(data, 3.0) == 0.25
