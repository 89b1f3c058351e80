import json

import numpy as np
import pytest

from vem.data.actions import ActionColumn
from vem.data.encoding import Encoder, InputColumn
from vem.errors import DataError

ENCODER = Encoder(
    (
        InputColumn("temp", "number", "indicator", fill=20.0, sentinels=(-999.0,)),
        InputColumn("mode", "categorical", labels=("1", "eco", "true")),
        InputColumn("open", "boolean", "forward-fill"),
    ),
    (
        ActionColumn("valve", "box", 0.0, 1.0),
        ActionColumn("stage", "discrete", 0.0, 2.0, ("1", "2", "5")),
        ActionColumn("fan", "discrete", 0.0, 1.0, ("false", "true")),
        ActionColumn("name", "discrete", 0.0, 1.0, ("a", "b")),
        ActionColumn("level", "discrete", 0.0, 1.0, ("0.5", "2")),
    ),
    ("number", "integer", "boolean", "text", "number"),
)


def test_features_and_names():
    assert ENCODER.feature_names == ("temp", "temp is missing", "mode=1", "mode=eco", "mode=true", "open")
    observed, single = ENCODER.observe({"temp": 21.5, "mode": "eco", "open": True})
    assert single
    assert observed.dtype == np.float32
    np.testing.assert_array_equal(observed, [[21.5, 0, 0, 1, 0, 1]])


@pytest.mark.parametrize("value", [None, np.nan, -999, -999.0, np.float32("nan")])
def test_missing_values_are_flagged(value):
    observed, _ = ENCODER.observe({"temp": value, "mode": "eco", "open": 0})
    np.testing.assert_array_equal(observed, [[20, 1, 0, 1, 0, 0]])
    observed, _ = ENCODER.observe([{"temp": value, "mode": "eco", "open": 0}, {"temp": 1, "mode": "eco", "open": 0}])
    np.testing.assert_array_equal(observed[:, :2], [[20, 1], [1, 0]])


@pytest.mark.parametrize(("value", "code"), [(1, 0), (1.0, 0), (np.int64(1), 0), (True, 2), (np.str_("eco"), 1)])
def test_categories_are_recognized_by_value(value, code):
    observed, _ = ENCODER.observe({"temp": 1, "mode": value, "open": 0})
    assert observed[0, 2:5].argmax() == code


def test_rows_in_every_form_give_the_same_observations():
    rows = [{"temp": float(i), "mode": "eco", "open": i % 2, "other": "x"} for i in range(4)]
    held = {name: [row[name] for row in rows] for name in rows[0]}
    expected, _ = ENCODER.observe(rows)
    arrays = {name: np.array(values) for name, values in held.items()}
    for given in (held, arrays):
        np.testing.assert_array_equal(ENCODER.observe(given)[0], expected)
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    for frame in (pandas.DataFrame(rows), polars.DataFrame(rows), pyarrow.Table.from_pylist(rows)):
        np.testing.assert_array_equal(ENCODER.observe(frame)[0], expected)
    holes = pandas.DataFrame(rows).astype({"temp": "Float64"})
    holes.loc[2, "temp"] = pandas.NA
    assert ENCODER.observe(holes)[0][2, 1] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "turbo"}, "column 'mode' holds 'turbo', which the training log did not; known are 1, eco, true"),
        ({"mode": None}, "column 'mode' is missing its value; its rule is missing = \"refuse\""),
        ({"open": None}, "give the last known value"),
        ({"open": 2}, "column 'open' holds 2 where a boolean is expected"),
        ({"temp": "warm"}, "column 'temp' holds 'warm' where a number is expected"),
        ({"temp": 1e300}, "which float32 cannot hold"),
        ({"temp": np.inf}, "which float32 cannot hold"),
        ({"temp": [1, 2]}, "different lengths: .*'temp': 2"),
        ({"temp": [[1, 2]], "mode": ["eco"], "open": [0]}, r"column 'temp' holds \[1, 2\] at row 0"),
    ],
)
def test_what_cannot_be_read_is_named(changes, message):
    with pytest.raises(DataError, match=message):
        ENCODER.observe({"temp": 1, "mode": "eco", "open": 0, **changes})


def test_missing_columns_are_named():
    with pytest.raises(DataError, match="column 'temp' is missing; this policy takes the columns temp, mode, open"):
        ENCODER.observe({"mode": "eco"})
    with pytest.raises(DataError, match="column 'mode' is missing"):
        ENCODER.observe([{"temp": 1, "mode": "eco", "open": 0}, {"temp": 1, "open": 0}])


def test_actions_become_columns():
    decoded = ENCODER.decode(np.array([[0.25, 2, 1, 0, 0], [0.5, 0.4, 0, 1.2, 1]], np.float32))
    np.testing.assert_array_equal(decoded["valve"], np.float32([0.25, 0.5]))
    assert decoded["stage"].tolist() == [5, 1]
    assert decoded["fan"].tolist() == [True, False]
    assert decoded["name"].tolist() == ["a", "b"]
    assert decoded["level"].tolist() == [0.5, 2.0]


def test_the_encoder_survives_json():
    assert Encoder.from_json(json.loads(json.dumps(ENCODER.to_json()))) == ENCODER


@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: stored.pop("inputs"),
        lambda stored: stored["inputs"][0].pop("labels"),
        lambda stored: stored["inputs"][0].update(kind="picture"),
        lambda stored: stored["inputs"][0].update(extra=1),
        lambda stored: stored.update(output_types=[]),
        lambda stored: stored.update(outputs=3),
    ],
)
def test_a_damaged_encoder_is_refused(damage):
    stored = json.loads(json.dumps(ENCODER.to_json()))
    damage(stored)
    with pytest.raises(DataError, match="the stored columns"):
        Encoder.from_json(stored)
