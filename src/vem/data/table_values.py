"""Arrow columns → NumPy: numbers with NaN for missing, text, flags. What does not fit is named with its row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vem.data.encoding import ABSENT, label_text
from vem.errors import DataError

Place = Callable[[int], str]
"""Row of the table → where that is, for people."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|infinity)|nan", re.ASCII | re.IGNORECASE)
WORDS = {"true": 1.0, "false": 0.0}


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
    plain = plain_values(column)
    if kind == "text":
        plain = trimmed(plain)
    try:
        values = plain.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _spelled_numbers(name, plain, start, place)
    return as_float64(values)


def _spelled_numbers(name: str, column: Any, start: int, place: Place) -> np.ndarray:
    """Text one by one: booleans as 0 and 1, else the first value that is no number is refused."""
    values = np.full(len(column), np.nan)
    for row, text in enumerate(column.to_pylist()):
        if text is None:
            continue
        number = WORDS.get(text.lower(), plain_number(text))
        if number is None:
            raise DataError(
                f"column '{name}' holds {_shown(text)} at {place(start + row)} where a number is expected; mend the "
                'row, or map the column as kind = "categorical".'
            )
        values[row] = number
    return values


def plain_number(text: str) -> float | None:
    """The number that a text spells as a file does: ``float`` also takes 1_000 and other scripts' digits."""
    return float(text) if NUMBER.fullmatch(text) else None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")


def booleans(name: str, column: Any, start: int, place: Place, sentinels: Sequence[float] = ()) -> np.ndarray:
    """The column as 0 and 1 in float64, NaN where a value is missing or a sentinel."""
    values = numbers(name, column, start, place)
    if sentinels:
        values[np.isin(values, sentinels)] = np.nan
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
    require_present(name, np.isnan(values), start, place, "say for every step whether it is one")
    return values == 1


def texts(name: str, column: Any, sentinels: Sequence[float] = ()) -> Any:
    """The column as an Arrow dictionary of labels (``label_text``); missing values, blanks and sentinels as null."""
    import pyarrow as pa

    if kind_of(column.type) == "other":
        raise DataError(f"column '{name}' holds {column.type}, which has no categories; {_remedy('other')}.")
    if not isinstance(column, pa.DictionaryArray):
        column = plain_values(column)
        if pa.types.is_timestamp(column.type):  # Python's times end at microseconds
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    if not isinstance(encoded, pa.DictionaryArray):  # only missing values
        encoded = pa.array([None] * len(column), pa.string()).dictionary_encode()
    try:
        found = plain_values(encoded.dictionary).to_pylist()
    except (OverflowError, ValueError) as error:
        raise DataError(
            f"column '{name}' holds {column.type} that cannot be read ({error}); mend the recording."
        ) from None
    absent = {label_text(sentinel) for sentinel in sentinels} | {""}
    words = [None if value is None or value != value else label_text(value) for value in found]
    words = [None if word in absent else word for word in words]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(words, pa.string()))


def codes(
    name: str, column: Any, labels: tuple[str, ...], start: int, place: Place, sentinels: Sequence[float] = ()
) -> np.ndarray:
    """The number of each value's label, ``ABSENT`` where it is missing; a value without label is refused."""
    encoded = texts(name, column, sentinels)
    known = {label: code for code, label in enumerate(labels)}
    words = encoded.dictionary.to_pylist()
    table = np.array([ABSENT if word is None else known.get(word, -2) for word in words] or [ABSENT], np.int64)
    indices = as_float64(encoded.indices.cast("float64"))
    found = np.where(np.isnan(indices), ABSENT, table[np.nan_to_num(indices).astype(np.int64)])
    unknown = found == -2
    if unknown.any():
        row = int(np.argmax(unknown))
        raise DataError(
            f"column '{name}' holds '{words[int(indices[row])]}' at {place(start + row)}, which is not among its "
            f"labels {', '.join(labels[:20])}; add it to the labels, or mend the row."
        )
    return found


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
        indices = as_float64(encoded.indices.cast("float64"))
        absent = np.isnan(indices)
        absent[~absent] = np.array([word is None for word in words], np.bool_)[indices[~absent].astype(np.int64)]
        require_present(self.name, absent, start, place, "every row needs its episode")
        indices = indices.astype(np.int64)
        used, places = np.unique(indices, return_index=True)
        for index in used[np.argsort(places)]:
            self.numbers.setdefault(words[index], len(self.numbers))
        table = np.array([self.numbers.get(word, -1) for word in words], np.int64)
        return table[indices]

    def names(self) -> list[str]:
        """The episodes' names by number."""
        return list(self.numbers)


def plain_values(column: Any) -> Any:
    """The column without dictionary, in a type that all of Arrow's functions know."""
    import pyarrow as pa
    from pyarrow import types

    plain = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
    if types.is_string_view(plain.type):
        return plain.cast(pa.string())
    if types.is_decimal(plain.type) and plain.type.bit_width < 128:
        return plain.cast(pa.decimal128(plain.type.precision, plain.type.scale))
    return plain


def trimmed(column: Any) -> Any:
    """Text without blanks around it; nothing but blanks is a missing value."""
    import pyarrow.compute as compute

    trimmed = compute.utf8_trim_whitespace(column)  # pyright: ignore[reportAttributeAccessIssue]
    empty = compute.equal(trimmed, "")  # pyright: ignore[reportAttributeAccessIssue]
    return compute.if_else(empty, None, trimmed)  # pyright: ignore[reportAttributeAccessIssue]


def as_float64(column: Any) -> np.ndarray:
    """Float64 with NaN for nulls; a copy that may be changed."""
    return np.array(column.to_numpy(zero_copy_only=False), np.float64)


def require_present(name: str, absent: np.ndarray, start: int, place: Place, need: str) -> None:
    """DataError if a value is absent; ``need`` says why it is needed."""
    if absent.any():
        row = int(np.argmax(absent))
        raise DataError(f"column '{name}' is missing its value at {place(start + row)}; {need}.")


def _remedy(kind: str) -> str:
    if kind == "time":
        return "derive numbers from it, such as the hour, or map it as time"
    return "split it into columns of one number each, or leave it out"
