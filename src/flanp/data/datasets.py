"""Each client's data as a dataset: PyTorch's, Hugging Face's, a partition of Flower's, a frame.

Nothing is imported: a table has columns with names, any other dataset rows with numbers.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from flanp.checks import BadInput, calling, listed, nearest, shown
from flanp.data.federated import FederatedData, from_clients
from flanp.parts import check_is

MISSING = ("NAType", "NaTType")
"""What pandas calls its values that are none."""
Columns = dict[str, np.ndarray]


def from_datasets(
    datasets: Sequence[Any],
    inputs: str | Sequence[str] | None = None,
    label: str | None = None,
    ids: Sequence[Any] | None = None,
    test: Any = None,
) -> FederatedData:
    """Build federated data from a dataset of each client.

    Args:
        datasets: for each client a map-style torch.utils.data.Dataset, whose rows are tuples with
            the target last or dicts, a Hugging Face dataset, or a pandas frame.
        inputs: the columns of the inputs; all but the label, if left out. Several columns of single
            numbers make one array; others are arrays of their own.
        label: the column of the target; of rows that are tuples, the last.
        ids: the clients' names; 0, 1, 2, ... if left out.
        test: a dataset of held-out rows.

    Labels that are texts become numbers, in the order of the alphabet.

    >>> rows = [(np.ones(2), "cat"), (np.zeros(2), "dog")]
    >>> with warnings.catch_warnings(action="ignore"):
    ...     data = from_datasets([rows, rows[:1]])
    >>> data.classes, data.batch[1].tolist()
    (2, [[0, 1], [0, 0]])
    """
    check_is("datasets", datasets, list | tuple, ", with a dataset for each client")
    ids = list(range(len(datasets))) if ids is None else check_is("ids", ids, list | tuple)
    if len(ids) != len(datasets):
        raise BadInput(f"ids = {shown(list(ids))}: {len(datasets)} datasets need as many")
    names = [f"client {str(i)!r}" for i in ids]
    whole = [*zip(names, datasets, strict=True)]
    if test is not None:
        whole.append(("the held-out data", test))
    columns = [(owner, _columns(each, owner)) for owner, each in whole]
    if inputs is None:
        columns = _in_one_order(columns)
    parts = [_arrays(each, owner, inputs, label) for owner, each in columns]
    targets = [part[-1] for part in parts]
    if any(y.dtype.kind in "US" for y in targets):
        targets = _numbered(targets)
    whole_numbers = all(y.dtype.kind in "iub" and y.ndim == 1 and y.min() >= 0 for y in targets)
    classes = max(int(y.max()) for y in targets) + 1 if whole_numbers and targets else None
    arrays = [(*part[:-1], y) for part, y in zip(parts, targets, strict=True)]
    held_out = arrays.pop() if test is not None else None
    return from_clients(arrays, ids, held_out, classes)


def _columns(dataset: Any, owner: str) -> Columns:
    """Return a dataset's columns by name; those of rows that are tuples are called 0, 1, ..."""
    try:
        rows = len(dataset)
    except (TypeError, NotImplementedError) as error:
        raise BadInput(
            f"{owner} is {shown(type(dataset))}, which has no length: give a dataset whose rows "
            "can be counted and taken by number"
        ) from error
    if not rows:
        raise BadInput(f"{owner} has no rows: leave it out")
    names = getattr(dataset, "column_names", None)
    if names is None:
        names = getattr(dataset, "columns", None)
    with calling(owner, "its rows must be there, and be numbers, arrays or texts"):
        if names is not None:
            found = {str(name): list(dataset[name]) for name in names}
        else:
            found = _by_rows([dataset[k] for k in range(rows)], owner)
    return {name: _column(values, owner, name) for name, values in found.items()}


