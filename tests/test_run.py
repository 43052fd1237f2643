"""What a run keeps whatever ends it: rules judged once, hooks named, nothing said to be saved."""

from dataclasses import dataclass

import numpy as np
import pytest

from flanp import Checkpointer, Hook, Method, Metric, prepare
from flanp.checks import BadInput
from flanp.data import from_clients
from flanp.measurement import Look
from flanp.participation import Growing, Participation, RandomK
from flanp.patience import Quorum
from flanp.problems import LinearRegression
from flanp.solvers import FedAvg, FedGATE, Solver
from flanp.speeds import Measured
from flanp.stopping import FixedRounds, StageRule
from flanp.work import Equal

from small import linear_clients


@dataclass(frozen=True)
class Counts(StageRule):
    """Ends a stage when it has been asked five times."""

    def looks_at(self, stage, rounds):
        return Look.ACTIVE

    def met(self, memory, stage, rounds, seen):
        asked = 1 if rounds == 0 else memory["asked"] + 1
        return asked > 5, {"asked": asked}


def simulation(method=None, **options):
    method = method or Method(FedGATE(eta=0.05), Growing(n0=2), Counts(), Equal(tau=2))
    return prepare(LinearRegression(), from_clients(linear_clients(5)), method, **options)


class Stop(Hook):
    def __init__(self, at, error):
        self.at, self.error = at, error

    def on_row(self, run, row):
        if row.round == self.at:
            raise self.error


@pytest.mark.parametrize("at", [2, 5, 8])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), KeyError("x")])
def test_a_rule_is_asked_once_for_each_round_also_across_a_resume(tmp_path, at, error):
    hooks = [Stop(at, error), Checkpointer(tmp_path, every=1e9)]
    with pytest.raises((KeyboardInterrupt, BadInput)):
        simulation(hooks=hooks).to_the_end()
    again = simulation(resume=tmp_path).to_the_end()
    assert again.rows == simulation().to_the_end().rows
    assert [stage["rounds"] for stage in again.stages()] == [5, 5, 5]


def test_going_on_after_a_break_asks_no_rule_twice():
    run = simulation()
    for row in run:
        if row.round == 3:
            break
    list(run)
    assert run.history.rows == simulation().to_the_end().rows


@pytest.mark.parametrize("error", [ConnectionError("refused"), BadInput("no"), ValueError("x")])
def test_a_hook_of_the_users_is_named_whatever_it_raises(error):
    with pytest.raises(BadInput, match="the hook Stop.on_row failed"):
        simulation(hooks=[Stop(1, error)]).to_the_end()


def test_what_could_not_be_saved_is_told_with_what_ended_the_run(tmp_path):
    folder = tmp_path / "a file"
    folder.write_text("")
    hooks = [Stop(2, KeyboardInterrupt()), Checkpointer(folder, every=1e9)]
    with pytest.raises(KeyboardInterrupt) as caught:
        simulation(hooks=hooks).to_the_end()
    assert any(str(folder) in note for note in caught.value.__notes__)


def test_a_stage_is_told_once(tmp_path):
    class Stages(Hook):
        def __init__(self):
            self.seen = []

        def on_stage(self, run, stage):
            self.seen.append(stage["n"])

    first, second = Stages(), Stages()
    run = simulation(hooks=[first], max_rounds=10)
    run.to_the_end()
    run.save(tmp_path)
    simulation(hooks=[second], resume=tmp_path).to_the_end()
    assert (first.seen, second.seen) == ([2], [4, 5])


def test_a_resumed_run_at_its_target_ends_at_once(tmp_path):
    run = simulation(target={"loss": 0.3})
    run.to_the_end()
    run.save(tmp_path)
    again = simulation(target={"loss": 0.3}, resume=tmp_path)
    assert str(again.to_the_end().ended) == "target reached"
    assert again.state.rounds == run.state.rounds


