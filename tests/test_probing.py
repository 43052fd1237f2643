"""A user's own problem that goes wrong: one line that names the function and what is expected."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flanp
from flanp import Method, Metric
from flanp.checks import BadInput
from flanp.problems import Custom, LinearRegression

DATA = flanp.data.from_clients([(np.ones((3, 2)), np.ones(3))] * 2, test=(np.ones((2, 2)), [1, 0]))


AVG = Method(flanp.solvers.FedAvg(eta=0.1))
GATE = Method(flanp.solvers.FedGATE(eta=0.1))


def loss(params, batch):
    x, y = batch
    return jnp.mean((x @ params - y) ** 2)


def measured(function, higher_is_better=None):
    return (Metric("mine", function, higher_is_better),)


def start(key):
    return jnp.zeros(2)


@jax.custom_vjp
def undifferentiable(x):
    return x


undifferentiable.defvjp(lambda x: (x, None), lambda _, g: 1 / 0)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"init_fn": lambda: jnp.zeros(2)},
            r"init_fn .*failed \(TypeError.*take a random key",
        ),
        ({"init_fn": lambda key: sys.exit(3)}, r"init_fn .*failed \(SystemExit: 3\)"),
        ({"init_fn": lambda key: 1 / 0}, r"init_fn .*ZeroDivisionError"),
        ({"init_fn": lambda key: "zeros"}, r"leaf of type str: all must be floats"),
        ({"init_fn": lambda key: None}, r"has no parameters"),
        ({"init_fn": lambda key: [jnp.zeros(2), key]}, r"leaf of type key<.*>: all must be floats"),
        ({"init_fn": lambda key: jnp.zeros(2, int)}, r"leaf of type int32"),
        ({"init_fn": lambda key: jnp.array([0.0, jnp.nan])}, r"NaN or infinite"),
        ({"init_fn": lambda key: jnp.zeros(5)}, r"loss_fn \(loss\) failed .*shapes \[\[1, 2\]"),
        ({"init_fn": 3}, r"init_fn = 3: it must be a function"),
        ({"loss_fn": lambda p, b: float(p.sum())}, r"loss_fn .*failed .*no float\(\)"),
        ({"loss_fn": lambda p, b: sys.exit()}, r"loss_fn .*failed \(SystemExit"),
        ({"loss_fn": lambda p: p.sum()}, r"loss_fn .*failed \(TypeError.*it must take the model"),
        ({"loss_fn": lambda p, b: p}, r"loss_fn .*returns float32\[2\]: it must be one float"),
        ({"loss_fn": lambda p, b: (p.sum(), p)}, r"loss_fn .*returns float32\[\], float32\[2\]"),
        ({"loss_fn": lambda p, b: None}, r"loss_fn .*returns nothing"),
        ({"loss_fn": lambda p, b: p.sum().astype(int)}, r"loss_fn .*returns int32"),
        ({"loss_fn": lambda p, b: undifferentiable(p.sum())}, r"the gradient of loss_fn .*failed"),
        (
            {"metrics": measured(lambda p, b: p)},
            r"the metric mine .*returns float32\[2\]: it must be one number",
        ),
        ({"metrics": measured(lambda p, b: sys.exit())}, r"the metric mine .*failed"),
    ],
)
def test_functions_that_go_wrong(parts, message):
    problem = lambda: Custom(**{"init_fn": start, "loss_fn": loss, **parts})  # noqa: E731
    with pytest.raises(BadInput, match=f"(?s){message}") as caught:
        flanp.simulate(problem(), DATA, AVG)
    assert "\n" not in str(caught.value)


def scanned(params, batch):
    x, y = batch
    add = lambda total, j: (total + x[:, j] * params[j], None)  # noqa: E731
    total, _ = jax.lax.scan(add, jnp.zeros(len(x)), jnp.arange(2))
    return jnp.mean((total - y) ** 2)


def branched(params, batch):
    return jax.lax.cond(params.sum() > 1e9, lambda: 0.0, lambda: loss(params, batch))


def looped(params, batch):
    steps = jax.lax.while_loop(lambda i: i < 3, lambda i: i + 1, 0)
    return loss(params, batch) * steps / 3


def test_losses_may_hold_loops_and_branches():
    """With what starts from a constant, as recurrent networks do."""
    runs = [
        flanp.simulate(Custom(start, each), labelled(), GATE, max_rounds=4).column("loss")
        for each in (loss, scanned, branched, looped)
    ]
    for run in runs[1:]:
        np.testing.assert_allclose(run, runs[0], rtol=1e-5)


def test_a_callback_that_fails_is_the_users():
    def fails(value):
        raise ValueError("my words")

    def calls(params, batch):
        jax.debug.callback(fails, params)
        return loss(params, batch)

    with pytest.raises(BadInput, match="a callback in the loss or the metric failed: .*my words"):
        flanp.simulate(Custom(start, calls), labelled(), AVG)


@pytest.mark.parametrize("constant", [lambda p, b: 1.0, lambda p, b: jnp.mean(b[1] ** 2)])
def test_a_loss_that_does_not_depend_on_the_model(constant):
    with pytest.raises(BadInput, match="the gradient of the loss is zero: it does not depend"):
        flanp.simulate(Custom(start, constant), labelled(), AVG)


def test_the_wrong_data_for_a_problem():
    columns = flanp.data.from_clients([(np.ones((3, 2)), np.ones((3, 1)))])
    with pytest.raises(BadInput, match=r"LinearRegression needs .* shapes \[\(2,\), \(1,\)\]"):
        flanp.simulate(LinearRegression(), columns, GATE)
    three = flanp.data.from_clients([(np.ones((3, 2)), np.ones(3), np.ones(3))])
    with pytest.raises(BadInput, match=r"LinearRegression needs"):
        flanp.simulate(LinearRegression(), three, GATE)
    with pytest.raises(BadInput, match="needs labels"):
        flanp.simulate(flanp.problems.LogisticRegression(), columns, GATE)
    with pytest.raises(BadInput, match=r"client '0', array 1 holds 1e\+300, too large"):
        flanp.data.from_clients([(np.full((3, 2), 1e300), np.ones(3))])
    huge = flanp.data.from_clients([(np.full((3, 2), 1e50), np.ones(3))])
    with pytest.raises(BadInput, match=r"1e\+50, beyond float32"):
        flanp.simulate(LinearRegression(), huge, GATE)


def accuracy(params, batch):
    x, y = batch
    return jnp.mean(((x @ params) > 0) == (y > 0.5))


def labelled(N=4):
    rng = np.random.default_rng(0)
    clients = [(x, (x @ [1.0, 1.0] > 0).astype(float)) for x in rng.standard_normal((N, 30, 2))]
    return flanp.data.from_clients(clients, test=clients[0])


def test_a_metric_for_which_higher_is_better_is_not_met_at_the_start():
    problem = Custom(start, loss, measured(accuracy, higher_is_better=True))
    run = flanp.simulate(problem, labelled(), AVG, target={"mine": 0.8})
    assert str(run.ended) == "target reached"
    assert run.rows[0].metrics["mine"] < 0.8 <= run.rows[-1].metrics["mine"]
    assert run.rounds_to(mine=0.8) == run.rows[-1].round > 0
    lower = Custom(start, loss, measured(accuracy, higher_is_better=False))
    run = flanp.simulate(lower, labelled(), AVG, target={"mine": 0.8})
    assert run.rows[-1].round == 0


def test_a_metric_without_a_direction_takes_no_target():
    problem = Custom(start, loss, measured(accuracy))
    with pytest.raises(BadInput, match="say whether higher values of it are better"):
        flanp.simulate(problem, labelled(), AVG, target={"mine": 0.8})


MODULE = """
import sys
from flanp.problems import Custom
import jax.numpy as jnp

