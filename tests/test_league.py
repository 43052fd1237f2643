"""The league: cells, who is where, and going on after a stop."""

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from flanp.checks import BadInput
from flanp.league.cells import play
from flanp.league.entries import QUICK, entries
from flanp.league.playing import Pairing, pairings, play_all, played
from flanp.league.scenarios import CONVEX, NETWORK, QUICK_SCENARIOS, SCENARIOS, quick
from flanp.league.table import markdown, standings

TINY = replace(quick(CONVEX), clients=8, seeds=2)


def cell(method, times, spent=1.0, group="g"):
    results = [[{"time": t, "spent": spent, "bytes": 8.0}, {"slowest": 2.0}] for t in times]
    return {
        "setting": "convex",
        "scenario": "paper",
        "method": method,
        "group": group,
        "targets": ["statistical accuracy"],
        "results": results,
        "knobs": {"solver.eta": 0.5},
    }


def test_all_are_set_against_the_first_seed_by_seed():
    cells = [cell("slow", [20.0, 40.0], spent=3.0), cell("first", [10.0, 10.0])]
    first, slow = standings(cells, 0)
    assert (first.method, first.behind.mean, first.steps) == ("first", 1.0, 5.0)
    assert slow.behind.mean == pytest.approx(math.sqrt(2 * 4))
    assert slow.spent == 3.0
    assert slow.text == "2.8"


def test_who_misses_the_target_on_a_seed_is_not_the_first():
    cells = [
        cell("sometimes", [1.0, None]),
        cell("always", [10.0, 10.0]),
        cell("never", [None] * 2),
    ]
    table = standings(cells, 0)
    assert [s.method for s in table] == ["always", "sometimes", "never"]
    assert [s.text for s in table] == ["1", "0.1 (1/2)", "–"]


def test_a_refused_cell_is_a_dash():
    refused = {k: v for k, v in cell("refused", []).items() if k not in ("results", "knobs")}
    assert standings([refused, cell("first", [1.0, 1.0])], 0)[1].text == "–"
    assert "| refused | – |" in markdown([refused, cell("first", [1.0, 1.0])])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no parents to lose")
def test_a_killed_league_leaves_no_workers_behind(tmp_path):
    command = [sys.executable, "-m", "flanp", "league", "--quick", "--out", str(tmp_path / "l")]
    league = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    mother = psutil.Process(league.pid)
    end = time.monotonic() + 60
    while time.monotonic() < end and len(mother.children()) < 3:  # two workers and a tracker
        time.sleep(0.2)
    time.sleep(2)
    workers = mother.children(recursive=True)
    league.kill()
    league.wait()
    gone, alive = psutil.wait_procs(workers, timeout=20)
    assert gone
    assert not alive


def test_every_method_is_tuned_by_its_step_size_at_least():
    for setting in (CONVEX, NETWORK):
        known = entries(setting, 1.0)
        assert set(QUICK) <= known.keys()
        for entry in known.values():
            assert "solver.eta" in entry.knobs
            for path, values in entry.knobs.items():
                part, _, name = path.partition(".")
                assert hasattr(getattr(entry.method, part), name)
                assert len(values) > 1


def test_a_cell_is_tuned_and_measured_the_same_way_twice():
    first = play(TINY, SCENARIOS["exponential"], "FedGATE")
    again = play(TINY, SCENARIOS["exponential"], "FedGATE")
    assert first["results"] == again["results"]
    assert first["knobs"] == again["knobs"]
    assert len(first["results"]) == 2
    assert not {*first["tuned on"]} & {*range(TINY.seeds)}
    assert all(run[0]["time"] < math.inf for run in first["results"])


def test_cells_that_are_there_are_not_played_again(tmp_path):
    pairing = Pairing(TINY, SCENARIOS["paper"], "FLANP, as published")
    assert played(tmp_path, pairing) is None
    (done,) = play_all(tmp_path, [pairing], workers=1)
    kept = played(tmp_path, pairing)
    assert kept is not None
    assert kept["knobs"] == done["knobs"]
    other = Pairing(replace(TINY, seeds=3), pairing.scenario, pairing.method)
    assert played(tmp_path, other) is None  # of another league
    path = tmp_path / pairing.path
    path.write_text(path.read_text()[:50])
    assert played(tmp_path, pairing) is None  # half of it
    path.write_text(json.dumps({"about": {}}))
    assert played(tmp_path, pairing) is None


def test_which_cells_a_league_has():
    assert len(pairings()) == 2 * len(SCENARIOS) * len(entries(CONVEX, 1.0))
    assert len(pairings(small=True)) == 2 * len(QUICK_SCENARIOS) * len(QUICK)
    assert len(pairings(["paper"], ["FLANP"])) == 2
    with pytest.raises(BadInput, match="--scenario pape: unknown.*paper"):
        pairings(["pape"])
    with pytest.raises(BadInput, match="--method FLAMP: unknown"):
        pairings(["paper"], ["FLAMP"])
