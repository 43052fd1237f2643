"""FEMNIST from the files that LEAF makes."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from flanp.checks import BadInput
from flanp.cli import app
from flanp.data import FEMNIST, MissingData
from flanp.paper import reproduce

from small import leaf_file

WRITERS = {"f0001_41": 7, "f0002_10": 3, "f0003_20": 5, "f0004_01": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """LEAF's files, of which one holds the first two writers and another the rest."""
    folder = tmp_path_factory.mktemp("leaf")
    for i, names in enumerate((["f0001_41", "f0002_10"], ["f0003_20", "f0004_01"])):
        leaf_file(folder / f"all_data_{i}.json", {name: WRITERS[name] for name in names})
    return folder


def test_a_client_is_a_writer(folder):
    data = FEMNIST(folder=folder, test_fraction=0.0).load()
    assert dict(zip(data.ids, data.s, strict=True)) == WRITERS
    assert (data.classes, data.test) == (62, None)
    raw = json.loads((folder / "all_data_0.json").read_text())["user_data"]["f0002_10"]
    rows = data.batch[0][1][: WRITERS["f0002_10"]]
    by_sum = [np.sort(a.sum(axis=1)) for a in (rows, 2 * np.array(raw["x"]) - 1)]
    np.testing.assert_allclose(*by_sum, rtol=1e-4)


@settings(max_examples=10)
@given(clients=st.integers(1, 4), seed=st.integers(0, 9), held=st.sampled_from([0.0, 0.3, 0.9]))
def test_writers_are_dealt_whole_and_no_image_is_lost(folder, clients, seed, held):
    data = FEMNIST(clients, folder, held).load(seed)
    assert len(data.ids) == clients
    tested = 0 if data.test is None else len(data.test[0])
    assert data.s.sum() + tested == sum(WRITERS.values())
    again = FEMNIST(clients, folder, held).load(seed)
    np.testing.assert_array_equal(data.batch[0], again.batch[0])
    if held == 0.0:
        sizes = sorted(WRITERS.values())
        sums = {sum(s for i, s in enumerate(sizes) if 1 << i & chosen) for chosen in range(16)}
        assert {int(s) for s in data.s} <= sums


def test_leafs_own_division_is_kept(tmp_path):
    for name, writers in (("train", {"a": 4, "b": 2}), ("test", {"a": 1, "b": 2})):
        (tmp_path / "femnist" / name).mkdir(parents=True)
        leaf_file(tmp_path / "femnist" / name / "all_data_0_niid.json", writers)
    data = FEMNIST(folder=tmp_path).load()
    assert data.s.tolist() == [4, 2]
    assert len(data.test[0]) == 3


def test_missing_files_say_how_to_get_them(tmp_path):
    for source in (FEMNIST(), FEMNIST(folder=tmp_path), FEMNIST(folder=tmp_path / "nowhere")):
        with pytest.raises(MissingData, match=r"LEAF makes the files: .*preprocess\.sh"):
            source.load()


def test_more_clients_than_writers(folder):
    with pytest.raises(BadInput, match="clients = 5: it must be at most 4, the number of writers"):
        FEMNIST(5, folder).load()


@pytest.mark.parametrize(
    "text",
    [
        "not JSON",
        "[]",
        "{}",
        '{"users": ["a"], "num_samples": [1], "user_data": {}}',
        '{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[0.5]], "y": [1]}}}',
        json.dumps(
            {
                "users": ["a"],
                "num_samples": [1],
                "user_data": {"a": {"x": [[0.5] * 784], "y": [62]}},
            }
        ),
    ],
)
def test_damaged_files_are_named(text, tmp_path):
    (tmp_path / "all_data_0.json").write_text(text)
    with pytest.raises(BadInput, match=r"all_data_0\.json is damaged, or not LEAF's"):
        FEMNIST(folder=tmp_path).load()


def test_the_experiment_is_refused_without_its_data_and_left_out_of_all(tmp_path, monkeypatch):
    with pytest.raises(MissingData, match="give data.folder"):
        reproduce.reproduce("femnist", progress=False)
    monkeypatch.setattr(reproduce, "names", lambda: ["femnist"])
    done = CliRunner().invoke(app, ["reproduce", "all", "--out", str(tmp_path)])
    assert done.exit_code == 0
    assert "femnist: left out: FEMNIST cannot be downloaded" in done.output
    alone = CliRunner().invoke(app, ["reproduce", "femnist", "--out", str(tmp_path)])
    assert alone.exit_code == 2
