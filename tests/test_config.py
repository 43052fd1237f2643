from pathlib import Path

import pytest

from flanp.checks import BadInput
from flanp.config import build, default_text, load_config
from flanp.config.families import FAMILIES
from flanp.data import CSV, Digits, Dirichlet
from flanp.participation import Everyone, Growing
from flanp.schedules import Shrinking
from flanp.solvers import FedAvg, FedGATE
from flanp.speeds import FromCSV, Uniform
from flanp.stopping import LossNoise
from flanp.work import Equal, SpeedMatched

SMALL = """
[problem]
name = "LinearRegression"
[data]
name = "Synthetic"
clients = 4
[solver]
name = "FedGATE"
eta = 0.05
"""


@pytest.fixture
def load(tmp_path):
    def load(text, *overrides):
        path = tmp_path / "c.toml"
        path.write_text(text)
        return load_config(path, overrides)

    return load


def test_the_bundled_default_is_valid_and_names_every_part():
    config = load_config(None)
    assert len(config.methods) >= 5
    for family in ("data", "speeds", "solver", "work", "participation"):
        for name in FAMILIES[family].members:
            assert name in default_text()


def test_the_readme_names_every_part():
    text = (Path(__file__).parents[1] / "README.md").read_text()
    inside = {"schedule", "local", "compression", "change"}  # parameters of other parts
    names = [name for family in FAMILIES.keys() - inside for name in FAMILIES[family].members]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_defaults(load):
    config = load(SMALL)
    (method,) = config.methods.values()
    assert list(config.methods) == ["FedGATE"]
    assert method.participation == Growing()
    assert method.stop == LossNoise()
    assert method.work == Equal(tau=10)
    assert config.speeds == Uniform()


def test_names_in_any_case_and_nested_parts(load):
    config = load(
        """
        problem = "mlp"
        [data]
        name = "digits"
        split = { name = "dirichlet", alpha = 0.3 }
        [solver]
        name = "fedgate"
        eta = 1
        schedule = "shrinking"
        """
    )
    assert config.data == Digits(split=Dirichlet(0.3))
    (method,) = config.methods.values()
    assert method.solver == FedGATE(eta=1.0, schedule=Shrinking(1.3))


def test_methods_take_what_they_lack_from_the_top_level(load):
    config = load(
        SMALL
        + '[methods.A]\n[methods.B]\nsolver={name="FedAvg",eta=0.2}\nparticipation="Everyone"\n'
    )
    assert config.methods["A"].solver == FedGATE(eta=0.05)
    assert config.methods["B"].solver == FedAvg(eta=0.2)
    assert config.methods["B"].participation == Everyone()


def test_overrides(load):
    config = load(
        SMALL,
        "solver.eta=0.2",
        "solver.name=FedAvg",
        "seeds=7",
        "speeds=Exponential",
        "speeds.rate=2.0",
        "target.loss=0.3",
        "data.clients = 9",
    )
    assert config.methods["FedAvg"].solver == FedAvg(eta=0.2)
    assert config.settings.seeds == 7
    assert config.settings.target == {"loss": 0.3}
    assert config.speeds.rate == 2.0
    assert config.data.clients == 9


def test_overrides_of_parts_that_the_file_leaves_out(load):
    config = load(SMALL, "participation.n0=2", "work.epochs=2", "work.batch=5", "speeds.high=60")
    (method,) = config.methods.values()
    assert method.participation == Growing(n0=2)
    assert method.work == Equal(epochs=2.0, batch=5)
    assert config.speeds == Uniform(high=60)


