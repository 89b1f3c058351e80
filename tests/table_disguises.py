"""Unusual ways to write a sound table that mean the same: each must be read to exactly the same transitions."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from table_cases import Columns, csv_text

START = datetime.datetime(2024, 3, 30, 22, tzinfo=datetime.UTC)
"""The night before clocks change in Europe."""


def _clock(columns: Columns, zone: datetime.tzinfo | None = datetime.UTC) -> list[datetime.datetime]:
    times = [START + datetime.timedelta(minutes=20 * step) for step in columns["t"]]
    return [time.replace(tzinfo=None) if zone is None else time.astimezone(zone) for time in times]


def timestamps(columns: Columns) -> Columns:
    return {**columns, "t": pa.array(_clock(columns, None), pa.timestamp("ms"))}


def zoned_timestamps(columns: Columns) -> Columns:
    return {**columns, "t": pa.array(_clock(columns), pa.timestamp("ns", "Europe/Berlin"))}


def written_times(columns: Columns) -> Columns:
    return {**columns, "t": [time.strftime("%Y-%m-%d %H:%M:%S") for time in _clock(columns)]}


def written_zones(columns: Columns) -> Columns:
    zones = [datetime.timezone(datetime.timedelta(hours=hours)) for hours in (-5, 0, 3)]
    times = [time.astimezone(zones[row % 3]) for row, time in enumerate(_clock(columns))]
    return {**columns, "t": [time.isoformat() for time in times]}


def dates(columns: Columns) -> Columns:
    return {**columns, "t": [START.date() + datetime.timedelta(days=step) for step in columns["t"]]}


def nanoseconds(columns: Columns) -> Columns:
    return {**columns, "t": [1_700_000_000_000_000_000 + step * 1_000_000 for step in columns["t"]]}


def far_times(columns: Columns) -> Columns:
    return {**columns, "t": pa.array([10**14 + step * 10**13 for step in columns["t"]]).cast(pa.timestamp("s"))}


def durations(columns: Columns) -> Columns:
    return {**columns, "t": pa.array(columns["t"], pa.duration("ms"))}


def dictionaries(columns: Columns) -> Columns:
    return {name: pa.array(values).dictionary_encode() for name, values in columns.items()}


def decimals(columns: Columns) -> Columns:
    kinds: dict[str, Any] = {"episode": pa.decimal128(9, 2), "t": pa.decimal256(60, 1)}
    return columns | {name: pa.array([Decimal(v) for v in columns[name]], kind) for name, kind in kinds.items()}


def small_decimals(columns: Columns) -> Columns:
    kinds: dict[str, Any] = {"episode": pa.decimal32(9, 2), "t": pa.decimal64(12, 1)}
    return columns | {name: pa.array([Decimal(v) for v in columns[name]], kind) for name, kind in kinds.items()}


def float_keys(columns: Columns) -> Columns:
    return {**columns, "episode": np.array(columns["episode"], np.float16), "t": np.array(columns["t"], np.float32)}


def number_flags(columns: Columns) -> Columns:
    return columns | {name: [float(flag) for flag in columns[name]] for name in ("done", "cut")}


def named_episodes(columns: Columns) -> Columns:
    return {**columns, "episode": [f"Tag {number:03d} – größer" for number in columns["episode"]]}


def long_text(columns: Columns) -> Columns:
    return columns | {name: pa.array(columns[name], pa.large_string()) for name in ("mode", "stage")}


def viewed_text(columns: Columns) -> Columns:
    return columns | {name: pa.array(columns[name], pa.string_view()) for name in ("mode", "stage")}


def blanks(columns: Columns) -> Columns:
    padded = [f"{' ' * (row % 3)}{mode}{' ' * (row % 2)}" for row, mode in enumerate(columns["mode"])]
    return {
        **columns,
        "mode": padded,
        "episode": [f"{' ' * (row % 2)}e{n}" for row, n in enumerate(columns["episode"])],
    }


def other_columns(columns: Columns) -> Columns:
    count = len(columns["x"])
    return {"": list(range(count)), "note": ['it\'s 5" wide, "x"; a\tb'] * count, **columns, "empty": [None] * count}


def nested_columns(columns: Columns) -> Columns:
    count = len(columns["x"])
    return {"vector": [[1.0, 2.0]] * count, "struct": [{"a": 1}] * count, **columns, "bytes": [b"ab"] * count}


SAME = (
    *(timestamps, written_times, dates, nanoseconds, float_keys, number_flags, named_episodes, blanks, other_columns),
    zoned_timestamps,
)
"""Ways that every form can show."""
TYPED_SAME = (dictionaries, decimals, small_decimals, far_times, durations, long_text, viewed_text, nested_columns)
NOT_IN = {
    "pandas": (small_decimals, far_times, viewed_text),
    "polars": (small_decimals, far_times, durations, viewed_text, decimals),
    "parquet": (viewed_text, small_decimals, far_times, float_keys),
    "parquet folder": (viewed_text, small_decimals, far_times, float_keys),
    "feather": (viewed_text,),
}
"""Form → what it cannot hold."""


def spaced_numbers(columns: Columns) -> str:
    return csv_text({name: [f" {value} " for value in values] for name, values in columns.items()})


def numbers_in_two_ways(columns: Columns) -> str:
    keys = {
        name: [f"{v}.0" if row % 2 else f"0{v}" for row, v in enumerate(columns[name])] for name in ("episode", "t")
    }
    return csv_text({**columns, **keys})


def empty_lines(columns: Columns) -> str:
    return csv_text(columns).replace("\n", "\n\n", 3) + "\n\n"


def note_with_line_breaks(columns: Columns) -> str:
    return csv_text({**columns, "note": [f"two\nlines, {row}" for row in range(len(columns["x"]))]})


SAME_TEXT = {
    "spaced numbers": spaced_numbers,
    "numbers in two ways": numbers_in_two_ways,
    "empty lines": empty_lines,
    "note with line breaks": note_with_line_breaks,
    "written zones": lambda columns: csv_text(written_zones(columns)),
    "carriage returns": lambda columns: csv_text(columns, end="\r"),
    "both ends of line": lambda columns: csv_text(columns, end="\r\n"),
    "bars": lambda columns: csv_text(columns, separator="|"),
    "no last end of line": lambda columns: csv_text(columns).rstrip("\n"),
}
"""CSV text of a sound table."""
