"""Arrow columns → NumPy: numbers with NaN for missing, text, flags, times. What does not fit is named with its row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np

from vem.data.encoding import ABSENT, label_text
from vem.errors import DataError

Place = Callable[[int], str]
"""Row of the table → where that is, for people."""


def kind_of(arrow_type: Any) -> str:
    """``number``, ``boolean``, ``text``, ``time``, ``empty`` (only missing values), or ``other``."""
    from pyarrow import types

    if types.is_dictionary(arrow_type):
        return kind_of(arrow_type.value_type)
    if types.is_boolean(arrow_type):
        return "boolean"
    if types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "number"
    if types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return "text"
    if types.is_timestamp(arrow_type) or types.is_date(arrow_type):
        return "time"
    return "empty" if types.is_null(arrow_type) else "other"


def numbers(name: str, column: Any, start: int, place: Place) -> np.ndarray:
    """The column as float64, NaN where a value is missing; text is read as numbers."""
    import pyarrow as pa

    kind = kind_of(column.type)
    if kind in ("time", "other"):
        raise DataError(f"column '{name}' holds {column.type} where numbers are expected; {_remedy(kind)}.")
    plain = _plain(column)
    if kind == "text":
        plain = _trimmed(plain)
    try:
        values = plain.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _spelled_numbers(name, plain, start, place)
    return _numpy(values)


def _spelled_numbers(name: str, column: Any, start: int, place: Place) -> np.ndarray:
    """Text one by one: booleans as 0 and 1, else the first value that is no number is refused."""
    words = {"true": 1.0, "false": 0.0}
    values = np.full(len(column), np.nan)
    for row, text in enumerate(column.to_pylist()):
        if text is None:
            continue
        try:
            values[row] = words[text.lower()] if text.lower() in words else float(text)
        except ValueError:
            raise DataError(
                f"column '{name}' holds {text!r} at {place(start + row)} where a number is expected; mend the row, or "
                'map the column as kind = "categorical".'
            ) from None
    return values


def booleans(name: str, column: Any, start: int, place: Place) -> np.ndarray:
    """The column as 0 and 1 in float64, NaN where a value is missing."""
    values = numbers(name, column, start, place)
    wrong = ~(np.isnan(values) | (values == 0) | (values == 1))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"column '{name}' holds {values[row]:g} at {place(start + row)}, and flags are 0 or 1, true or false; "
            "convert the column."
        )
    return values


def flags(name: str, column: Any, start: int, place: Place) -> np.ndarray:
    """The column as booleans without gaps."""
    values = booleans(name, column, start, place)
    _require_present(name, np.isnan(values), start, place, "say for every step whether it is one")
    return values == 1


def texts(name: str, column: Any) -> Any:
    """The column as an Arrow dictionary of labels (``label_text``), missing values as null."""
    import pyarrow as pa

    if kind_of(column.type) == "other":
        raise DataError(f"column '{name}' holds {column.type}, which has no categories; {_remedy('other')}.")
    if pa.types.is_timestamp(column.type):  # Python's times end at microseconds
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    if not isinstance(encoded, pa.DictionaryArray):  # only missing values
        encoded = pa.array([None] * len(column), pa.string()).dictionary_encode()
    found = encoded.dictionary.to_pylist()
    words = [None if value is None or value != value else label_text(value) for value in found]
    indices = encoded.indices
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))


def codes(name: str, column: Any, labels: tuple[str, ...], start: int, place: Place) -> np.ndarray:
    """The number of each value's label, ``ABSENT`` where it is missing; a value without label is refused."""
    encoded = texts(name, column)
    known = {label: code for code, label in enumerate(labels)}
    words = encoded.dictionary.to_pylist()
    table = np.array([ABSENT if word is None else known.get(word, -2) for word in words] or [ABSENT], np.int64)
    indices = _numpy(encoded.indices.cast("float64"))
    found = np.where(np.isnan(indices), ABSENT, table[np.nan_to_num(indices).astype(np.int64)])
    unknown = found == -2
    if unknown.any():
        row = int(np.argmax(unknown))
        raise DataError(
            f"column '{name}' holds '{words[int(indices[row])]}' at {place(start + row)}, which is not among its "
            f"labels {', '.join(labels[:20])}; add it to the labels, or mend the row."
        )
    return found


