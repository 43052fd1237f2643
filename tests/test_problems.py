import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flanp
from flanp.checks import BadInput
from flanp.data import Digits, FederatedData, from_clients
from flanp.problems import MLP, Custom, LinearRegression, LogisticRegression
from flanp.simulator.layout import layout_of

from small import linear_clients


@pytest.fixture(scope="module")
def data() -> FederatedData:
    return from_clients(linear_clients(7, unequal=True))


def whole_loss(problem, params, data):
    return problem.loss(params, tuple(jnp.asarray(a) for a in data.samples()))


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_the_minimiser_has_no_gradient(data, l2):
    problem = LinearRegression(l2)
    with jax.enable_x64(True):
        w = jnp.asarray(problem.minimiser(data))
        gradient = jax.grad(lambda w: whole_loss(problem, w, data))(w)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_mu_and_L_are_the_extreme_curvatures(data, l2):
    problem = LinearRegression(l2)
    with jax.enable_x64(True):
        hessian = jax.hessian(lambda w: whole_loss(problem, w, data))(jnp.zeros(3))
    eigenvalues = np.linalg.eigvalsh(hessian)
    constants = problem.constants(data)
    assert constants.mu == pytest.approx(eigenvalues[0])
    assert pytest.approx(eigenvalues[-1]) == constants.L
    assert constants.kappa == pytest.approx(eigenvalues[-1] / eigenvalues[0])


def test_c_is_the_excess_risk_of_the_minimiser():
    """Monte Carlo: E[L(w_hat)] - L(w_true) = c / (n s)."""
    rng = np.random.default_rng(0)
    d, samples, sigma = 4, 200, 0.7
    excess, c = [], []
    for _ in range(300):
        x = rng.standard_normal((samples, d))
        data = from_clients([(x, sigma * rng.standard_normal(samples))])
        w = LinearRegression().minimiser(data)
        excess.append(w @ w / 2)  # the true w is 0 and the inputs' covariance is I
        c.append(LinearRegression().constants(data).c)
    assert np.mean(excess) == pytest.approx(np.mean(c) / samples, rel=0.15)


def test_too_few_samples_are_not_strongly_convex():
    data = from_clients([(np.ones((2, 5)), np.ones(2))])
    with pytest.raises(BadInput, match="Give an l2 above 0"):
        LinearRegression().constants(data)


def test_logistic_constants_bound_the_curvature():
    data = Digits(clients=3).load()
    problem = LogisticRegression(l2=0.01)
    constants = problem.constants(data)
    assert constants.mu == 0.01
    batch = tuple(jnp.asarray(a) for a in data.samples())
    params = problem.init(jax.random.key(0), data)
    layout = layout_of(params)

    def loss(v):
        return problem.loss(layout.unravel(v), batch)

    for seed in range(5):
        at, along = jax.random.normal(jax.random.key(seed), (2, layout.size)) * 0.1
        curvature = jax.jvp(jax.grad(loss), (at,), (along,))[1] @ along / (along @ along)
        assert 0.01 * 0.99 <= curvature <= constants.L * 1.01
    assert LogisticRegression(l2=0).constants(data) is None


@pytest.mark.parametrize("unequal", [False, True])
def test_condensed_linear_regression_is_the_same_function(unequal):
    data = from_clients(linear_clients(7, unequal=unequal))
    problem = LinearRegression(l2=0.1)
    small, condensed = problem.condense(data)
    assert condensed.batch[0].shape == (7, 2, 3, 3)
    np.testing.assert_array_equal(condensed.s, data.s)
    with jax.enable_x64(True):
        for w in np.random.default_rng(0).standard_normal((3, 3)):
            for i in range(7):
                rows = data.weights[i] > 0
                mine = tuple(jnp.asarray(a[i][rows]) for a in data.batch)
                share = condensed.weights[i] / condensed.weights[i].sum()
                parts = [
                    small.loss(w, tuple(jnp.asarray(a[i][h : h + 1]) for a in condensed.batch))
                    for h in range(2)
                ]
                np.testing.assert_allclose(share @ np.array(parts), problem.loss(w, mine))


def test_few_samples_are_not_condensed():
    data = from_clients(linear_clients(3, s=5, d=9))
    assert LinearRegression().condense(data) == (LinearRegression(), data)


def test_mlp_shapes_and_start():
    data = Digits(clients=3).load()
    params = MLP(widths=(16, 5)).init(jax.random.key(0), data)
    assert [layer["W"].shape for layer in params] == [(64, 16), (16, 5), (5, 10)]
    batch = tuple(jnp.asarray(a) for a in data.samples())
    assert float(MLP(widths=(16, 5)).loss(params, batch)) == pytest.approx(np.log(10), abs=0.2)


def test_problems_say_what_they_need():
    data = from_clients(linear_clients(3))
    with pytest.raises(BadInput, match="needs labels"):
        MLP().init(jax.random.key(0), data)
    for bad in (
        lambda: MLP(widths=(0,)),
        lambda: LinearRegression(-1),
        lambda: LogisticRegression(-1),
    ):
        with pytest.raises(BadInput):
            bad()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4, 1e5])
def test_condensing_keeps_the_loss_of_targets_of_any_size(scale):
    """Gram matrices around zero would leave the loss, near its minimum, to rounding."""
    rng = np.random.default_rng(0)
    clients = [
        (x, scale * x @ [1.0, 2.0, 3.0] + rng.standard_normal(30))
        for x in rng.standard_normal((4, 30, 3))
    ]
    losses = [
        flanp.simulate(
            LinearRegression(),
            flanp.data.from_clients(clients),
            flanp.Method(
                flanp.solvers.FedGATE(eta=0.2),
                flanp.participation.Everyone(),
                work=flanp.work.Equal(tau=5, batch=batch),
            ),
            max_rounds=60,
            precision=precision,
        )
        .rows[-1]
        .loss
        for batch, precision in ((None, "float32"), (None, "float64"), (30, "float32"))
    ]
    assert losses == pytest.approx([losses[1]] * 3, rel=0.01)


def test_models_must_be_floats():
    with pytest.raises(BadInput, match="all must be floats"):
        layout_of({"a": jnp.arange(3)})
    with pytest.raises(BadInput, match="no parameters"):
        layout_of({})


def test_custom_without_a_metric_has_none():
    assert Custom(lambda key: jnp.zeros(2), lambda p, b: 0.0).metrics == ()
    metric = flanp.Metric("mine", lambda p, b: 0.0)
    assert Custom(lambda key: jnp.zeros(2), lambda p, b: 0.0, (metric,)).metrics == (metric,)
    assert [each.name for each in MLP().metrics] == ["test_error"]
