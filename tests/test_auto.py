"""The method that is chosen for the clients at hand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanp import Method, auto, network, prepare, speeds
from flanp.checks import BadInput
from flanp.config import load_config
from flanp.data import Synthetic
from flanp.participation import Everyone, Known, Nimble
from flanp.problems import LinearRegression
from flanp.solvers import FedGATE, Memory, Tracking
from flanp.tuning import knobs_of
from flanp.work import Balanced, Equal


def known(T, exchange=None, ranking=None):
    T = np.asarray(T, float)
    exchange = np.zeros(len(T)) if exchange is None else np.asarray(exchange, float)
    ranking = np.arange(len(T)) if ranking is None else np.asarray(ranking)
    return Known(ranking, T, exchange, np.full(len(T), 10.0), Equal(tau=1))


@given(
    st.lists(st.floats(0.1, 100), min_size=2, max_size=60),
    st.floats(0, 50),
    st.floats(0, 20),
    st.sampled_from([1, 7]),
)
def test_as_many_of_the_fastest_take_part_as_pay(T, exchange, worth, tau):
    policy, N = Nimble(worth=worth), len(T)
    (n,) = policy.stages(N)
    here = replace(known(T, np.full(N, exchange)), work=Equal(tau=tau))
    chosen = policy.select(n, here)
    seconds = np.sort(tau * np.array(T) + exchange)
    cost = [seconds[k - 1] * (1 + worth / k) for k in range(n, N + 1)]
    assert cost[len(chosen) - n] == pytest.approx(min(cost), rel=1e-12)
    assert np.sort(np.array(T)[chosen]).tolist() == sorted(T)[: len(chosen)]


def test_who_has_more_steps_to_do_is_slower():
    s = np.array([10.0] * 18 + [1000.0] * 2)
    here = replace(known(np.ones(20)), s=s, work=Equal(epochs=1, batch=10))
    assert len(Nimble().select(2, here)) == 18


def test_whoever_is_not_known_yet_takes_no_part_unless_it_is_needed():
    T = [np.inf, 3.0, 1.0, np.inf, 2.0]
    assert {*Nimble().select(2, known(T)).tolist()} <= {1, 2, 4}
    assert len(Nimble().select(4, known(T))) == 4


def test_who_is_fast_is_seen_anew_in_each_round():
    """The ranking is that of the stage's begin."""
    late = known([9.0, 1.0, 5.0, 2.0], ranking=[0, 2, 1, 3])
    assert Nimble().select(2, late).tolist() == [1, 3]


def test_where_all_are_alike_everyone_takes_part():
    assert Nimble().select(5, known(np.ones(100))).tolist() == list(range(100))
    kind = {"max_rounds": 6, "precision": "float64"}
    rows = [
        list(
            prepare(
                LinearRegression(),
                Synthetic(clients=9, samples=20, dim=4),
                method,
                speeds.Homogeneous(),
                **kind,
            )
        )
        for method in (auto(0.1), Method(FedGATE(0.1), Everyone(), work=Equal(tau=1)))
    ]
    for ours, theirs in zip(*rows, strict=True):
        assert ours.n == theirs.n
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-12)


def test_rounds_have_more_steps_where_exchanges_cost_more():
    def seconds_of_a_round(steps):
        run = prepare(
            LinearRegression(),
            Synthetic(clients=16, samples=20, dim=4),
            auto(0.1),
            speeds.Homogeneous(),
            network=network.Exchange(steps),
            max_rounds=2,
        )
        return np.diff([row.time for row in run])[1]

    assert seconds_of_a_round(0.0) == pytest.approx(1.0)
    assert seconds_of_a_round(25.0) == pytest.approx(25.0 + 5, rel=1e-6)


def test_with_mini_batches_nobody_waits():
    method = auto(0.1, batch=10)
    assert (method.solver, method.participation) == (Tracking(0.1, rho=0.2), Everyone())
    assert method.work == Balanced(tau=1, batch=10, roots=3.0)


