"""Tables that were once misread, or ended in an error that was none of ours."""

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet

from vem.data.load import load
from vem.data.tables import from_table
from vem.errors import DataError

MAPPING = {"observation": ["x"], "action": ["u"], "reward": "reward", "episode": "episode", "time": "t"}
COLUMNS = {
    "episode": [0] * 6 + [1] * 6,
    "t": list(range(6)) * 2,
    "x": [float(row) for row in range(12)],
    "u": [row / 20 for row in range(12)],
    "reward": [float(-row) for row in range(12)],
}
LINES = [",".join(map(str, row)) for row in zip(*COLUMNS.values(), strict=True)]
STEPS = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]


def read(entries=None, **changes):
    return from_table({**COLUMNS, **changes}, {**MAPPING, **(entries or {})})


def read_lines(tmp_path, lines, names="episode,t,x,u,reward", end="\n"):
    (tmp_path / "log.csv").write_bytes(end.join([names, *lines]).encode())
    return load(tmp_path / "log.csv", mapping=MAPPING)


def read_folder(tmp_path, first, second):
    for index, (start, changes) in enumerate(((0, first), (6, second))):
        part = {name: values[start : start + 6] for name, values in COLUMNS.items()}
        pyarrow.parquet.write_table(pa.table({**part, **changes}), tmp_path / f"part-{index}.parquet")
    return load(tmp_path, mapping=MAPPING)


@pytest.mark.parametrize(
    ("changes", "entries", "message"),
    [
        ({"t": [1_700_000_000_000_000_000 + row for row in COLUMNS["t"]]}, {}, "'t' is 1.7e.18 in both"),
        (
            {"t": ["2024-01-01T00:00:00+01:00", *(f"2024-01-01T0{s}:00:00" for s in COLUMNS["t"][1:])]},
            {},
            "'t' .* row 0,",
        ),
        ({"t": pa.array(COLUMNS["t"], pa.time32("s"))}, {}, "'t' .* begins anew every day"),
        ({"x": [1_700_000_000 + row for row in range(12)]}, {}, "'x' .* float32 cannot tell"),
        ({"x": [1.0, "off"] * 6}, {}, "'x' holds 'off' .* at row 1 "),
        ({"x": np.zeros((12, 2))}, {}, r"'x' has shape \(12, 2\)"),
        ({"x": [0.0] * 11}, {}, "'x' has 11 rows"),
        ({"reward": ["1_0", "true", *["1"] * 10]}, {}, "'reward' holds '1_0' at row 0 "),
        ({"u": [1, 2, -999] * 4}, {"columns": {"u": {"kind": "discrete"}}}, "'u' is -999 in 4 rows, first at row 2"),
        ({"x": [np.inf, 1.0] * 6}, {"columns": {"x": {"kind": "categorical"}}}, "'x' has 6 rows with infinity"),
        (
            {"x": pa.array([9 * 10**18] * 12).cast(pa.timestamp("s"))},
            {"columns": {"x": {"kind": "categorical"}}},
            "'x' holds timestamp",
        ),
    ],
)
def test_is_refused_with_its_column(changes, entries, message):
    with pytest.raises(DataError, match=message):
        read(entries, **changes)


def test_a_declared_sentinel_among_labels_is_a_missing_value():
    rule = {"kind": "categorical", "sentinels": [-7], "missing": "indicator"}
    dataset = read({"columns": {"x": rule}}, x=[1, 2, -7] * 4)
    assert dataset.info.encoder.feature_names == ("x=1", "x=2", "x is missing")
    assert dataset.observations[2].tolist() == [0, 0, 1]
    flags = read({"columns": {"x": {**rule, "kind": "boolean"}}}, x=[1, 0, -7] * 4)
    assert flags.observations[2].tolist() == [0.5, 1]


def test_rows_of_a_csv_file_are_counted_without_empty_lines(tmp_path):
    with pytest.raises(DataError, match="row 5 has 2 values"):
        read_lines(tmp_path, [*LINES[:3], "", "", *LINES[3:5], "1,2", *LINES[5:]])


def test_files_of_a_folder_hold_one_kind_in_each_column(tmp_path):
    with pytest.raises(DataError, match=r"'x', mapped as observation, holds text in part-0.* numbers in part-1"):
        read_folder(tmp_path, {"x": ["eco", "boost"] * 3}, {})
    times = range(0, 12_000_000, 1_000_000)
    zoned, local = pa.array(times[:6], pa.timestamp("us", "UTC")), pa.array(times[6:], pa.timestamp("us"))
    with pytest.raises(
        DataError, match=r"'t', mapped as time, holds times with a time zone in part-0.* and times in part-1"
    ):
        read_folder(tmp_path, {"t": zoned}, {"t": local})


def test_a_file_without_values_in_a_column_does_not_decide_its_kind(tmp_path):
    columns = {"x": [None] * 6}, {"x": ["eco", "boost"] * 3}
    for index, changes in enumerate(columns):
        part = {name: values[6 * index : 6 * index + 6] for name, values in COLUMNS.items()}
        pyarrow.parquet.write_table(pa.table({**part, **changes}), tmp_path / f"part-{index}.parquet")
    dataset = load(tmp_path, mapping={**MAPPING, "missing": "indicator"})
    assert dataset.info.encoder.feature_names == ("x=boost", "x=eco", "x is missing")
