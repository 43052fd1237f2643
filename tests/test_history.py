import math

import numpy as np
import pytest

from flanp.checks import BadInput
from flanp.ended import Ended, Reason
from flanp.history import History, Row

ROWS = [
    Row(0, 0, 0, 0.0, 2.0, 4.0, 4.5, 0.0, metrics={"distance": 0.1 + 0.2}),
    Row(1, 0, 2, 10.0, 1.0, 1e-30, 2.0, 0.25, 80, 96, 1 / 3, 0.1, {"distance": 0.5}),
    Row(2, 1, 4, 1 / 3 + 30, 0.5, 0.1, 0.1, 0.5, 240, 288, 50.0, 0.1, {"distance": 0.25}),
    Row(3, 1, 4, 60.0, 0.7, 0.2, 0.2, 0.5, 400, 480, 110.0, 0.7, {"distance": 0.25}),
]
METRICS = {"metrics": {"test_error": False, "distance": False}}


def test_saved_and_loaded_back_without_loss(tmp_path):
    history = History(ROWS, {"seed": 3, **METRICS}, ended=Ended(Reason.ACCURACY))
    history.save(tmp_path / "deep" / "folder")
    back = History.load(tmp_path / "deep" / "folder")
    assert back.rows == ROWS
    assert back.about == history.about
    assert back.ended == history.ended
    header = (tmp_path / "deep" / "folder" / "history.csv").read_text().splitlines()[0]
    assert header.startswith("round,stage,n,time,loss,grad_norm_sq")
    assert ",sent,received,spent,lost," in header
    assert back.column("spent").tolist() == [0.0, 1 / 3, 50.0, 110.0]


def test_time_to_a_target_is_the_first_round_at_or_under_it():
    history = History(ROWS, METRICS)
    assert history.time_to(loss=2.0) == 0
    assert history.time_to(loss=0.5) == 1 / 3 + 30
    assert history.rounds_to(loss=0.6) == 2
    assert history.time_to(grad_norm_sq=0.5) == 10
    assert history.time_to(distance=0.25) == 1 / 3 + 30
    assert history.time_to(loss=0.1) is None
    assert history.time_to(test_error=1.0) is None


def test_bad_targets():
    with pytest.raises(BadInput, match="did you mean 'loss'"):
        History(ROWS).time_to(los=1.0)
    with pytest.raises(BadInput, match="it must be one level"):
        History(ROWS).time_to(loss=1.0, distance=2.0)
    with pytest.raises(BadInput, match="no column 'losses'"):
        History(ROWS).column("losses")


def test_stages_add_up():
    stages = History(ROWS).stages()
    assert [(s["stage"], s["n"], s["rounds"]) for s in stages] == [(0, 2, 1), (1, 4, 2)]
    assert sum(s["time"] for s in stages) == pytest.approx(60)
    assert History().stages() == []


def test_what_was_not_measured_is_nan():
    assert np.isnan(History(ROWS, METRICS).column("test_error")).all()
    assert math.isclose(History(ROWS, METRICS).column("distance")[0], 0.3)


def test_nothing_to_load(tmp_path):
    with pytest.raises(BadInput, match="no history of a run"):
        History.load(tmp_path)
