"""A dataset of each client: rows by number, or columns by name, whoever made it."""

import numpy as np
import pytest

from flanp.checks import BadInput
from flanp.data import from_datasets


class Rows:
    """A map-style dataset, as PyTorch has them."""

    def __init__(self, *rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        return self.rows[k]


class Table:
    """Columns by name; pandas calls these `columns`, Hugging Face `column_names`."""

    def __init__(self, called="columns", **columns):
        self.held = columns
        setattr(self, called, list(columns))

    def __len__(self):
        return len(next(iter(self.held.values())))

    def __getitem__(self, name):
        return self.held[name]


class Endless:
    def __iter__(self):
        yield from iter(int, 1)


def test_rows_of_tuples():
    a, b = Rows((np.ones((2, 2)), 1), (np.zeros((2, 2)), 0)), Rows((np.ones((2, 2)), 2))
    data = from_datasets([a, b], test=b)
    assert data.batch[0].shape == (2, 2, 2, 2)
    assert data.batch[1].tolist() == [[1, 0], [2, 2]]
    assert (data.classes, data.s.tolist()) == (3, [2.0, 1.0])


@pytest.mark.parametrize("called", ["columns", "column_names"])
def test_columns_of_numbers_make_one_array(called):
    table = Table(called, age=[1.0, 2.0], name=["a", "b"], income=[3, 4], label=[0.5, 1.5])
    data = from_datasets([table], inputs=["age", "income"], label="label")
    assert data.batch[0].tolist() == [[[1.0, 3.0], [2.0, 4.0]]]
    assert data.classes is None


def test_rows_of_dicts_and_a_column_of_arrays():
    rows = Rows(*({"image": np.full((2, 2), k), "label": k % 2} for k in range(4)))
    data = from_datasets([rows], inputs="image", label="label", ids=["mine"])
    assert data.batch[0].shape == (1, 4, 2, 2)
    assert data.ids == ("mine",)


def test_texts_become_numbers_the_same_for_all():
    a, b = Table(x=[1.0, 2.0], y=["dog", "cat"]), Table(x=[3.0], y=["emu"])
    with pytest.warns(UserWarning, match="'cat' is 0, 'dog' is 1, 'emu' is 2"):
        data = from_datasets([a, b], label="y")
    assert data.batch[1].tolist() == [[1, 0], [2, 2]]


@pytest.mark.parametrize(
    ("dataset", "options", "words"),
    [
        (Rows(), {}, "client '0' has no rows"),
        (Endless(), {}, "which has no length"),
        (Rows(1.0), {}, "each must be .input, target."),
        (Rows((1.0, 0), (None, 1)), {}, "client '0', row 1, column '0': a value is missing"),
        (Table(x=[1.0, np.nan], y=[0, 1]), {"label": "y"}, "row 1, column 'x': a value is missing"),
        (Table(x=[1.0], y=[0]), {}, "label: say which column is the target"),
        (Table(x=[1.0], y=[0]), {"label": "z"}, "label: no column 'z'"),
        (Table(x=["a"], y=[0]), {"label": "y"}, "column 'x': it holds no numbers"),
        (Table(y=[0]), {"label": "y"}, "no column is left"),
        (Rows((np.ones(2), 0), (np.ones(3), 0)), {}, "its rows differ in shape"),
        (
            Rows({"x": 1.0, "y": 0}, {"x": 1.0}),
            {"label": "y"},
            "holds other entries than the first row",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(dataset, options, words):
    with pytest.raises(BadInput, match=words) as error:
        from_datasets([dataset], **options)
    assert "\n" not in str(error.value)


def test_each_dataset_has_a_name():
    rows = [(np.ones(2), 0), (np.zeros(2), 1)]
    with pytest.raises(BadInput, match="3 datasets need as many"):
        from_datasets([rows] * 3, ids=["x", "y"])


def test_what_a_dataset_raises_is_told_in_one_line():
    class Gone:
        def __len__(self):
            return 2

        def __getitem__(self, k):
            raise FileNotFoundError("img_0.png")

    with pytest.raises(BadInput, match="client '0' failed .*img_0.png") as error:
        from_datasets([Gone()])
    assert "\n" not in str(error.value)


def rows_of(**columns):
    return [dict(columns, y=k) for k in range(2)]


def test_columns_are_known_by_their_names_not_by_their_order():
    data = from_datasets([rows_of(a=1.0, b=100.0), rows_of(b=100.0, a=1.0)], label="y")
    assert data.batch[0].tolist() == [[[1.0, 100.0]] * 2] * 2


@pytest.mark.parametrize(
    ("datasets", "options", "words"),
    [
        ([rows_of(a=1.0), rows_of(c=1.0)], {}, "client '1' has the columns"),
        ([[{"a": 1.0, "y": 0}, {"a": 1.0, "y": 0, "z": 2}]], {}, "row 1: it holds other entries"),
        ([rows_of(a=1.0)], {"inputs": ["a", "y"]}, "the label 'y' is none"),
        ([rows_of(a=1.0)], {"inputs": ["a", "a"]}, "each once"),
        ([rows_of(a=1.0)], {"inputs": 3}, "inputs = 3"),
        ([rows_of(a=1.0)], {"ids": 3}, "ids = 3: it must be a list or a tuple"),
        (None, {}, "it must be a list or a tuple, with a dataset for each client"),
    ],
)
def test_what_would_be_mixed_up_is_refused(datasets, options, words):
    with pytest.raises(BadInput) as error:
        from_datasets(datasets, label="y", **options)
    assert words in str(error.value)
