"""Nothing in a configuration makes a traceback, a hang, or fills the memory."""

import gzip
import io
import math
import pickle
import tarfile
from importlib.util import find_spec
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flanp.config import Settings
from flanp.config.families import FAMILIES
from flanp.data import images
from flanp.parts import Within, field_types

from attempts import BYTES, SECONDS, Attempts
from small import leaf_file

REQUIRED = {
    "RandomK": {"k": 2},
    "FastestK": {"k": 2},
    "FedCS": {"deadline": 1000.0},
    "TiFL": {"k": 1, "tiers": 2},
    "Oort": {"k": 2},
    "First": {"k": 2},
    "FixedRounds": {"rounds": 2},
    "Deadline": {"seconds": 100.0},
    "Measured": {"seconds": [1.0, 2.0, 3.0, 4.0]},
    "FromCSV": {"path": "speeds.csv"},
    "Trace": {"path": "trace.csv"},
    "FromTrace": {"path": "trace.csv"},
    "CSV": {"path": "table.csv", "target": "y", "clients": 4},
    "MNIST": {"folder": ".", "clients": 4},
    "CIFAR10": {"folder": ".", "clients": 4},
    "FEMNIST": {"folder": ".", "clients": 4},
    "Theorem1": {"mu": 0.5, "L": 1.0, "sigma2": 1.0, "c": 1.0, "s": 10},
    "Digits": {"clients": 4, "samples": 10},
    "Synthetic": {"clients": 4, "samples": 10, "dim": 2},
    "Equal": {"tau": 2},
    "SpeedMatched": {"tau": 2},
    "Partial": {"tau": 2},
    "Balanced": {"tau": 2},
    "MLP": {"widths": [3]},
    "CNN": {"channels": [2]},
    "LogisticRegression": {},
    "Torch": {"module": "net:Net", "loss": "net:loss"},
}
"""Parameters with which a part runs on four clients."""
NETWORKS = {"MLP", "CNN", "LeNet", "Torch", "LogisticRegression"}
LABELS = {*NETWORKS, "IID", "Dirichlet", "ByLabel", "Unequal", "Apart"}
"""Parts that are tried on labelled data."""
STEP_SIZES = {"eta", "gamma", "tau", "rho", "schedule", "factor", "epochs", "mu", "L", "s", "c"}
STEP_SIZES |= {"sigma2", "limit", "condition"}
"""What can make a run diverge, which is no bad input."""

SPECIAL = [0, -1, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**32, 2**40, 2**63, -(2**63), 10**30, 10**400]
SPECIAL += [0.0, -0.0, 1e-300, 1e-12, 0.5, 1.5, 1e9, 1e30, 1e300, math.inf, -math.inf, math.nan]
SPECIAL += [True, "", "x", "\0", "ä" * 3, [], [1, 2], ["a"], [[1]], [math.nan], {}, {"name": "x"}]
VALUES = st.one_of(
    st.sampled_from(SPECIAL),
    st.integers(),
    st.integers(-(10**6), 10**6),
    st.floats(),
    st.floats(1e-6, 1e6),
    st.text(max_size=5),
    st.lists(st.integers(-5, 10**7) | st.floats(), max_size=4),
)


def members():
    """Return (family, class) of all parts that run with what is installed."""
    for family in FAMILIES:
        for name in FAMILIES[family].members:
            if name != "Torch" or find_spec("torch"):
                yield family, name


def fields():
    """Return (family, class, field) of all that a configuration can hold."""
    for family, name in members():
        for field in field_types(FAMILIES[family].members[name]):
            yield family, name, field
    for field in field_types(Settings):
        yield "", "", field


def toml(value):
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        escaped = "".join(f"\\U{ord(c):08X}" for c in value if not 0xD800 <= ord(c) < 0xE000)
        return f'"{escaped}"'
    return repr(value)


def configuration(family, name, field, value):
    """Return the TOML of a small run in which one field of one part has a value."""
    parts = {
        "data": {"name": "Synthetic"},
        "problem": {"name": "LinearRegression"},
        "solver": {"name": "FedGATE", "eta": 0.01},
        "work": {"name": "Equal"},
        "speeds": {"name": "Uniform"},
        "participation": {"name": "Growing"},
        "stop": {"name": "FixedRounds"},
        "patience": {"name": "All"},
    }
    lines = [] if field in ("max_rounds", "target") else ["max_rounds = 3"]
    if name in LABELS or name in ("Digits", "MNIST", "CIFAR10", "FEMNIST"):
        parts["data"], parts["problem"] = {"name": "Digits"}, {"name": "LogisticRegression"}
    if family in parts or family in ("availability", "network"):
        parts[family] = {"eta": 0.01} if family == "solver" else {}
        parts[family] |= {"name": name}
    elif family == "split":
        parts["data"]["split"] = {"name": name, field: value}
    elif family == "change":
        parts["speeds"]["change"] = {"name": name, field: value}
    elif family in ("schedule", "local", "compression"):
        if name == "TopK":  # which solvers with a state at the clients refuse
            parts["solver"]["name"] = "FedAvg"
        parts["solver"][family] = {"name": name, **REQUIRED.get(name, {}), field: value}
    else:
        lines += [f"{field} = {toml(value)}"]
    for key, part in parts.items():
        table = {**REQUIRED.get(part["name"], {}), **part}
        if key == family:
            table[field] = value
            if field in ("tau", "epochs"):
                table.pop({"tau": "epochs", "epochs": "tau"}[field], None)
            if field == "client":
                table.pop("clients", None)
        lines += [f"{key} = {toml(table)}"]
    return "\n".join(lines) + "\n"