def init():
    return jnp.zeros(4)

problem = Custom(init, lambda p, b: jnp.mean(b[0] @ p))
"""
CONFIG = """
problem = { name = "my_own_for_test:problem" }
data = { name = "Synthetic", clients = 4, samples = 6, dim = 4 }
solver = { name = "FedAvg", eta = 0.1 }
"""


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (MODULE, "init_fn (init) failed (TypeError: init() takes 0 positional arguments"),
        ("import sys\nsys.exit(0)\n", "it cannot be imported: SystemExit: 0 at"),
        ("\n\n1 / 0\n", "my_own_for_test.py, line 3"),
        ("def f(:\n", "it cannot be imported: SyntaxError"),
    ],
)
def test_at_the_prompt_it_is_one_line_and_a_traceback_only_if_asked_for(tmp_path, module, message):
    (tmp_path / "my_own_for_test.py").write_text(module)
    (tmp_path / "c.toml").write_text(CONFIG)
    for debug in ([], ["--debug"]) if module == MODULE else ([],):
        done = subprocess.run(
            [sys.executable, "-m", "flanp", "run", "c.toml", *debug],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2
        assert message in done.stderr
        assert ("Traceback" in done.stderr) == bool(debug)
        assert debug or len(done.stderr.splitlines()) == 1
