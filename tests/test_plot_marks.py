"""Pictures: targets, names, colours and ticks."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from flanp.plots import (
    draw_comparison,
    draw_panels,
    draw_run,
    plot_comparison,
    plot_panels,
)
from flanp.target import Target

from figures import FALLING, METRIC, compared, dots, marks, run, scales


def test_the_target_is_marked_where_it_is_set():
    result = compared(0.5, A=run(metrics=FALLING), B=run(seconds=20.0, metrics=FALLING))
    figure = draw_comparison(result)
    assert [marks(ax) for ax in figure.axes] == [[0.5], [0.5], [], []]
    assert [[t.get_text() for t in ax.texts] for ax in figure.axes] == [[], ["target"], [], []]
    assert dots(figure.axes[0]) == [[2.0, 0.5], [2.0, 0.5]]
    assert dots(figure.axes[1]) == [[20.0, 0.5], [40.0, 0.5]]
    assert all(ax.get_ylim()[0] < 0.5 for ax in figure.axes)


def test_different_targets_are_marked_by_their_median_and_range():
    result = compared(A=[run(), run(), run([2.0, 1.9])])
    result.targets = [Target("loss", level) for level in (0.5, 0.3, 0.4)]
    ax = draw_comparison(result).axes[1]
    assert marks(ax) == [0.4]
    (band,) = ax.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == (0.3, 0.5)
    assert dots(ax) == [[30.0, 0.4]]  # 20 s, 30 s, and never


def test_no_target_is_marked_if_there_is_none_since_all_diverged():
    result = compared(A=run())
    result.targets = [None]
    assert marks(draw_comparison(result).axes[0]) == []


@pytest.mark.parametrize(
    ("target", "levels"),
    [
        (None, [[], []]),
        ({"loss": 0.4}, [[0.4], []]),
        ({METRIC: 0.4}, [[], [0.4]]),
    ],
)
def test_a_run_has_its_target_marked(target, levels):
    figure = draw_run(run(metrics=FALLING, target=target, higher_is_better=False))
    assert [marks(ax) for ax in figure.axes[::2]] == levels
    assert [marks(ax) for ax in figure.axes[1::2]] == levels


def test_panels_mark_the_target_that_was_set(tmp_path):
    result = compared(A=run(metrics=FALLING), B=run(seconds=200.0, metrics=FALLING))
    assert [marks(ax) for ax in draw_panels({"": result}, "loss", "title").axes] == [[], []]
    result.about = {"config": {"target": {"loss": 0.3}}}
    figure = draw_panels({"": result}, "loss", "title")
    assert [marks(ax) for ax in figure.axes] == [[0.3], [0.3]]
    assert scales(figure) == [("linear", "log"), ("log", "log")]
    assert [marks(ax) for ax in draw_panels({"": result}, METRIC, "title").axes] == [[], []]
    three = {f"s = {s}": result for s in (1, 2, 3)}
    figure = draw_panels(three, "loss", "title")
    assert [ax.get_title() for ax in figure.axes] == list(three)
    assert [ax.get_xlabel() for ax in figure.axes] == ["virtual time (seconds)"] * 3
    assert len(plot_panels(three, "loss", "costs $5, not $6", tmp_path / "three")) == 2


NAMES = [
    "$a",
    "$x_1$ and $y^2$",
    "_b",
    "50% <&> \\frac{",
    "A, best eta",
    "x" * 150,
    "many words " * 9,
]


@pytest.mark.parametrize("names", [NAMES[:1], NAMES, [*NAMES, *"CDEFG"]])
def test_names_are_written_literally(names, tmp_path):
    result = compared(**{name: run(metrics=FALLING, metric="$ per_% of $") for name in names})
    figure = draw_comparison(result)
    (legend,) = figure.legends
    shown = ["".join(text.get_text().split()) for text in legend.get_texts()]
    assert shown == ["".join(name.split()) for name in names]
    assert not any(text.get_parse_math() for text in legend.get_texts())
    colours = {handle.get_color() for handle in legend.get_lines()}
    assert len(colours) == len(names)
    plot_comparison(result, tmp_path / "names")
    FigureCanvasAgg(figure).draw()
    box = legend.get_window_extent()
    assert box.x0 > 0
    assert box.x1 < figure.bbox.width
    assert min(ax.bbox.height for ax in figure.axes) > 200  # the legend left room for them


def test_one_run_needs_no_legend():
    assert draw_run(run()).legends == []


def test_variants_have_their_methods_colour():
    result = compared(**{"A": run(), "B": run(), "A, best eta": run()})
    a, b, variant = draw_comparison(result).legends[0].get_lines()
    assert a.get_color() == variant.get_color() != b.get_color()


def test_the_same_run_gives_the_same_bytes(tmp_path):
    result = compared(A=[run(), run(FALLING[:3])], B=run(seconds=200.0))
    first, second = (
        [path.read_bytes() for path in plot_comparison(result, tmp_path / name)] for name in "ab"
    )
    assert first == second


def test_ticks_are_round_numbers():
    figure = draw_run(run([0.86, 0.7, 0.6, 0.52]))
    FigureCanvasAgg(figure).draw()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert {"0.6", "0.7", "0.8"} <= set(labels)
    figure = draw_comparison(compared(A=run(seconds=0.01), B=run(seconds=1000.0)))
    FigureCanvasAgg(figure).draw()
    labels = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert {"0.01", "0.1", "1", "10", "100", "1,000"} <= set(labels)


def test_measured_time_is_not_called_virtual():
    assert draw_run(run()).axes[1].get_xlabel() == "virtual time (seconds)"
    assert draw_run(run(clock="measured")).axes[1].get_xlabel() == "time (seconds)"