def test_in_rounds_mini_batches_take_more_clients_and_more_steps():
    one, some = auto(0.1), auto(0.1, batch=10, in_rounds=True)
    assert auto(0.1, in_rounds=True) == one
    apart = known(np.arange(1.0, 101.0) + 30.0)
    assert len(some.participation.select(5, apart)) > len(one.participation.select(5, apart)) > 5
    assert some.work.roots > one.work.roots
    assert some.solver.rho < one.solver.rho == 1
    assert some.work.batch == 10


def test_tuning_leaves_its_tau_alone():
    assert list(knobs_of(auto(0.1), ["eta", "tau"], N=10)) == ["solver.eta"]


TEXT = """
seeds = 2
[data]
name = "Synthetic"
clients = 12
[problem]
name = "LinearRegression"
[solver]
name = "FedGATE"
eta = 0.3
[work]
name = "Equal"
tau = 7
batch = 5
[participation]
name = "RandomK"
k = 3
"""


def config(tmp_path, text, *overrides):
    path = tmp_path / "a.toml"
    path.write_text(text)
    return load_config(path, overrides)


def test_a_configuration_chooses_by_a_word(tmp_path):
    expected = auto(0.3, batch=5)
    (chosen,) = config(tmp_path, TEXT, "method=auto").methods.values()
    assert chosen == expected
    methods = config(tmp_path, TEXT + '[methods.A]\nmethod = "auto"\n[methods.B]\n').methods
    step = config(tmp_path, TEXT + '[methods.A]\nmethod = "auto"\nsolver.eta = 0.1\n').methods
    assert step["A"] == auto(0.1, batch=5)
    with pytest.raises(BadInput, match="beside .methods. it would make the same of all"):
        config(tmp_path, TEXT + "[methods.A]\n[methods.B]\n", "method=auto")
    assert methods["A"] == expected
    assert methods["B"].solver == FedGATE(0.3)
    own = '[methods.A]\nmethod = "auto"\nwork = { name = "Equal", tau = 2 }\n'
    method = config(tmp_path, TEXT + own).methods["A"]
    assert (method.solver, method.work) == (Tracking(0.3, rho=0.2), Equal(tau=2, batch=5))
    without = TEXT.replace("batch = 5\n", "")
    batch = '[methods.A]\nmethod = "auto"\nwork.batch = 9\n'
    assert config(tmp_path, without + batch).methods["A"] == auto(0.3, batch=9)
    (chosen,) = config(tmp_path, without, "method=auto").methods.values()
    assert chosen == auto(0.3)


@pytest.mark.parametrize(
    "own",
    [
        'solver = { name = "Memory" }',
        'participation = { name = "Nimble", worth = 6.0 }',
        'patience = { name = "Deadline", seconds = 9.0 }',
    ],
)
def test_what_is_named_beside_it_decides_whether_there_are_rounds(tmp_path, own):
    method = config(tmp_path, TEXT + f'[methods.A]\nmethod = "auto"\n{own}\n').methods["A"]
    expected = auto(0.3, batch=5, in_rounds=True)
    assert (method.solver, method.participation) == (expected.solver, expected.participation)
    assert method.work == expected.work
    buffered = TEXT + '[methods.A]\nmethod = "auto"\nsolver = { name = "FedBuff" }\n'
    assert config(tmp_path, buffered).methods["A"].participation == Everyone()


def test_a_deadline_for_all_methods_needs_rounds(tmp_path):
    text = TEXT + '[patience]\nname = "Deadline"\nseconds = 9.0\n[methods.A]\nmethod = "auto"\n'
    assert type(config(tmp_path, text).methods["A"].solver) is Memory


@pytest.mark.parametrize("value", ["auot", 3, ["auto"], {"name": "auto"}])
def test_anything_else_is_refused_in_words(tmp_path, value):
    text = f"method = {json.dumps(value)}\n" if not isinstance(value, dict) else ""
    text += TEXT + ("[method]\nname = 'auto'\n" if isinstance(value, dict) else "")
    with pytest.raises(BadInput, match='method = .*it can be "auto"'):
        config(tmp_path, text)
