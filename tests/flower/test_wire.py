"""What travels, and what is refused before it does."""

import jax
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from flanp.checks import BadInput
from flanp.data import from_clients
from flanp.flower import OwnTraining, arrays_of, client
from flanp.flower.models import nested
from flanp.flower.vectors import names_of
from flanp.problems import MLP
from flanp.solvers import FedGATE
from flanp.stopping import Authors

from fleets import strategy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(solver=OwnTraining()), "needs a solver"),
        (dict(seed=-1), "seed"),
        (dict(stop=Authors()), "GradientNoise"),
        (dict(resume=True), "save"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        strategy(**{"solver": FedGATE(eta=0.05), **options})


def test_a_client_needs_a_loss_or_a_gradient():
    with pytest.raises(BadInput, match="loss"):
        client(data=lambda context: ())


def test_models_travel_as_arrays_with_names():
    params = MLP(widths=(4,)).init(
        jax.random.key(0), from_clients([(np.ones((2, 3)), np.array([0, 2]))], classes=3)
    )
    arrays = arrays_of(params)
    assert list(arrays) == ["0.W", "0.b", "1.W", "1.b"]
    names = names_of(arrays)
    back = nested(names.split(names.ravel(arrays)))
    jax.tree.map(np.testing.assert_array_equal, back, params)


def test_integers_in_a_model_keep_their_type():
    arrays = ArrayRecord({"w": Array(np.ones(2, np.float32)), "steps": Array(np.array(7))})
    names = names_of(arrays)
    record = names.record(names.ravel(arrays))
    assert record["steps"].numpy() == 7
    assert record["steps"].numpy().dtype == np.int64
    assert names.ravel(arrays).dtype == np.float32


def test_batch_norm_is_refused():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(BadInput, match="GroupNorm"):
        arrays_of(torch.nn.BatchNorm1d(3))
