"""The user's own CSV files."""

import pytest

from flanp.checks import BadInput
from flanp.data import (
    CSV,
    Dirichlet,
)


def test_csv_with_a_client_column(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("owner,x1,x2,y\nann,1,2,3\nbob,4,5,6\nann,7,8,9\n")
    data = CSV(path, target="y", client="owner").load()
    assert data.ids == ("ann", "bob")
    assert data.s.tolist() == [2, 1]
    assert sorted(data.batch[1][0].tolist()) == [3, 9]


def test_csv_dealt_out_with_labels_and_a_test_set(tmp_path):
    path = tmp_path / "table.csv"
    rows = "".join(f"{i},{i % 3}\n" for i in range(30))
    path.write_text("x,label\n" + rows)
    data = CSV(path, target="label", clients=4, labels=True, test_fraction=0.2).load()
    assert data.classes == 3
    assert data.s.sum() == 24
    assert len(data.test[0]) == 6


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("x,y\n1,2\n", {"target": "z", "clients": 1}, "no column 'z'"),
        ("feature,target\n1,2\n", {"target": "tarqet", "clients": 1}, "did you mean 'target'"),
        ("x,y\n1,two\n", {"target": "y", "clients": 1}, "column 'y' is not numeric"),
        ("x,y\n", {"target": "y", "clients": 1}, "a header and at least one row"),
        (
            "y\n1\n2\n",
            {"target": "y", "clients": 1},
            "no column is left",
        ),
        ("x,y\n1,0.5\n", {"target": "y", "clients": 1, "labels": True}, "labels in 'y'"),
        ("x,y\n1,2\n", {"target": "y"}, "either the name of the client column"),
        ("x,x,y\n1,2,3\n", {"target": "y", "clients": 1}, "several columns 'x'"),
        (",x,y\n0,1,2\n", {"target": "y", "clients": 1}, "column 1 has no name"),
        ("i,x,y\n0,5,2\n1,4,2\n2,7,2\n", {"target": "y", "clients": 1}, "'i' numbers the rows"),
        ("x,id,y\n0,8,2\n1,3,2\n", {"target": "y", "clients": 1}, "'id' numbers the rows"),
        ("x,n,y\n3,0,2\n5,1,2\n4,2,2\n", {"target": "y", "clients": 1}, "'n' numbers the rows"),
        ("n,x,y\n2,3,2\n1,5,2\n0,4,2\n", {"target": "y", "clients": 1}, "'n' numbers the rows"),
        ("x,y\n1,2\n,\n3,4\n", {"target": "y", "clients": 1}, "data row 2: the cell is empty"),
        ("x,sampleId,y\n0,8,2\n1,3,2\n", {"target": "y", "clients": 1}, "numbers the rows"),
        ("x,y\n1,2\n# 3,4\n", {"target": "y", "clients": 1}, "line 3: it begins with '#'"),
        ("x,y,who\n1,2,a\n1,2,NaN\n", {"target": "y", "client": "who"}, "no client but 'NaN'"),
        ("x,y,w\n1,2,a\n", {"target": "y", "client": "w", "split": Dirichlet()}, "split = "),
        ("1.5,2\n3,4\n", {"target": "2", "clients": 1}, "first line holds numbers"),
        ("x,y\n1,2,\n", {"target": "y", "clients": 1}, "3 cells; the header has 2"),
        ('x,y\n"1,5",2\n', {"target": "y", "clients": 1}, "'1,5' is not a number: write it"),
        ("x,y\n,2\n", {"target": "y", "clients": 1}, "data row 1: the cell is empty"),
        ("x,y\nNA,2\n", {"target": "y", "clients": 1}, "'NA' is not a number"),
        ("x,y\n1,1e9\n", {"target": "y", "clients": 1, "labels": True}, "labels in 'y'"),
        ("x,y\n1,2\n", {"target": "y", "clients": 1, "inputs": ["z"]}, "no column 'z'"),
        ("x,y\n1,2\n", {"target": "y", "clients": 1, "ignore": ["y"]}, "two purposes"),
        ("x,y,who\n1,2,\n", {"target": "y", "client": "who"}, "a row has no client"),
    ],
)
def test_bad_csv(tmp_path, text, options, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        CSV(path, **options).load()


def test_csv_as_spreadsheets_write_it(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes('\ufeff"a", "y", "who"\r\n"1.5", 2, "p q"\r\n\r\n3, 4, r\r\n'.encode())
    data = CSV(path, target="y", client="who", test_fraction=0.95).load()
    assert data.ids == ("p q", "r")  # nobody loses the last row to the test set
    path.write_text("a,y\n1,2\n3\n")
    with pytest.raises(BadInput, match="line 3: 1 cells; the header has 2"):
        CSV(path, target="y", clients=1).load()
    path.write_bytes(b"a,y\n\xff,2\n")
    with pytest.raises(BadInput, match="cannot be read as a CSV file in UTF-8"):
        CSV(path, target="y", clients=1).load()


def test_columns_are_chosen_by_name(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id;a;b;y\n1;5;6;0\n2;7;8;1\n3;9;9;1\n")
    for options in ({"ignore": ("id",)}, {"inputs": ("a", "b")}):
        data = CSV(path, target="y", clients=1, **options).load()
        assert sorted(data.batch[0][0].tolist()) == [[5, 6], [7, 8], [9, 9]]
    assert CSV(path, target="y", clients=1, inputs=["id"]).load().batch[0].shape == (1, 3, 1)
    path.write_text("year,x,y\n2000,1,2\n2001,1,3\n2002,2,2\n,,\n,,\n")
    assert CSV(path, target="y", clients=1).load().batch[0].shape == (1, 3, 2)


def test_missing_csv(tmp_path):
    with pytest.raises(BadInput, match="there is no such file"):
        CSV(tmp_path / "no.csv", target="y", clients=2).load()