def test_methods_inherit_parameters_that_they_have(load):
    shared = '[work]\nname="Equal"\ntau=7\nbatch=3\n[methods.A.work]\nname="SpeedMatched"\n'
    config = load(SMALL + shared + "[methods.B.work]\nepochs=2\n")
    assert config.methods["A"].work == SpeedMatched(tau=7, batch=3)
    assert config.methods["B"].work == Equal(epochs=2, batch=3)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("solver.etta=0.1", r"solver.etta: unknown key; did you mean 'eta'\?"),
        ("sover.eta=0.1", r"sover: unknown key; did you mean 'solver'\?"),
        ("solver.name=FedGait", r"solver.name = 'FedGait': unknown; did you mean 'FedGATE'\?"),
        ("solver.eta=fast", r"solver.eta = 'fast': it must be a number from 1e-09"),
        ("solver.eta=-1", r"solver.eta = -1.0: it must be a number from 1e-09"),
        ("participation.n0=0", r"participation.n0 = 0: it must be a whole number from 1 to"),
        ("data.clients=2.5", r"data.clients = 2.5: it must be a whole number from 1 to"),
        ("seeds=0", r"seeds = 0: it must be a whole number from 1 to 10,000"),
        ("seeds=many", r"seeds = 'many': it must be a whole number from 1 to"),
        ("precision=float16", r"precision = 'float16': it must be 'float32' or 'float64'"),
        ("target=soon", r"target = 'soon': it must be 'statistical accuracy', or one level"),
        ("target={loss=1,distance=2}", r"target = .*: it must be one level"),
        ('solver.eta="0.1"', r"solver.eta = '0.1': it must be a number"),
        ('data.clients="7"', r"data.clients = '7': it must be a whole number from 1 to"),
        ("participation.n0=true", r"participation.n0 = True: it must be a whole number from 1 to"),
        ("participation.growth=inf", r"participation.growth = inf: it must be a number above 1"),
        ("data.condition=inf", r"data.condition = inf"),
        ("eta", r"write it as key.sub-key=value"),
        ("seeds.x=1", r"seeds: input should|'seeds' is not a table|seeds = "),
        ("methods=3", r"methods: it must hold a table"),
        ("methods.A.solvr=3", r"there is no method .A."),
        ("methods.A={solvr=3}", r"methods.A.solvr: unknown key; did you mean 'solver'"),
        ("methods.A=3", r"methods.A: it must be a table"),
        (
            "work=3",
            r"work = 3: it must be a name or a table with a name; there are: 'Equal', 'Sp",
        ),
        ("problem.name=nowhere:thing", r"cannot be imported"),
        ("problem.name=math:pi", r"it is a float, and must be a flanp.problems.*Problem"),
    ],
)
def test_bad_values_say_what_to_do(load, override, message):
    with pytest.raises(BadInput, match=message):
        load(SMALL, override)


def test_a_target_on_a_column_that_there_is_not(load):
    """Which ones there are is known when there is a run of the problem."""
    config = load(SMALL, "target.lost=0.1")
    message = "target.lost: there is no such column; did you mean 'loss'"
    with pytest.raises(BadInput, match=message):
        config.simulation(*config.methods.values())


def test_methods_are_told_apart_by_name(load):
    with pytest.raises(BadInput, match="one has no name"):
        load(SMALL + '[methods.""]\n[methods.A]\n')
    with pytest.raises(BadInput, match="there is no method 'flanp'; did you mean 'FLANP'"):
        load(SMALL + "[methods.FLANP]\n", "methods.flanp.solver.eta=0.01")
    assert load(SMALL, "solver.eta=.5").methods["FedGATE"].solver.eta == 0.5


def test_growth_and_n0_are_checked(load):
    participation = '[participation]\nname="Growing"\n'
    with pytest.raises(BadInput, match=r"participation.growth = 1.0: it must be a number above 1"):
        load(SMALL + participation + "growth=1.0\n")
    with pytest.raises(
        BadInput, match=r"participation.n0 = 0: it must be a whole number from 1 to"
    ):
        load(SMALL + participation + "n0=0\n")


@pytest.mark.parametrize("missing", ["problem", "data", "solver"])
def test_missing_parts(load, missing):
    text = SMALL.replace(f"[{missing}]", "[speeds]")
    with pytest.raises(BadInput, match=f"{missing}: it is missing|unknown"):
        load(text)


def test_files_that_cannot_be_read(tmp_path, load):
    with pytest.raises(BadInput, match="cannot be read"):
        load_config(tmp_path / "nothing.toml")
    with pytest.raises(BadInput, match="not valid TOML"):
        load("a = = 3")
    binary = tmp_path / "b.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="not a text file"):
        load_config(binary)


def test_relative_paths_are_looked_up_from_the_configuration(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    (tmp_path / "s.csv").write_text("0,1\n")
    raw = {
        "problem": "LinearRegression",
        "solver": {"name": "FedAvg", "eta": 0.1},
        "data": {"name": "CSV", "path": "t.csv", "target": "y", "clients": 1},
        "speeds": {"name": "FromCSV", "path": "s.csv"},
    }
    config = build(raw, tmp_path)
    assert config.data == CSV(tmp_path / "t.csv", target="y", clients=1)
    assert config.speeds == FromCSV(tmp_path / "s.csv")
    assert build(raw, Path("/nowhere")).data == CSV(Path("t.csv"), target="y", clients=1)


def test_your_own_problem_from_a_module_beside_the_file(tmp_path):
    (tmp_path / "mine_for_test.py").write_text(
        "import jax.numpy as jnp\nfrom flanp.problems import Custom\n"
        "problem = Custom(lambda key: jnp.zeros(2), lambda p, b: jnp.mean(b[0] @ p))\n"
    )
    (tmp_path / "c.toml").write_text(SMALL.replace("LinearRegression", "mine_for_test:problem"))
    assert type(load_config(tmp_path / "c.toml").problem).__name__ == "Custom"
    with pytest.raises(BadInput, match="takes no parameters"):
        load_config(tmp_path / "c.toml", ["problem.l2=1.0"])
    (tmp_path / "broken_for_test.py").write_text("1 / 0\n")
    with pytest.raises(BadInput, match="ZeroDivisionError"):
        load_config(tmp_path / "c.toml", ["problem.name=broken_for_test:problem"])
