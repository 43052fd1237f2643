"""States and models of any form: they come back from a checkpoint as they were."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flanp.checks import BadInput
from flanp.hooks import Checkpointer
from flanp.problems import Custom
from flanp.solvers import Solver

from small import short_run


def resumed(folder, rounds=8, cut=4, **options):
    """Return the rows of a run that was cut and went on, and those of one that was not."""
    whole = short_run(max_rounds=rounds, **options)
    whole.to_the_end()
    first = short_run(max_rounds=cut, **options)
    first.to_the_end()
    first.save(folder)
    again = short_run(max_rounds=rounds, resume=folder, **options)
    again.to_the_end()
    return again, whole


@dataclass(frozen=True)
class Kept(Solver):
    """Keeps states of a given form, and looks at it in each step."""

    start: Any = None

    def server_start(self, w):
        return self.start(w)

    def client_start(self, w):
        return self.start(w)

    def server_step(self, w, server, m, step):
        same(server, self.start(w))
        return w - step.eta * m, server

    def client_step(self, client, server, m_i, m, step):
        same(client, self.start(m))
        return client


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert [np.shape(x) for x in jax.tree.leaves(a)] == [np.shape(x) for x in jax.tree.leaves(b)]


def scalar(w):
    return (0.0, 0 * w)


def counter(w):
    return {"t": 0 * w[0], "v": 0 * w}


def with_none(w):
    return (0 * w, None)


def nested_none(w):
    return {"v": [0 * w, None], "extra": None}


@pytest.mark.parametrize("start", [scalar, counter, with_none, nested_none])
def test_states_come_back_in_the_form_they_had(start, tmp_path):
    again, whole = resumed(tmp_path, solver=Kept(eta=0.05, start=start))
    assert again.history.rows == whole.history.rows
    same(again.state.model.server, whole.state.model.server)


def one_name_twice(w):
    return {"a.b": 0 * w, "a": {"b": 0 * w + 5}}


def test_two_arrays_of_one_name_are_refused():
    with pytest.raises(BadInput, match=r"two arrays .*'a\.b'"):
        short_run(Kept(eta=0.05, start=one_name_twice))
    problem = Custom(
        lambda key: {"a.b": jnp.zeros(3), "a": {"b": jnp.zeros(())}},
        lambda p, b: jnp.mean((b[0] @ p["a.b"] + p["a"]["b"] - b[1]) ** 2),
    )
    with pytest.raises(BadInput, match=r"two arrays .*'a\.b'"):
        short_run(problem=problem)


@jax.tree_util.register_dataclass
@dataclass
class Weights:
    slope: Any
    offset: Any


def test_a_model_of_any_registered_class_is_saved_as_it_is(tmp_path):
    problem = Custom(
        lambda key: Weights(jnp.zeros(3), [jnp.zeros(()), ()]),
        lambda p, b: jnp.mean((b[0] @ p.slope + p.offset[0] - b[1]) ** 2),
    )
    short_run(problem=problem, hooks=[Checkpointer(tmp_path)]).to_the_end()
    from safetensors.numpy import load_file

    saved = load_file(tmp_path / "model.safetensors")
    assert {name: a.shape for name, a in saved.items()} == {"slope": (3,), "offset.0": ()}