def tiny_images(folder):
    """Write image files of the real formats, with a few images each."""
    for name in images.MNIST_FILES:
        shape = (12, 2, 2) if "images" in name else (12,)
        header = b"\0\0\x08" + bytes([len(shape)]) + np.array(shape, ">i4").tobytes()
        content = (np.arange(np.prod(shape)) % 10).astype(np.uint8).tobytes()
        (folder / name).write_bytes(gzip.compress(header + content, mtime=0))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in images.CIFAR10_BATCHES:
            pixels = np.arange(4 * 3072).reshape(4, 3072).astype(np.uint8)
            content = pickle.dumps({b"data": pixels, b"labels": [0, 1, 2, 3]})
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    (folder / "cifar-10-python.tar.gz").write_bytes(packed.getvalue())


@pytest.fixture(scope="module")
def attempts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attempts")
    (folder / "speeds.csv").write_text("client,seconds\n0,1\n1,2\n2,3\n3,4\n")
    trace = "client,time,seconds,kbits,from,until\n0,0,1,9,0,\n1,0,2,9,0,\n2,0,3,9,0,\n3,0,4,9,0,\n"
    (folder / "trace.csv").write_text(trace)
    rng = np.random.default_rng(0)
    rows = "".join(f"{a:.3f},{b:.3f}\n" for a, b in rng.standard_normal((40, 2)))
    (folder / "table.csv").write_text("x,y\n" + rows)
    (folder / "net.py").write_text(
        "import torch\nloss = torch.nn.functional.cross_entropy\n"
        "def Net():\n    return torch.nn.Linear(64, 10)\n"
    )
    tiny_images(folder)
    (folder / "femnist").mkdir()
    leaf_file(folder / "femnist" / "all_data_0.json", {f"f{i}": 3 for i in range(4)})
    attempts = Attempts(folder)
    yield attempts
    attempts.close()


def judge(attempts, text, field=None, value=None):
    code, message, seconds, peak = attempts(text)
    assert code is not None, f"{message}\nof\n{text}"
    assert seconds < SECONDS, f"{seconds} s, code {code} {message}\nof\n{text}"
    assert peak < BYTES, f"{peak} bytes, code {code} {message}\nof\n{text}"
    if code == 2 and field is not None:
        assert field in message or str(value) in message, f"{message}\nof\n{text}"
    if code == 1:
        assert field in STEP_SIZES, f"{message}\nof\n{text}"
    assert "np.float" not in message
    return code


@pytest.mark.parametrize(("family", "name"), members())
def test_each_part_runs_on_four_clients(attempts, family, name):
    """Otherwise the next tests would prove nothing."""
    field, value = next(iter(REQUIRED.get(name, {}).items()), ("name", name))
    assert judge(attempts, configuration(family, name, field, value)) == 0


def ranges(hint):
    """Return the (type, range) pairs in an annotation."""
    for each in get_args(hint):
        if isinstance(each, Within):
            yield get_args(hint)[0], each
        else:
            yield from ranges(each)


@pytest.mark.parametrize(("family", "name", "field"), fields())
def test_all_of_a_declared_range_runs_or_is_refused_in_words(attempts, family, name, field):
    hint = field_types(FAMILIES[family].members[name] if family else Settings)[field]
    for value in (True, False) if hint is bool else ():
        judge(attempts, configuration(family, name, field, value), field, value)
    for kind, (low, high, above) in ranges(hint):
        low, high = max(low, 1e-12) if above else low, min(high, 1e300)
        middle = math.sqrt(max(low, 1e-12)) * math.sqrt(high)
        ends = {kind(low), kind(high)}
        # The middle of what changes shapes takes a compilation more, and says no more.
        for number in ends if family in ("data", "split", "problem") else ends | {kind(middle)}:
            value = [number] * (4 if field == "seconds" else 1) if "tuple" in str(hint) else number
            judge(attempts, configuration(family, name, field, value), field, value)


@given(where=st.sampled_from(list(fields())), value=VALUES)
@settings(max_examples=250)
def test_any_value_of_any_field_runs_or_is_refused_in_words(attempts, where, value):
    family, name, field = where
    judge(attempts, configuration(family, name, field, value), field, value)


def one_of(family, **fields):
    """Return tables of a family's parts, some with other fields."""
    tables = [{"name": name, **REQUIRED.get(name, {})} for name in FAMILIES[family].members]
    more = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in fields.items()})
    return st.tuples(st.sampled_from(tables), more).map(lambda pair: {**pair[0], **pair[1]})


COMBINED = {
    "solver": one_of("solver").map(lambda table: {**table, "eta": 0.01}),
    "speeds": one_of("speeds", jitter=[1.0], known=[False], change=[{"name": "SlowDowns"}]),
    "availability": one_of("availability", dropouts=[0.1, 0.95]),
    "work": one_of("work", tau=[1, 3], batch=[3]),
} | {family: one_of(family) for family in ("participation", "stop", "patience", "network")}


@given(parts=st.fixed_dictionaries(COMBINED), seed=st.integers(0, 3))
@settings(max_examples=40)
def test_parts_go_together_or_are_refused_in_words(attempts, parts, seed):
    parts["data"] = {"name": "Synthetic", **REQUIRED["Synthetic"]}
    parts["problem"] = {"name": "LinearRegression"}
    lines = ["max_rounds = 8", f"seed = {seed}"]
    text = "\n".join([*lines, *(f"{key} = {toml(part)}" for key, part in parts.items())])
    code, message, *_ = attempts(text)
    assert code is not None, f"{message}\nof\n{text}"
    assert code == 0 or "\n" not in message
