"""What the README shows is true."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
CODE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
ON_FLOWER = "flanp.flower"
"""What says that a piece of code needs Flower's nodes; tests/test_flower.py runs it."""


@pytest.mark.parametrize("code", [code for code in CODE if ON_FLOWER not in code])
def test_python_examples_run(code, capsys):
    exec(compile(code, "README.md", "exec"), {})


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (Path(__file__).parents[1] / target).exists(), target


def test_the_single_file_version_runs(oracle, capsys):
    oracle.main()
    assert "times as fast" in capsys.readouterr().out
    source = Path(oracle.__file__).read_text("utf-8").splitlines()
    assert len(source) <= 150
    assert f"in {len(source)} lines of NumPy" in README
