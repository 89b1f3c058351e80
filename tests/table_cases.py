"""Sound tables with known transitions, and the forms in which a table comes: frames, files, folders."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from vem.data.dataset import Dataset
from vem.data.load import load
from vem.data.tables import from_table

MAPPING: dict[str, Any] = {
    "observation": ["x", "mode"],
    "action": ["u", "stage"],
    "reward": "reward",
    "episode": "episode",
    "time": "t",
    "terminal": "done",
    "truncated": "cut",
}
MODES, STAGES = ("boost", "eco"), ("high", "low")
Columns = dict[str, Any]


def sound(random: np.random.Generator) -> Columns:
    """The columns of a few episodes, as lists; rows in order, none of them an end."""
    lengths = random.integers(5, 9, random.integers(1, 4))
    episode = np.repeat(np.arange(len(lengths)), lengths)
    num_rows = len(episode)
    step = np.concatenate([np.arange(length) for length in lengths])
    return {
        "episode": episode.tolist(),
        "t": step.tolist(),
        "x": random.normal(size=num_rows).tolist(),
        "mode": [*random.choice(["eco", "boost"], num_rows - 2).tolist(), "eco", "boost"],
        "u": random.uniform(0, 1, num_rows).tolist(),
        "stage": ["low", "high", *random.choice(["low", "high"], num_rows - 4).tolist(), "low", "high"],
        "reward": random.normal(size=num_rows).tolist(),
        "done": [False] * num_rows,
        "cut": [False] * num_rows,
    }


def with_ends(random: np.random.Generator, columns: Columns) -> Columns:
    """The columns with some steps that end the task or only the trajectory."""
    count = len(columns["x"])
    ended = (random.random(count) < 0.15).tolist()
    return {**columns, "done": ended, "cut": (random.random(count) < 0.1).tolist()}


def shuffled(random: np.random.Generator, columns: Columns) -> tuple[Columns, np.ndarray]:
    """The rows in another order, and which row each of them was."""
    order = random.permutation(len(columns["x"]))
    return {name: [values[row] for row in order] for name, values in columns.items()}, order


def true_transitions(columns: Columns) -> list[tuple]:
    """What the rows of ``sound`` columns mean, one by one: (observation, action, reward, next observation or None)."""
    rows = sorted(zip(*columns.values(), strict=True), key=lambda row: row[:2])
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    found = []
    for row, following in zip(named, [*named[1:], None], strict=True):
        is_last = row["cut"] or following is None or following["episode"] != row["episode"]
        if row["done"] or not is_last:
            ahead = None if row["done"] or following is None else _observation(following)
            action = (float(np.float32(row["u"])), float(STAGES.index(row["stage"])))
            found.append((_observation(row), action, float(np.float32(row["reward"])), ahead))
    return sorted(found)


def _observation(row: dict[str, Any]) -> tuple[float, ...]:
    return (float(np.float32(row["x"])), *(float(row["mode"] == mode) for mode in MODES))


def read_transitions(dataset: Dataset) -> list[tuple]:
    """The transitions of a Dataset in the form of ``true_transitions``."""
    found = []
    for row in np.flatnonzero(dataset.valid):
        ahead = None if dataset.terminal[row] else tuple(dataset.observations[row + 1].tolist())
        step = (tuple(dataset.observations[row].tolist()), tuple(dataset.actions[row].tolist()))
        found.append((*step, float(dataset.rewards[row]), ahead))
    return sorted(found)


def csv_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(**options))
    return sink.getvalue()


def csv_text(columns: Columns, separator: str = ",", end: str = "\n") -> str:
    """The columns as CSV, every value as Python writes it and quoted where needed; None is empty."""
    sink = io.StringIO()
    writer = csv.writer(sink, delimiter=separator, lineterminator=end)
    writer.writerow(columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in zip(*columns.values(), strict=True))
    return sink.getvalue()


def _file(name: str, write: Callable[[pa.Table, Path], None]) -> Callable[[Columns, Path, Any], Dataset]:
    def read(columns: Columns, place: Path, mapping: Any) -> Dataset:
        write(pa.table(columns), place / name)
        return load(place / name, mapping=mapping)

    return read


def _stream(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


def _folder(suffix: str, write: Callable[[pa.Table, Path], None]) -> Callable[[Columns, Path, Any], Dataset]:
    def read(columns: Columns, place: Path, mapping: Any) -> Dataset:
        table = pa.table(columns)
        (place / "shards").mkdir()
        for part, start in enumerate(range(0, max(1, len(table)), 4)):
            write(table.slice(start, 4), place / "shards" / f"part-{part}{suffix}")
        return load(place / "shards", mapping=mapping)

    return read


def _pandas(columns: Columns, place: Path, mapping: Any) -> Dataset:
    return from_table(pa.table(columns).to_pandas(), mapping)


def _polars(columns: Columns, place: Path, mapping: Any) -> Dataset:
    import polars

    return from_table(polars.from_arrow(pa.table(columns)), mapping)


TYPED: dict[str, Callable[[Columns, Path, Any], Dataset]] = {
    "dict": lambda columns, place, mapping: from_table(columns, mapping),
    "arrow": lambda columns, place, mapping: from_table(pa.table(columns), mapping),
    "pandas": _pandas,
    "polars": _polars,
    "parquet": _file("log.parquet", pyarrow.parquet.write_table),
    "feather": _file("log.feather", pyarrow.feather.write_feather),
    "stream": _file("log.arrow", _stream),
    "parquet folder": _folder(".parquet", pyarrow.parquet.write_table),
}
"""Forms that keep every column's type → a function that writes the columns in it and reads them."""
TEXT: dict[str, Callable[[Columns, Path, Any], Dataset]] = {
    "csv": _file("log.csv", lambda table, path: path.write_bytes(csv_bytes(table))),
    "quoted": _file("log.csv", lambda table, path: path.write_bytes(csv_bytes(table, quoting_style="all_valid"))),
    "tsv": _file("log.tsv", lambda table, path: path.write_bytes(csv_bytes(table, delimiter="\t"))),
    "semicolons": _file("log.csv", lambda table, path: path.write_bytes(csv_bytes(table, delimiter=";"))),
    "bom": _file("log.csv", lambda table, path: path.write_bytes(b"\xef\xbb\xbf" + csv_bytes(table))),
    "gzip": _file("log.csv.gz", lambda table, path: path.write_bytes(gzip.compress(csv_bytes(table)))),
    "csv folder": _folder(".csv", lambda table, path: path.write_bytes(csv_bytes(table))),
}
FORMS = TYPED | TEXT
