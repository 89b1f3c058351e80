"""Thousands of malformed tables, each of which must end in one DataError that names the column and, if any, the row."""

import io

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from vem.data import from_table, load
from vem.errors import DataError

NUM_TABLES = 5000
MAPPING = {
    "observation": ["x", "mode"],
    "action": ["u", "stage"],
    "reward": "reward",
    "episode": "episode",
    "time": "t",
    "terminal": "done",
    "truncated": "cut",
}


def sound(random):
    """The columns of a few episodes, as lists."""
    lengths = random.integers(5, 9, random.integers(1, 4))
    episode = np.repeat(np.arange(len(lengths)), lengths)
    num_rows = len(episode)
    step = np.concatenate([np.arange(length) for length in lengths])
    return {
        "episode": episode.tolist(),
        "t": step.tolist(),
        "x": random.normal(size=num_rows).tolist(),
        "mode": [*random.choice(["eco", "boost"], num_rows - 2), "eco", "boost"],
        "u": random.uniform(0, 1, num_rows).tolist(),
        "stage": ["low", "high", *random.choice(["low", "high"], num_rows - 4), "low", "high"],
        "reward": random.normal(size=num_rows).tolist(),
        "done": [False] * num_rows,
        "cut": [False] * num_rows,
    }


def some_row(random, columns, inner=False):
    """A row; with ``inner`` one that is a step for certain, not the last of its episode."""
    episodes = columns["episode"]
    rows = (
        [row for row in range(len(episodes) - 1) if episodes[row] == episodes[row + 1]]
        if inner
        else range(len(episodes))
    )
    return int(random.choice(rows))


def put(columns, name, row, value):
    columns[name][row] = value
    return name, row


def without_a_column(random, columns):
    name = str(random.choice([*MAPPING["observation"], *MAPPING["action"], "reward", "episode", "t", "done", "cut"]))
    del columns[name]
    return name, None


def no_rows(random, columns):
    kept = {name: values[:1] for name, values in columns.items()}
    columns.clear()
    columns.update({name: pa.array(values).slice(0, 0) for name, values in kept.items()})
    return None, None


def missing_number(random, columns):
    return put(columns, "x", some_row(random, columns), random.choice([None, float("nan")]))


def missing_category(random, columns):
    return put(columns, "mode", some_row(random, columns), None)


def missing_step(random, columns):
    return put(columns, str(random.choice(["u", "stage", "reward"])), some_row(random, columns, inner=True), None)


def missing_key(random, columns):
    return put(columns, str(random.choice(["episode", "t", "done", "cut"])), some_row(random, columns), None)


def not_finite(random, columns):
    name = str(random.choice(["x", "u", "reward"]))
    return put(columns, name, some_row(random, columns), float(random.choice([np.inf, -np.inf, 1e39, -1e300])))


def infinite_time(random, columns):
    columns["t"] = [float(value) for value in columns["t"]]
    return put(columns, "t", some_row(random, columns), float("inf"))


def wrong_flag(random, columns):
    name = str(random.choice(["done", "cut"]))
    columns[name] = [float(value) for value in columns[name]]
    return put(columns, name, some_row(random, columns), float(random.choice([2, -1, 0.5])))


def words_for_numbers(random, columns):
    name = str(random.choice(["reward", "done", "cut", "t"]))
    columns[name] = [str(value) for value in columns[name]]
    return put(columns, name, some_row(random, columns), str(random.choice(["off", "3 °C", "--", "1,5"])))


def repeated_step(random, columns):
    row = some_row(random, columns)
    for values in columns.values():
        values.append(values[row])
    return None, row


def gap_in_time(random, columns):
    row = some_row(random, columns, inner=True)
    later = [i for i in range(row + 1, len(columns["t"])) if columns["episode"][i] == columns["episode"][row]]
    hole = int(random.integers(30, 1000))
    for other in later:
        columns["t"][other] += hole
    return "t", row


