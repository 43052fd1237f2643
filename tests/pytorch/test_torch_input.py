"""What cannot be trained is refused in one line, before the first round."""

import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'flanp[torch]'")

import torch

from flanp.checks import BadInput
from flanp.data import from_clients
from flanp.problems import Torch

from nets import Plain, Realistic, cross_entropy, labelled, run


def frozen():
    return Plain().requires_grad_(False)


def infinite():
    module = Plain()
    torch.nn.init.constant_(module[0].weight, float("nan"))
    return module


def overflowing():
    module = Plain()
    torch.nn.init.constant_(module[2].weight, 3e38)
    return module


def elsewhere(outputs, y):
    return torch.zeros((), requires_grad=False) + y.float().mean()


def by_row(outputs, y):
    return cross_entropy(outputs, y, reduction="none")


def counted(outputs, y):
    return int((outputs.argmax(1) == y).sum())


@pytest.mark.parametrize(
    ("module", "loss", "words"),
    [
        (frozen, cross_entropy, "no parameter that requires a gradient"),
        (infinite, cross_entropy, "parameters that are NaN or infinite"),
        (overflowing, cross_entropy, "of the start model is"),
        (dict, cross_entropy, r"module \(dict\) returns a dict: it must be an nn.Module"),
        (torch.nn.Linear, cross_entropy, "it must take no arguments"),
        (Plain(), cross_entropy, "a Plain already: give its class"),
        (Plain, elsewhere, "does not depend on the module's parameters"),
        (Plain, by_row, r"returns \[7\]: it must be one float"),
        (Plain, counted, "returns int: it must be one float"),
        (lambda: torch.nn.Linear(5, 3), cross_entropy, r"it must take inputs of shape \[7, 6\]"),
        (Plain, torch.nn.functional.mse_loss, "the outputs and targets of shape"),
    ],
)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_it_is_refused(module, loss, words):
    with pytest.raises(BadInput, match=words) as error:
        run(module, loss=loss)
    assert "\n" not in str(error.value)


def test_metrics_are_functions_by_name():
    assert [m.name for m in Torch(Plain, cross_entropy, {"mine": counted}).metrics] == ["mine"]
    with pytest.raises(BadInput, match="give functions of"):
        Torch(Plain, cross_entropy, "accuracy")
    with pytest.raises(BadInput, match="two called 'test_error'"):
        run(metrics=Torch(Plain, cross_entropy).metrics)


def test_without_pytorch_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "flanp.pytorch.flat", None)
    with pytest.raises(BadInput, match=r"pip install 'flanp\[torch\]'"):
        run()


def test_data_without_targets_is_refused():
    data = from_clients([(np.ones((3, 6)),)] * 2)
    with pytest.raises(BadInput, match="needs inputs and targets"):
        run(data=data)


def test_labels_that_are_no_classes_have_no_error_rate():
    data = labelled()
    assert run(data=data).engine.metrics == {"test_error": False}
    assert run(data=data, problem={"metrics": {}}).engine.metrics == {}


def test_a_batch_of_one_row_is_noticed_before_the_first_round():
    with pytest.raises(BadInput, match="Expected more than 1 value per channel"):
        run(Realistic, data=labelled((7, 11)))


def test_padding_comes_after_the_rows():
    data = labelled()
    with pytest.raises(BadInput, match="padding after a client's rows"):
        run(data=replace(data, weights=data.weights[:, ::-1].copy()))
