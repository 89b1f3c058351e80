import dataclasses

import numpy as np
import pytest

from vem.data.arrays import from_arrays
from vem.data.dataset import Dataset
from vem.errors import DataError


def dataset():
    """Rows 0 1 |2 3 4t |5: a cut episode and one that ended."""
    steps = np.arange(5, dtype=np.float32)
    flags = {"timeouts": steps == 2, "terminals": steps == 4}
    return from_arrays(np.stack([steps, steps], axis=1), steps[:, None] / 10 + 0.1, steps + 1, **flags)


def changed(name, row, value):
    """The columns with one value changed."""
    columns = {field.name: getattr(dataset(), field.name) for field in dataclasses.fields(Dataset)}
    columns[name][row] = value
    return columns


def test_what_the_builder_makes_is_a_dataset():
    whole = dataset()
    np.testing.assert_array_equal(whole.valid, [True, True, False, True, True, False])
    Dataset(**changed("rewards", 0, 7.0))


@pytest.mark.parametrize(
    ("name", "row", "value", "message"),
    [
        ("valid", 5, True, "the last row is valid"),
        ("valid", 0, False, "row 0 is the final observation of an episode without a step"),
        ("valid", 3, False, "row 3 is the final observation of an episode without a step"),
        ("valid", slice(None), False, "row 0 is the final observation"),
        ("terminal", 2, True, "row 2 is terminal and not the last step"),
        ("terminal", 5, True, "row 5 is terminal and not the last step"),
        ("terminal", 0, True, "row 0 is terminal and not the last step"),
        ("actions", 5, 0.5, "'actions' is not zero at row 5"),
        ("rewards", 2, 0.5, "'rewards' is not zero at row 2"),
        ("observations", 1, np.nan, "'observations' holds NaN or infinity at row 1"),
        ("observations", 2, -np.inf, "'observations' holds NaN or infinity at row 2"),
        ("actions", 3, np.inf, "'actions' holds NaN or infinity at row 3"),
        ("rewards", 4, np.nan, "'rewards' holds NaN or infinity at row 4"),
    ],
)
def test_rows_that_break_the_form_are_refused(name, row, value, message):
    with pytest.raises(DataError, match=message):
        Dataset(**changed(name, row, value))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": np.zeros(6, np.float32)}, r"'observations' has shape \(6,\) where \(6, size\)"),
        ({"actions": np.zeros((5, 1), np.float32)}, r"'actions' has shape \(5, 1\)"),
        ({"actions": np.zeros((6, 0), np.float32)}, r"'actions' has shape \(6, 0\)"),
        ({"rewards": np.zeros((6, 1), np.float32)}, r"'rewards' has shape \(6, 1\) where \(6,\)"),
        ({"rewards": np.zeros(6)}, "'rewards' is float64 where a NumPy array of float32"),
        ({"rewards": [0.0] * 6}, "'rewards' is list"),
        ({"terminal": np.zeros(6, np.int8)}, "'terminal' is int8 where a NumPy array of bool"),
        ({"valid": np.zeros(0, bool)}, "'observations' has shape"),
        ({"valid": None}, "'observations' has shape|'valid' is NoneType"),
    ],
)
def test_other_shapes_and_types_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        dataclasses.replace(dataset(), **changes)
