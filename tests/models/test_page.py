"""What docs/extend.md says of Flax and Equinox: its files run, and configurations name them."""

import runpy
import sys

import pytest

from flanp.config import load_config

from documents import BLOCKS, ON_EXTRAS

for package in ("flax", "equinox"):
    pytest.importorskip(package, reason=f"it is not installed: pip install 'flanp[{package}]'")
PAGE = [b for b in BLOCKS if b.page == "docs/extend.md" and ON_EXTRAS.search(b.text)]
FILES = {b.text.splitlines()[0].removeprefix("# "): b.text for b in PAGE if b.language == "python"}
TABLES = [b.text for b in PAGE if b.language == "toml"]
BASE = """
max_rounds = 2
data = { name = "Digits", clients = 3, samples = 20 }
solver = { name = "FedAvg", eta = 0.05 }
"""


def test_there_is_one_of_each():
    assert list(FILES) == ["my_flax.py", "my_equinox.py"]
    assert len(TABLES) == len(FILES)
    assert all(18 <= len(text.splitlines()) <= 40 for text in FILES.values())


@pytest.mark.parametrize("name", FILES)
def test_a_file_runs_as_it_stands(name, tmp_path, monkeypatch, capsys):
    (tmp_path / name).write_text(FILES[name])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(name, run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("table", TABLES)
def test_a_configuration_names_it(table, tmp_path):
    (tmp_path / "mine.toml").write_text(BASE + table)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        sys.modules.pop(name.removesuffix(".py"), None)
    config = load_config(tmp_path / "mine.toml")
    assert list(config.simulation(*config.methods.values()))[-1].round == 2
