"""The command tune, in one process."""

import json

import pytest
from typer.testing import CliRunner

from flanp.cli import app

SMALL = """
seeds = 2
target = "statistical accuracy"
data = { name = "Synthetic", clients = 8, samples = 40, dim = 3, condition = 3.0 }
problem = "LinearRegression"
solver = { name = "FedGATE", eta = 0.1 }
work = { name = "Equal", tau = 5 }
[methods.FLANP]
[methods.everyone]
participation = "Everyone"
"""


def invoke(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_tune_says_what_each_method_is_quickest_with_and_how_to_use_it(config, tmp_path):
    result = invoke("tune", config, "--knob", "eta", "--out", tmp_path / "tuned")
    assert result.exit_code == 0, result.output
    tuned = json.loads((tmp_path / "tuned" / "tuned.json").read_text())
    assert {*tuned} == {"FLANP", "everyone"}
    eta = tuned["everyone"]["knobs"]["solver.eta"]
    assert eta > 0.1
    assert f"""--set 'methods."everyone".solver.eta={eta:g}'""" in result.output


def test_a_configuration_tunes_before_it_compares_and_says_so_first(config, tmp_path):
    config.write_text('tune = ["eta"]\n' + SMALL)
    result = invoke("compare", config, "--out", tmp_path / "compared")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert any(line.startswith("Tuned: each method at its own best") for line in lines)
    assert "seeds 2 to 3" in result.output
    saved = json.loads((tmp_path / "compared" / "comparison.json").read_text())
    assert saved["tuned"]["seeds"] == [2, 3]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('tune = ["etta"]', "no knob 'etta'"),
        ("tune = 3", "a list of knobs"),
        ("tune = { eta = [] }", "tune.eta = []: it must be a list of values"),
        ("tune = { eta = [0.1, -1] }", "a list of values to try, above 0"),
        ('tune = { eta = "all" }', "a list of values"),
        ("tune = { eta = [0.1, 1e99] }", "eta"),
        ("tune = { eta = [1e5, 1e6] }", "methods.FLANP: tune: with no value of solver.eta"),
    ],
)
def test_bad_grids_are_told_in_one_line(config, tmp_path, line, words):
    config.write_text(line + "\n" + SMALL)
    result = invoke("compare", config, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    told = [each for each in result.output.splitlines() if each.startswith("flanp:")]
    assert len(told) == 1
    assert words in told[0]