def test_speeds_are_learnt_from_late_replies_too():
    """Whoever is late would else be known by its quickest rounds only."""
    speeds = Measured((1.0, 1.1, 1.2, 1.3), jitter=1.0, known=False)
    method = Method(FedAvg(eta=0.01), Growing(n0=4), FixedRounds(300), Equal(tau=1), Quorum(0.5))
    data = from_clients(linear_clients(4))
    run = prepare(LinearRegression(), data, method, speeds, max_rounds=300)
    heard = {i: [] for i in range(4)}
    ask = run.engine.ask

    def listening(*args):
        reply = ask(*args)
        for i, seconds, _ in reply.heard:
            heard[i].append(seconds)
        return reply

    run.engine.ask = listening
    run.to_the_end()
    for i, reports in heard.items():
        assert np.mean(reports) == pytest.approx(speeds.seconds[i], rel=0.35)


def mine(body):
    names = {"Solver": Solver, "dataclass": dataclass, "np": np}
    code = "@dataclass(frozen=True)\nclass Mine(Solver):\n" + body
    exec(code, names)
    return names["Mine"]


STEP = "    def server_step(self, w, server, m, step): return w - step.eta * m, server\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    def server_step(self, w, server, m, step): return w - np.linalg.norm(m), server\n",
         r"Mine.server_step failed .*traced by JAX"),
        (STEP + "    def message(self, D, t, c, s): return D if self.eta > 0.1 else 2 * D\n",
         r"Mine.message failed .*traced by JAX"),
        (STEP + "    def client_start(self, w): return {'t': 0}\n"
         "    def client_step(self, c, s, m_i, m, step): return {'t': c['t'] + 0.5}\n",
         "kinds of numbers"),
    ],
)  # fmt: skip
def test_what_jax_cannot_trace_is_told_in_words(body, message):
    with pytest.raises(BadInput, match=message):
        simulation(Method(mine(body)(eta=0.05)))


def test_a_server_may_tell_something_that_it_computes():
    body = (
        "    def server_start(self, w): return 0 * w\n"
        "    def tell(self, server): return server / 2\n"
        "    def server_step(self, w, server, m, step): return w - step.eta * m, server + m\n"
    )
    assert simulation(Method(mine(body)(eta=0.05)), max_rounds=3).to_the_end().rows[-1].round == 3


def test_what_a_solver_has_worked_out_for_one_step_size_is_not_used_for_another():
    body = (
        "    from functools import cached_property\n"
        "    @cached_property\n"
        "    def double(self): return 2 * self.eta\n"
        "    def server_step(self, w, server, m, step): return w - self.double * m, server\n"
    )
    kind = mine(body)
    losses = []
    for eta in (0.01, 0.04):
        solver = kind(eta=eta)
        assert solver.double == 2 * eta
        losses.append(simulation(Method(solver), max_rounds=4).to_the_end().rows[-1].loss)
    plain = [
        simulation(Method(FedAvg(eta=eta, gamma=2.0)), max_rounds=4).to_the_end().rows[-1].loss
        for eta in (0.01, 0.04)
    ]
    assert losses == pytest.approx(plain)


@pytest.mark.parametrize("pool", ["abc", [0], [0, 1, 2, 9]])
def test_a_pool_that_is_none_is_refused(pool):
    @dataclass(frozen=True)
    class Odd(Participation):
        def stages(self, N):
            return [3]

        def pool(self, n, ranking):
            return pool

        def select(self, n, known):
            return known.ranking[:n]

    with pytest.raises(BadInput, match="Odd.pool"):
        simulation(Method(FedAvg(eta=0.05), Odd())).to_the_end()


def test_a_metric_needs_held_out_data():
    with pytest.raises(BadInput, match="no held-out rows"):
        simulation(metrics=[Metric("m", lambda params, batch: 1.0)])


def test_the_last_participants_do_not_decide_what_a_random_policy_resumes_with(tmp_path):
    def run(**options):
        method = Method(FedAvg(eta=0.05), RandomK(3), FixedRounds(9), Equal(tau=2))
        return simulation(method, **options)

    cut = run(max_rounds=4)
    cut.to_the_end()
    cut.save(tmp_path)
    assert run(resume=tmp_path).to_the_end().rows == run().to_the_end().rows


def test_records_become_rarer_as_time_grows():
    run = simulation(max_rounds=200, endless=True, record_growth=0.5)
    times = [row.time for row in run if row.round][:-1]
    every = [row.time for row in simulation(max_rounds=200, endless=True)]
    assert len(times) < 20
    for before, after in zip(times, times[1:], strict=False):
        between = [time for time in every if before < time < after]
        assert all(time < 1.5 * before for time in between)