def sentinel(random, columns):
    name = str(random.choice(["x", "u", "reward"]))
    return put(columns, name, some_row(random, columns), float(random.choice([-999, -9999, 9999])))


def wrong_type(random, columns):
    name = str(random.choice(["x", "u", "reward", "done", "cut", "mode", "stage", "episode", "t"]))
    count = len(columns[name])
    junk = [[[1.0, 2.0]] * count, [{"a": 1}] * count, [b"ab"] * count, pa.array([3] * count, pa.duration("s"))]
    columns[name] = junk[random.integers(len(junk))]
    return name, None


def nothing_to_choose(random, columns):
    columns["stage"] = ["low"] * len(columns["stage"])
    return "stage", None


def nothing_in_it(random, columns):
    name = str(random.choice(["x", "mode", "u", "stage", "reward"]))
    columns[name] = [None] * len(columns[name])
    return name, None


def too_many_categories(random, columns):
    copies = 101 // len(columns["x"]) + 1
    count = len(columns["x"])
    last = max(columns["episode"]) + 1
    for name, values in columns.items():
        columns[name] = values * copies
    columns["episode"] = [columns["episode"][row] + (row // count) * last for row in range(count * copies)]
    name = str(random.choice(["mode", "stage"]))
    columns[name] = [f"label {row}" for row in range(count * copies)]
    return name, None


def only_ends(random, columns):
    columns["cut"] = [True] * len(columns["cut"])
    return None, None


WAYS = (
    *(without_a_column, no_rows, missing_number, missing_category, missing_step, missing_key, not_finite),
    *(infinite_time, wrong_flag, words_for_numbers, repeated_step, gap_in_time, sentinel, wrong_type),
    *(nothing_to_choose, nothing_in_it, too_many_categories, only_ends),
)


def test_the_tables_are_sound_before_they_are_spoiled():
    for seed in range(20):
        from_table(sound(np.random.default_rng(seed)), MAPPING)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_malformed_tables_end_in_data_error(way):
    num_refused = 0
    for seed in range(-(-NUM_TABLES // len(WAYS))):
        random = np.random.default_rng(seed)
        columns = sound(random)
        name, row = way(random, columns)
        order = None
        if seed % 2 and row is not None:  # rows out of order: the error names the row of the table, not of the result
            order = random.permutation(len(columns["x"]))
            columns = {key: [values[i] for i in order] for key, values in columns.items()}
        with pytest.raises(DataError) as caught:
            from_table(columns, MAPPING)
        text = str(caught.value)
        assert name is None or f"'{name}'" in text, text
        if row is not None and way is not gap_in_time:
            found = row if order is None else int(np.argmax(order == row))
            assert f"row {found}" in text, text
        assert len(text) < 700
        num_refused += 1
    assert num_refused * len(WAYS) >= NUM_TABLES


def test_truncated_and_arbitrary_files_end_in_data_error(tmp_path):
    log = pa.table(sound(np.random.default_rng(0)))
    sinks = {".parquet": io.BytesIO(), ".feather": io.BytesIO(), ".csv": io.BytesIO()}
    pyarrow.parquet.write_table(log, sinks[".parquet"])
    pyarrow.feather.write_feather(log, sinks[".feather"], compression="uncompressed")
    pyarrow.csv.write_csv(log, sinks[".csv"])
    random = np.random.default_rng(1)
    for suffix, sink in sinks.items():
        content = sink.getvalue()
        path = tmp_path / f"case{suffix}"
        for _ in range(60):
            if suffix == ".csv":  # a cut CSV is a shorter table; bytes are not
                path.write_bytes(bytes(random.integers(128, 256, random.integers(0, 200), np.uint8)))
            else:
                path.write_bytes(content[: random.integers(len(content))])
            with pytest.raises(DataError, match=r"case\."):
                load(path, mapping=MAPPING)