def times(name: str, column: Any, start: int, place: Place) -> np.ndarray:
    """The column as float64: seconds since 1970 for timestamps and dates, else the numbers themselves."""
    import pyarrow as pa

    plain = _plain(column)
    kind = kind_of(plain.type)
    if kind == "text":
        plain = _timestamps(_trimmed(plain))
        kind = kind_of(plain.type)
    if kind == "time":
        micro = plain.cast(pa.timestamp("us", getattr(plain.type, "tz", None)), safe=False).cast(pa.int64())
        values = _numpy(micro.cast(pa.float64(), safe=False)) / 1e6
    elif kind == "text":
        try:
            values = numbers(name, plain, start, place)
        except DataError:
            row, text = _first_without_time(plain)
            raise DataError(
                f"column '{name}' holds '{text}' at {place(start + row)}, which is no time like the others; write "
                "times as 2024-01-31 08:00:00, or all as numbers."
            ) from None
    else:
        values = numbers(name, plain, start, place)
    _require_present(name, np.isnan(values), start, place, "every row needs its time")
    if np.isinf(values).any():
        raise DataError(
            f"column '{name}' is infinite at {place(start + int(np.argmax(np.isinf(values))))}; mend the row."
        )
    return values


def _timestamps(column: Any) -> Any:
    """Text as timestamps, with or without time zone, if all of it is such; else the column itself."""
    import pyarrow as pa

    for zone in (None, "UTC"):
        try:
            return column.cast(pa.timestamp("us", zone))
        except pa.ArrowInvalid:
            continue
    return column


def _first_without_time(column: Any) -> tuple[int, str]:
    """The first text that is neither a number nor a time, else the first that is not what most are."""
    words = [(row, text) for row, text in enumerate(column.to_pylist()) if text is not None]
    kinds = ["number" if _is_number(text) else "time" if _is_time(text) else "other" for _, text in words]
    usual = max(("number", "time"), key=kinds.count)
    return next((word for word, kind in zip(words, kinds, strict=True) if kind == "other"), None) or next(
        word for word, kind in zip(words, kinds, strict=True) if kind != usual
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


class EpisodeNumbers:
    """Number of each episode, in the order of their first rows, for the values of an episode column."""

    def __init__(self, name: str) -> None:
        self.name, self.numbers = name, dict[str, int]()

    def of(self, column: Any, start: int, place: Place) -> np.ndarray:
        """The episode of each row."""
        if kind_of(column.type) == "other":
            raise DataError(f"column '{self.name}' holds {column.type}, which names no episode; {_remedy('other')}.")
        encoded = texts(self.name, column)
        words = encoded.dictionary.to_pylist()
        indices = _numpy(encoded.indices.cast("float64"))
        absent = np.isnan(indices)
        absent[~absent] = np.array([word is None for word in words], np.bool_)[indices[~absent].astype(np.int64)]
        _require_present(self.name, absent, start, place, "every row needs its episode")
        indices = indices.astype(np.int64)
        used, places = np.unique(indices, return_index=True)
        for index in used[np.argsort(places)]:
            self.numbers.setdefault(words[index], len(self.numbers))
        table = np.array([self.numbers.get(word, -1) for word in words], np.int64)
        return table[indices]

    def names(self) -> list[str]:
        """The episodes' names by number."""
        return list(self.numbers)


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if hasattr(column, "dictionary_decode") else column


def _trimmed(column: Any) -> Any:
    import pyarrow.compute as compute

    trimmed = compute.utf8_trim_whitespace(column)  # pyright: ignore[reportAttributeAccessIssue]
    empty = compute.equal(trimmed, "")  # pyright: ignore[reportAttributeAccessIssue]
    return compute.if_else(empty, None, trimmed)  # pyright: ignore[reportAttributeAccessIssue]


def _numpy(column: Any) -> np.ndarray:
    """Float64 with NaN for nulls; a copy that may be changed."""
    return np.array(column.to_numpy(zero_copy_only=False), np.float64)


def _require_present(name: str, absent: np.ndarray, start: int, place: Place, need: str) -> None:
    if absent.any():
        row = int(np.argmax(absent))
        raise DataError(f"column '{name}' is missing its value at {place(start + row)}; {need}.")


def _remedy(kind: str) -> str:
    if kind == "time":
        return "derive numbers from it, such as the hour, or map it as time"
    return "split it into columns of one number each, or leave it out"
