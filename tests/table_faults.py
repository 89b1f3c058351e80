"""Ways to spoil a sound table. Each takes a generator and the columns, and says what must become of the table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from table_cases import MAPPING, Columns


class Refused(NamedTuple):
    """The table must end in an error that names the column and the row, where they are given."""

    column: str | None = None
    row: int | None = None
    mapping: dict[str, Any] = MAPPING


def some_row(random: np.random.Generator, columns: Columns, inner: bool = False) -> int:
    """A row; with ``inner`` one that is a step for certain, not the last of its episode."""
    episodes = columns["episode"]
    rows = range(len(episodes))
    if inner:
        rows = [row for row in rows[:-1] if episodes[row] == episodes[row + 1]]
    return int(random.choice(rows))


def one(random: np.random.Generator, *values: Any) -> Any:
    return values[random.integers(len(values))]


def put(columns: Columns, name: str, row: int, value: Any) -> Refused:
    columns[name][row] = value
    return Refused(name, row)


def without_a_column(random, columns):
    name = one(random, "x", "mode", "u", "stage", "reward", "episode", "t", "done", "cut")
    del columns[name]
    return Refused(name)


def no_rows(random, columns):
    kept = {name: pa.array(values).slice(0, 0) for name, values in columns.items()}
    columns.update(kept)
    return Refused()


def missing_number(random, columns):
    return put(columns, "x", some_row(random, columns), one(random, None, float("nan")))


def missing_category(random, columns):
    return put(columns, "mode", some_row(random, columns), one(random, None, "", "  "))


def missing_step(random, columns):
    return put(columns, one(random, "u", "stage", "reward"), some_row(random, columns, inner=True), None)


def missing_key(random, columns):
    return put(columns, one(random, "episode", "t", "done", "cut"), some_row(random, columns), None)


def not_finite(random, columns):
    value = one(random, np.inf, -np.inf, 1e39, -1e300)
    return put(columns, one(random, "x", "u", "reward"), some_row(random, columns), value)


def infinite_time(random, columns):
    columns["t"] = [float(value) for value in columns["t"]]
    return put(columns, "t", some_row(random, columns), float("inf"))


def wrong_flag(random, columns):
    name = one(random, "done", "cut")
    columns[name] = [float(value) for value in columns[name]]
    return put(columns, name, some_row(random, columns), one(random, 2.0, -1.0, 0.5))


def words_for_numbers(random, columns):
    name = one(random, "reward", "done", "cut", "t")
    columns[name] = [str(value) for value in columns[name]]
    words = ("off", "3 °C", "--", "1,5", "1_0", "١", "5%", "−5", "1e", "1.2.3")
    return put(columns, name, some_row(random, columns), one(random, *words))


def repeated_step(random, columns):
    row = some_row(random, columns)
    for values in columns.values():
        values.append(values[row])
    return Refused(None, row)


def gap_in_time(random, columns):
    row = some_row(random, columns, inner=True)
    hole = int(random.integers(30, 1000))
    for other in range(row + 1, len(columns["t"])):
        if columns["episode"][other] == columns["episode"][row]:
            columns["t"][other] += hole
    return Refused("t")


def sentinel(random, columns):
    value = one(random, -999.0, -9999.0, 9999.0)
    return put(columns, one(random, "x", "u", "reward"), some_row(random, columns), value)


def nothing_to_choose(random, columns):
    columns["stage"] = ["low"] * len(columns["stage"])
    return Refused("stage")


def nothing_in_it(random, columns):
    name = one(random, "x", "mode", "u", "stage", "reward")
    columns[name] = [None] * len(columns[name])
    return Refused(name)


def too_many_categories(random, columns):
    count = len(columns["x"])
    copies, last = 101 // count + 1, max(columns["episode"]) + 1
    for name, values in columns.items():
        columns[name] = values * copies
    columns["episode"] = [columns["episode"][row] + (row // count) * last for row in range(count * copies)]
    name = one(random, "mode", "stage")
    columns[name] = [f"label {row}" for row in range(count * copies)]
    return Refused(name)


def only_ends(random, columns):
    columns["cut"] = [True] * len(columns["cut"])
    return Refused()


def lost_in_float32(random, columns):
    name = one(random, "x", "u", "reward")
    columns[name] = [1_700_000_000 + row for row in range(len(columns[name]))]
    return Refused(name)


def times_of_two_kinds(random, columns):
    columns["t"] = [f"2024-01-01T{hour:02d}:00:00" for hour in columns["t"]]
    return put(columns, "t", some_row(random, columns), one(random, "2024-01-01T09:30:00+01:00", "noon", "12"))


def times_too_large(random, columns):
    columns["t"] = [1_700_000_000_000_000_000 + step for step in columns["t"]]
    return Refused("t")


def contradicting_mapping(random, columns):
    name, entries = one(
        random,
        ("x", {"reward": "x"}),
        ("t", {"reward": "t"}),
        ("t", {"episode": "t"}),
        ("episode", {"action": ["episode"]}),
        ("u", {"observation": ["x", "u"]}),
        ("u", {"columns": {"u": {"low": 1.0, "high": 0.0}}}),
        ("u", {"columns": {"u": {"kind": "categorical"}}}),
        ("u", {"columns": {"u": {"kind": "box", "labels": ["a", "b"]}}}),
        ("mode", {"columns": {"mode": {"kind": "number"}}}),
        ("mode", {"columns": {"mode": {"low": 0.0}}}),
        ("mode", {"columns": {"mode": {"labels": ["eco"]}}}),
        ("stage", {"columns": {"stage": {"kind": "box"}}}),
        ("stage", {"columns": {"stage": {"missing": "indicator"}}}),
        ("stage", {"columns": {"stage": {"labels": [str(code) for code in range(300)]}}}),
        ("reward", {"columns": {"reward": {"missing": "forward-fill"}}}),
        ("X", {"observation": ["X", "mode"]}),
        ("other", {"columns": {"other": {"kind": "number"}}}),
        (None, {"time": None, "gap": 3}),
        (None, {"time": None, "duplicates": "first"}),
        (None, {"gap": -1}),
        (None, {"missing": "guess"}),
        (None, {"reward": None}),
        (None, {"observation": []}),
        (None, {"reward": ["reward"]}),
        (None, {"nothing": "x"}),
    )
    return Refused(name, None, {**MAPPING, **entries})


def wrong_type(random, columns):
    name = one(random, "x", "u", "reward", "done", "cut", "mode", "stage", "episode")
    count = len(columns[name])
    struct = pa.array([{"a": 1}] * count)
    junk = [pa.array([[1.0, 2.0]] * count), struct, pa.array([b"ab"] * count), pa.array([3] * count, pa.duration("s"))]
    columns[name] = one(random, *junk, pa.array([3] * count, pa.time32("s")))
    return Refused(name)


def time_of_day(random, columns):
    columns["t"] = one(random, *(pa.array(columns["t"], kind) for kind in (pa.time32("s"), pa.time64("us"))))
    return Refused("t")


def number_labels(random, columns):
    """A sentinel, or infinity, among numbers that are labels."""
    columns["stage"] = [float(stage == "low") for stage in columns["stage"]]
    mapping = {**MAPPING, "columns": {"stage": {"kind": "discrete"}}}
    value = one(random, -999.0, 9999.0, float("inf"))
    return put(columns, "stage", some_row(random, columns), value)._replace(mapping=mapping)


def sentinel_in_labels(random, columns):
    """A declared sentinel among labels is a missing value."""
    columns["mode"] = [int(mode == "eco") for mode in columns["mode"]]
    mapping = {**MAPPING, "columns": {"mode": {"kind": "categorical", "sentinels": [-7]}}}
    return put(columns, "mode", some_row(random, columns), -7)._replace(mapping=mapping)


def mixed_values(random, columns):
    name = one(random, "x", "u", "reward", "t", "done")
    value = one(random, "off", b"ab", [1.0], {"a": 1}, 1j, object(), 2**70)
    return put(columns, name, 1 + some_row(random, columns) // 2, value)


def uneven_columns(random, columns):
    name = one(random, "x", "u", "reward", "t", "done")
    columns[name] = one(random, columns[name][:-1], columns[name] * 2, 1.0, np.zeros((len(columns["x"]), 2)))
    return Refused(name)


WAYS = (
    *(without_a_column, no_rows, missing_number, missing_category, missing_step, missing_key, not_finite),
    *(infinite_time, wrong_flag, words_for_numbers, repeated_step, gap_in_time, sentinel, nothing_to_choose),
    *(nothing_in_it, too_many_categories, only_ends, lost_in_float32, times_of_two_kinds, times_too_large),
    *(contradicting_mapping, number_labels, sentinel_in_labels),
)
"""Ways that every form of a table can show."""
TYPED_WAYS = (wrong_type, time_of_day)
"""Ways that need typed columns."""
FRAME_WAYS = (mixed_values, uneven_columns)
"""Ways that only a dict of Python values can show."""
