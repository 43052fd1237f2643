"""What the pages say of PyTorch runs as it stands there, from Python and from a configuration."""

import runpy

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'flanp[torch]'")

from flanp.config import load_config

from documents import BLOCKS, ON_FLOWER, ON_TORCH

PAGES = [b for b in BLOCKS if ON_TORCH.search(b.text) and not ON_FLOWER.search(b.text)]
FILES = [b for b in PAGES if b.language == "python"]
(TABLE,) = (b.text for b in PAGES if b.language == "toml")


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.page)
def test_a_script_runs_as_it_stands(block, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(block.text)
    names = runpy.run_path(str(script), run_name="__main__")
    assert min(row.loss for row in names["history"].rows) < names["history"].rows[0].loss


def test_a_configuration_names_module_and_loss(tmp_path):
    (module,) = (b.text for b in FILES if b.text.startswith("# my_net.py"))
    (tmp_path / "my_net.py").write_text(module)
    (tmp_path / "mine.toml").write_text(
        TABLE + 'data = { name = "Digits", clients = 4, samples = 50 }\n'
        'solver = { name = "FedAvg", eta = 0.1 }\n'
        'metrics = ["my_net:accuracy"]\nmax_rounds = 3\n'
    )
    config = load_config(tmp_path / "mine.toml")
    (method,) = config.methods.values()
    history = config.simulation(method).to_the_end()
    assert {*history.rows[-1].metrics} == {"test_error", "accuracy"}
    assert history.about["problem"]["module"] == "Net"
