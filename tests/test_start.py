"""What starts quickly must not import what is heavy."""

import subprocess
import sys

import pytest

import flanp
from flanp.config.families import FAMILIES

HEAVY = ("jax", "scipy", "matplotlib", "sklearn", "optax", "pooch", "flwr", "torch", "pandas")


def imported(code):
    """Return which heavy modules some code has imported."""
    ask = f"import sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{ask}"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("option", ["--help", "--version", "run --help", "flower up --help"])
def test_the_command_line_answers_without_heavy_modules(option):
    code = f"""
import sys
from flanp.cli import app
try:
    app({option.split()!r})
except SystemExit:
    pass
"""
    assert imported(code) == []


def test_importing_flanp_imports_nothing_heavy():
    assert imported("import flanp; flanp.BadInput") == []


def test_all_parts_are_reached_from_flanp_alone():
    """A process that has imported more would find them whatever flanp says that it has."""
    classes = [cls for family in FAMILIES.values() for cls in family.members.values()]
    assert {cls.__module__.split(".")[1] for cls in classes} - {"paper"} <= {*flanp.__all__}
    assert "jax" not in imported("import flanp; flanp.network.Free()")


def test_a_client_that_trains_with_numpy_needs_no_jax():
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'flanp[flower]'")
    code = """
from flanp.flower.naming import solver_of, told
from flanp.flower.clientapp import client
from flanp.solvers import FedGATE, FedOpt
for solver in (FedGATE(eta=0.1), FedOpt(eta=0.1)):
    solver_of(told(solver), ())
"""
    assert "jax" not in imported(code)
    assert "optax" not in imported(code)
