"""The example apps, unchanged, on Flower's simulation runtime; test_up.py runs one deployed."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")

from flanp.flower.deployment import Deployment
from flanp.history import History


@pytest.mark.parametrize("name", ["flower-numpy", "flower-pytorch"])
def test_the_examples_run_on_the_simulation_runtime(name, tmp_path):
    if name == "flower-pytorch":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'flanp[torch]'")
    app = Path(__file__).parents[2] / "examples" / name
    with Deployment(tmp_path, simulated=4) as deployment:
        process = deployment.run(app, {"num-rounds": 3, "save": str(tmp_path / "run")})
        process.wait(240)
        assert (tmp_path / "run" / "model.safetensors").exists(), deployment.log("run")[-4000:]
    history = History.load(tmp_path / "run")
    assert history.about["ended"] == "limit of 3 rounds"
    assert history.rows[-1].loss < history.rows[0].loss