def _in_one_order(columns: list[tuple[str, Columns]]) -> list[tuple[str, Columns]]:
    """Return everyone's columns in the first one's order; refuse others than its own."""
    if not columns:
        return columns
    (first, own), *_ = columns
    for owner, each in columns:
        if each.keys() != own.keys():
            raise BadInput(
                f"{owner} has the columns {listed(each)}, {first} {listed(own)}: they must be the "
                "same, or `inputs` say which count"
            )
    return [(owner, {name: each[name] for name in own}) for owner, each in columns]


def _by_rows(rows: list[Any], owner: str) -> dict[str, list[Any]]:
    first = rows[0]
    if not isinstance(first, dict | list | tuple) or len(first) < 2:
        raise BadInput(
            f"{owner}: its rows are {shown(type(first))}: each must be (input, target), or a dict"
        )
    names = list(first) if isinstance(first, dict) else list(range(len(first)))
    for k, row in enumerate(rows):
        if len(row) != len(first) or (isinstance(first, dict) and row.keys() != first.keys()):
            raise BadInput(f"{owner}, row {k}: it holds other entries than the first row")
    return {str(name): [row[name] for row in rows] for name in names}


def _column(values: list[Any], owner: str, name: str) -> np.ndarray:
    """Return the values of a column as one array, none of them missing."""
    arrays = []
    for k, value in enumerate(values):
        absent = value is None or type(value).__name__ in MISSING
        with calling(f"{owner}, row {k}, column {name!r}", "it must be a number, array or text"):
            array = np.asarray("" if absent else value)
        if absent or (array.dtype.kind == "f" and np.isnan(array).any()):
            raise BadInput(
                f"{owner}, row {k}, column {name!r}: a value is missing. Fill it in, or leave the "
                "row out"
            )
        arrays.append(array)
    shapes = {a.shape for a in arrays}
    if len(shapes) > 1:
        raise BadInput(
            f"{owner}, column {name!r}: its rows differ in shape: {shown(sorted(shapes))}"
        )
    return np.stack(arrays)


def _arrays(
    columns: Columns, owner: str, inputs: str | Sequence[str] | None, label: str | None
) -> list[np.ndarray]:
    """Return the inputs, and the target last."""
    target = label
    if target is None:
        if not all(name.isdigit() for name in columns):
            raise BadInput(f"label: say which column is the target; there are: {listed(columns)}")
        target = list(columns)[-1]
    if isinstance(inputs, str):
        chosen = [inputs]
    elif inputs is None:
        chosen = [name for name in columns if name != target]
    else:
        chosen = list(check_is("inputs", inputs, list | tuple, ", of columns"))
    if target in chosen or len({*chosen}) < len(chosen):
        raise BadInput(f"inputs = {shown(chosen)}: each once, and the label {target!r} is none")
    for role, name in [("label", target), *(("inputs", name) for name in chosen)]:
        if name not in columns:
            raise BadInput(f"{owner}: {role}: no column {name!r}{nearest(str(name), columns)}")
    if not chosen:
        raise BadInput(f"{owner}: no column is left for the inputs")
    for name in chosen:
        if columns[name].dtype.kind not in "fiub":
            raise BadInput(
                f"{owner}, column {name!r}: it holds no numbers. Name the columns of the inputs"
            )
    found = [columns[name] for name in chosen]
    if not isinstance(inputs, str) and len(found) > 1 and all(a.ndim == 1 for a in found):
        found = [np.stack(found, axis=1)]
    return [*found, columns[target]]


def _numbered(targets: list[np.ndarray]) -> list[np.ndarray]:
    """Return labels that are texts as numbers, and say which is which."""
    words = np.unique(np.concatenate([y.astype(str) for y in targets]))
    meaning = ", ".join(f"{word!r} is {k}" for k, word in enumerate(words.tolist()[:20]))
    more = f" and so on, {len(words)} in all" if len(words) > 20 else ""
    warnings.warn(f"labels are texts: {meaning}{more}", stacklevel=3)
    return [np.searchsorted(words, y.astype(str)) for y in targets]
