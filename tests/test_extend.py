"""Parts of a user's own: each file of docs/extend.md, from Python and from a configuration."""

import runpy
import sys
import tomllib

import pytest

from flanp.checks import BadInput
from flanp.config import build as build_config
from flanp.config import load_config
from flanp.config.families import FAMILIES

from documents import BLOCKS, runs_without_extras

PAGE = [b for b in BLOCKS if b.page == "docs/extend.md" and runs_without_extras(b)]
FILES = {
    block.text.splitlines()[0].removeprefix("# "): block.text
    for block in PAGE
    if block.text.startswith("# my_")
}
TABLES = [block.text for block in PAGE if block.language == "toml"]
BASE = """
max_rounds = 12
problem = {{ name = "{problem}" }}
data = {{ name = "{data}", clients = 10 }}
"""


def write(folder, *files):
    for name in files:
        (folder / name).write_text(FILES[name])


@pytest.mark.parametrize("name", FILES)
def test_a_file_runs_as_it_stands(name, tmp_path, monkeypatch, capsys):
    write(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(name, run_name="__main__")
    assert capsys.readouterr().out


def test_files_are_as_short_as_the_page_says():
    for text in FILES.values():
        assert 18 <= len(text.splitlines()) <= 40


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.split()[0])
def test_a_configuration_names_it(table, tmp_path, monkeypatch):
    metric = table.startswith("metrics")
    problem, data = (
        ("LogisticRegression", "Digits") if metric else ("LinearRegression", "Synthetic")
    )
    text = BASE.format(problem=problem, data=data)
    if not table.startswith("solver"):
        text += 'solver = { name = "FedGATE", eta = 0.05 }\n'
    (tmp_path / "mine.toml").write_text(text + table)
    write(tmp_path, *FILES)
    config = load_config(tmp_path / "mine.toml")
    (method,) = config.methods.values()
    run = config.simulation(method)
    history = run.to_the_end()
    assert history.rows[-1].round > 3
    family, given = next(iter(tomllib.loads(table).items()))
    if metric:
        assert set(history.metrics) == {"test_error", "accuracy", "confidence"}
        assert 0 < history.rows[-1].metrics["confidence"] < 1
        assert history.metrics["accuracy"] is True
    else:
        described = history.about[family]
        name = given.pop("name").partition(":")[2]
        assert described["name"] == name
        assert described.items() >= given.items()


def build(tmp_path, code, line):
    (tmp_path / "mine.py").write_text(code)
    for name in [name for name in sys.modules if name == "mine"]:
        del sys.modules[name]
    base = {"solver": 'solver = { name = "FedGATE", eta = 0.05 }'}
    text = BASE.format(problem="LinearRegression", data="Synthetic")
    if not line.startswith("solver"):
        text += base["solver"] + "\n"
    (tmp_path / "mine.toml").write_text(text + line)
    config = load_config(tmp_path / "mine.toml")
    (method,) = config.methods.values()
    return config.simulation(method)


SOLVER = """
from dataclasses import dataclass
from flanp.solvers import Solver

@dataclass(frozen=True)
class Mine(Solver):
    {body}
"""


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("", 'solver = { name = "mine:Absent", eta = 0.1 }', "cannot be imported: AttributeError"),
        ("", 'solver = { name = "nowhere:X", eta = 0.1 }', "ModuleNotFoundError: No module named"),
        ("x = 1\n1 / 0\n", 'stop = { name = "mine:X" }', r"ZeroDivisionError.*mine\.py, line 2"),
        ("x = (\n", 'work = { name = "mine:X" }', r"SyntaxError.*mine\.py, line 1"),
        ("X = 3", 'solver = { name = "mine:X", eta = 0.1 }', r"it is a int, and must be a flanp"),
        ("class X: pass", 'speeds = { name = "mine:X" }', "it is the class X, and must be a"),
        ("", 'participation = { name = "mine:" }', "write it as module:attribute"),
        ("def f(p, b): return p", 'metrics = "mine:f"', "it must be a list of your own"),
        ("f = 3", 'metrics = ["mine:f"]', "it is a int, and must be a function"),
        (
            SOLVER.format(body="def server_step(self, w, server, m): return w"),
            'solver = { name = "mine:Mine", eta = 0.1 }',
            r"Mine.server_step failed .*it must take \(w, server, m, step\)",
        ),
        (
            SOLVER.format(body="beta: float = 0.1"),
            'solver = { name = "mine:Mine", eta = 0.1 }',
            "Mine lacks server_step: define it",
        ),
        (
            SOLVER.format(
                body="def server_step(self, w, server, m, step): return w - m, server\n"
                "    def direction(self, g, drift, w_i, w): return g / (g @ g)"
            ),
            'solver = { name = "mine:Mine", eta = 0.1 }',
            "Mine.direction must treat each coordinate by itself",
        ),
        (
            SOLVER.format(
                body="def server_step(self, w, server, m, step): return w - m, server\n"
                "    def client_start(self, w): return {'a': w}\n"
                "    def client_step(self, client, server, m_i, m, step): return m"
            ),
            'solver = { name = "mine:Mine", eta = 0.1 }',
            "Mine.client_step returned a state of arrays",
        ),
        (
            SOLVER.format(body="def server_step(self, w, server, m, step): return w - m, server"),
            'solver = { name = "mine:Mine", eta = 0.1, rho = 3.0 }',
            "solver.rho: unknown key",
        ),
    ],
)
def test_what_is_wrong_with_a_part_is_told_in_words(tmp_path, code, line, message):
    with pytest.raises(BadInput, match=message):
        build(tmp_path, code, line).to_the_end()


