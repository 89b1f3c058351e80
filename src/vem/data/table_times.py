"""A time column → float64 that orders the rows: seconds for timestamps, dates and durations, else its own numbers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np

from vem.data.table_values import (
    Place,
    as_float64,
    kind_of,
    numbers,
    plain_number,
    plain_values,
    require_present,
    trimmed,
)
from vem.errors import DataError

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Ticks in a second."""
CLOCKS = {"numbers": "numbers", "local": "times without a time zone", "zoned": "times with a time zone"}
"""Kind of a time column → what to call it; two kinds in one column cannot be compared."""


class Times:
    """Times of the rows of a table, block by block; DataError where blocks cannot be put into one order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: str | None = None
        """Which of ``CLOCKS`` the column holds, once a row was seen."""
        self._place = ""

    @property
    def are_timestamps(self) -> bool:
        """Whether times are seconds since 1970."""
        return self.clock in ("local", "zoned")

    def of(self, column: Any, start: int, place: Place) -> np.ndarray:
        """The time of each row of a block."""
        plain = plain_values(column)
        if kind_of(plain.type) == "text":
            plain = self._parsed(trimmed(plain), start, place)
        clock, values = self._read(plain, start, place)
        require_present(self.name, np.isnan(values), start, place, "every row needs its time")
        if np.isinf(values).any():
            raise DataError(
                f"column '{self.name}' is infinite at {place(start + int(np.argmax(np.isinf(values))))}; mend the row."
            )
        if self.clock is not None and clock != self.clock and len(values):
            raise DataError(
                f"column '{self.name}' holds {CLOCKS[self.clock]} at {self._place} and {CLOCKS[clock]} at "
                f"{place(start)}, which cannot be compared; write all of them in one way."
            )
        if self.clock is None and len(values):
            self.clock, self._place = clock, place(start)
        return values

    def _read(self, plain: Any, start: int, place: Place) -> tuple[str, np.ndarray]:
        import pyarrow as pa

        kind = plain.type
        if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
            clock = "numbers" if pa.types.is_duration(kind) else "local" if kind.tz is None else "zoned"
            return clock, self._exact(plain.cast(pa.int64()), UNITS[kind.unit], start, place)
        if pa.types.is_date(kind):
            is_days = pa.types.is_date32(kind)
            days = plain.cast(pa.int32()).cast(pa.int64()) if is_days else plain.cast(pa.int64())
            seconds = as_float64(days) * 86_400 if is_days else as_float64(days) / 1_000
            return "local", seconds
        if pa.types.is_time(kind):
            raise DataError(
                f"column '{self.name}' holds {kind}, which begins anew every day; give date and time together."
            )
        if pa.types.is_integer(kind):
            return "numbers", self._exact(plain, 1, start, place)
        return "numbers", numbers(self.name, plain, start, place)

    def _exact(self, ticks: Any, in_a_second: int, start: int, place: Place) -> np.ndarray:
        """Whole ticks as numbers, if different ones stay different: float64 has 53 bits."""
        values = as_float64(ticks) / in_a_second
        if len(values) and np.nanmax(np.abs(values * in_a_second), initial=0) > 2**53:
            whole = ticks.fill_null(0).to_numpy(zero_copy_only=False)
            order = np.argsort(whole, kind="stable")
            same = (values[order][1:] == values[order][:-1]) & (whole[order][1:] != whole[order][:-1])
            if same.any():
                first, second = sorted(order[int(np.argmax(same)) : int(np.argmax(same)) + 2].tolist())
                raise DataError(
                    f"column '{self.name}' holds {whole[first]} at {place(start + first)} and {whole[second]} at "
                    f"{place(start + second)}, too large to tell apart; subtract the time of the first row from all."
                )
        return values

    def _parsed(self, column: Any, start: int, place: Place) -> Any:
        """Text as timestamps, with or without time zone, or as numbers; DataError names the first that is neither."""
        import pyarrow as pa

        for unit, zone in (("us", None), ("us", "UTC"), ("ns", None), ("ns", "UTC")):
            try:
                return column.cast(pa.timestamp(unit, zone))
            except pa.ArrowInvalid:
                continue
        try:
            return pa.array(numbers(self.name, column, start, place), from_pandas=True)
        except DataError:
            row, text = _first_unlike(column, self.clock)
            raise DataError(
                f"column '{self.name}' holds '{text}' at {place(start + row)}, which is no time like the others; write "
                "times as 2024-01-31 08:00:00, all with a time zone or all without, or all as numbers."
            ) from None


def _first_unlike(column: Any, usual: str | None) -> tuple[int, str]:
    """The first text that is neither a number nor a time, else the first that is not as usual, or not what most are."""
    words = [(row, text) for row, text in enumerate(column.to_pylist()) if text is not None]
    kinds = [_clock_of(text) for _, text in words]
    usual = usual or max(("local", "zoned", "numbers"), key=kinds.count)
    strange = [word for word, kind in zip(words, kinds, strict=True) if kind is None]
    unlike = [word for word, kind in zip(words, kinds, strict=True) if kind != usual]
    return (strange or unlike or words)[0]


def _clock_of(text: str) -> str | None:
    if plain_number(text) is not None:
        return "numbers"
    try:
        return "local" if datetime.fromisoformat(text).tzinfo is None else "zoned"
    except ValueError:
        return None
