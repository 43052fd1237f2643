import importlib.util
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, however slow the machine is.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Keep compiled programs apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLANP_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _all_devices():
    """Start JAX as the simulator does, whichever test is the first to use it."""
    from flanp.simulator.placement import local_devices

    local_devices()


@pytest.fixture(scope="session")
def oracle():
    """The readable single-file version, which the fast one must equal."""
    spec = importlib.util.spec_from_file_location("oracle", EXAMPLES / "flanp_single_file.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