STATES = {
    "a tuple": "return (0 * w, 1.0 * w.sum())",
    "a dict": "return {'a': 0 * w, 'count': 0 * w.sum(), 'nothing': ()}",
}


@pytest.mark.parametrize("form", STATES)
def test_a_state_of_any_form_is_kept_in_a_checkpoint(tmp_path, form):
    """Also a tuple, and one whose arrays are not of the model's shape."""
    first = "client[0]" if form == "a tuple" else "client['a']"
    after = (
        "(client[0] + m_i - m, client[1] + 1)"
        if form == "a tuple"
        else "{'a': client['a'] + m_i - m, 'count': client['count'] + 1, 'nothing': ()}"
    )
    body = f"""def client_start(self, w): {STATES[form]}
    def drift(self, client, server): return {first}
    def direction(self, g, drift, w_i, w): return g - drift
    def message(self, Delta_i, tau_i, client, server): return Delta_i / tau_i
    def server_step(self, w, server, m, step):
        return w - step.eta * step.tau_mean * m, server
    def client_step(self, client, server, m_i, m, step): return {after}
"""
    line = 'solver = { name = "mine:Mine", eta = 0.1 }\nparticipation = "Everyone"\nstop = "Never"'
    whole = build(tmp_path, SOLVER.format(body=body), line)
    whole.to_the_end()
    cut = build(tmp_path, SOLVER.format(body=body), line)
    assert whole.state.rounds == 12
    for _ in cut:
        if cut.state.rounds == 5:
            break
    cut.save(tmp_path / "saved")
    config = load_config(tmp_path / "mine.toml")
    again = config.simulation(*config.methods.values(), resume=tmp_path / "saved")
    again.to_the_end()
    assert again.history.rows == whole.history.rows
    from flanp import Method, prepare
    from flanp.participation import Everyone
    from flanp.solvers import FedGATE
    from flanp.stopping import Never

    gate = prepare(
        config.problem, config.data, Method(FedGATE(eta=0.1), Everyone(), Never()), max_rounds=12
    ).to_the_end()
    assert [row.loss for row in gate.rows] == pytest.approx([r.loss for r in again.history.rows])


OWN = """
import flanp

data = flanp.data.Synthetic(clients=6)
loaded = flanp.data.Synthetic(clients=6).load(0)
split = flanp.data.IID()
problem = flanp.problems.LinearRegression()
speeds = flanp.speeds.Homogeneous()
change = flanp.speeds.Drift()
availability = flanp.availability.Random()
network = flanp.network.Exchange(2.0)
solver = flanp.solvers.FedAvg(eta=0.05)
schedule = flanp.schedules.Shrinking()
local = flanp.solvers.Momentum(0.5)
compression = flanp.compression.QSGD(6)
participation = flanp.participation.Everyone()
stop = flanp.stopping.FixedRounds(2)
work = flanp.work.Equal(tau=3)
patience = flanp.patience.Quorum(0.5)
"""
INSIDE = {"split": "data", "schedule": "solver", "local": "solver", "compression": "solver"}
INSIDE |= {"change": "speeds"}
"""Families whose parts are parameters of another part."""


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("as_class", [True, False])
def test_every_family_takes_a_module_and_an_attribute(tmp_path, family, as_class):
    code = OWN + f"\n\nclass Mine(type({family})):\n    pass\n"
    tables = {
        "problem": {"name": "LinearRegression"},
        "data": {"name": "Synthetic", "clients": 6},
        "solver": {"name": "FedGATE", "eta": 0.05},
        "speeds": {"name": "Uniform"},
    }
    given = {"name": "mine:Mine" if as_class else f"mine:{family}"}
    if as_class:  # the parameters that a class of the family must have
        given |= {"solver": {"eta": 0.05}, "stop": {"rounds": 2}, "work": {"tau": 3}}.get(
            family, {}
        )
    if family == "split":
        tables["data"] = {"name": "Digits", "clients": 6}
        tables["problem"] = {"name": "LogisticRegression"}
    if family in INSIDE:
        tables[INSIDE[family]][family] = given
    else:
        tables[family] = given
    (tmp_path / "mine.py").write_text(code)
    sys.modules.pop("mine", None)
    config = build_config({"max_rounds": 3, **tables}, tmp_path)
    run = config.simulation(*config.methods.values())
    assert run.to_the_end().rows[-1].round >= 2
