"""The columns of a table as NumPy arrays: numbers, labels, flags and times; what does not fit is named with its row."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from vem.data.encoding import ABSENT, LARGEST, label_text
from vem.errors import DataError

Place = Callable[[int], str]
"""Row of the table → where that is, for people."""
NUMBER = r"^([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(?i:inf|infinity)|(?i:nan))$"
WORDS = ("false", "no", "true", "yes")
"""What flags may be written as; the second half is true."""
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Ticks in a second."""
MOST_LABELS = 100
"""A categorical column has at most so many values."""
FEW_VALUES = 20
"""Whole numbers with at most so many values may be choices rather than amounts."""
SENTINELS = (-99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0)
"""Numbers that loggers write for a missing value."""
FEW_STEPS = 16
"""Numbers closer together than so many steps of float32 are lost in it."""


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


def natural_kind(arrow_type: Any) -> str:
    """How a column is looked at if nobody says: ``number`` for numbers and booleans, else ``text``."""
    return "number" if kind_of(arrow_type) in ("number", "boolean") else "text"


def trimmed(text: Any) -> Any:
    """Text without blanks around it; nothing but blanks is a missing value."""
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)  # pyright: ignore[reportAttributeAccessIssue]
    return pc.if_else(pc.equal(text, ""), None, text)  # pyright: ignore[reportAttributeAccessIssue]


def are_numbers(text: Any) -> Any:
    """Whether each text spells a number as files do."""
    import pyarrow.compute as pc

    return pc.match_substring_regex(text, NUMBER)  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True)
class TableColumn:
    """One column of a table, read as what it is needed for."""

    name: str
    values: Any
    """An Arrow array in chunks, without dictionary."""
    place: Place

    @property
    def kind(self) -> str:
        """What ``kind_of`` calls it."""
        return kind_of(self.values.type)

    def numbers(self, sentinels: Sequence[float] = ()) -> np.ndarray:
        """Float64, NaN where a value is missing or a sentinel; text is read as numbers."""
        import pyarrow as pa

        if self.kind in ("time", "other"):
            hint = "derive numbers from it, such as the hour, or map it as time"
            raise self._misfit("where numbers are expected", hint if self.kind == "time" else None)
        values = trimmed(self.values) if self.kind == "text" else self.values
        try:
            found = _float64(values.cast(pa.float64(), safe=False))
        except pa.ArrowInvalid:
            raise DataError(
                f"column '{self.name}' holds {self.first_word()} where a number is expected; mend the row, or, if it "
                'is an observation in words, say kind = "categorical".'
            ) from None
        if sentinels:
            found[np.isin(found, sentinels)] = np.nan
        return found

    def first_word(self) -> str:
        """The first text that is no number, and where it stands."""
        import pyarrow.compute as pc

        text = trimmed(self.values)
        row = max(0, pc.index(are_numbers(text), False).as_py())
        word = str(text[row].as_py())
        return f"{word if len(word) <= 60 else word[:60] + '…'!r} at {self.place(row)}"

    def booleans(self, sentinels: Sequence[float] = ()) -> np.ndarray:
        """0 and 1 in float64, NaN where a value is missing or a sentinel; true, false, yes and no are read."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = self.values
        if self.kind == "text":
            word = pc.index_in(pc.utf8_lower(trimmed(values)), pa.array(WORDS, values.type))  # pyright: ignore[reportAttributeAccessIssue]
            digit = pc.if_else(pc.greater_equal(word, len(WORDS) // 2), "1", "0").cast(values.type)  # pyright: ignore[reportAttributeAccessIssue]
            values = pc.coalesce(digit, values)  # pyright: ignore[reportAttributeAccessIssue]
        found = dataclasses.replace(self, values=values).numbers(sentinels)
        wrong = ~(np.isnan(found) | (found == 0) | (found == 1))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"column '{self.name}' holds {found[row]:g} at {self.place(row)}, and flags are 0 or 1, true or "
                "false; convert the column."
            )
        return found

    def flags(self) -> np.ndarray:
        """Booleans without gaps."""
        found = self.booleans()
        self._require_present(np.isnan(found), "say for every step whether it is one")
        return found == 1

    def labels(self, sentinels: Sequence[float] = ()) -> tuple[np.ndarray, list[str]]:
        """The number of each row's label, ``ABSENT`` where it has none, and the labels in order of appearance.

        A label is a value as ``label_text`` writes it; blanks and sentinels are missing.
        """
        import pyarrow as pa

        if self.kind == "other":
            raise self._misfit("which has no categories")
        values = self.values
        if pa.types.is_timestamp(values.type):  # Python's times end at microseconds
            values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
        if self.kind == "empty" or not len(values):
            return np.full(len(values), ABSENT), []
        encoded = values.dictionary_encode()
        try:
            held = encoded.chunk(0).dictionary.to_pylist()
        except (OverflowError, ValueError) as error:
            raise DataError(f"column '{self.name}' holds {values.type} that cannot be read ({error}).") from None
        absent, known = {label_text(sentinel) for sentinel in sentinels} | {""}, dict[str, int]()
        words = [None if value is None or value != value else label_text(value) for value in held]
        codes = [ABSENT if word is None or word in absent else known.setdefault(word, len(known)) for word in words]
        indices = _float64(pa.chunked_array([chunk.indices for chunk in encoded.chunks]).cast(pa.float64()))
        is_absent = np.isnan(indices)
        found = np.array([*codes, ABSENT])[np.where(is_absent, len(codes), indices).astype(np.int64)]
        return found, list(known)

    def codes(self, labels: Sequence[str], sentinels: Sequence[float] = ()) -> np.ndarray:
        """The place of each row's label among ``labels``, ``ABSENT`` where it has none; any other is refused."""
        found, words = self.labels(sentinels)
        places = {label: code for code, label in enumerate(labels)}
        codes = np.array([*(places.get(word, ABSENT - 1) for word in words), ABSENT])[found]
        if (codes < ABSENT).any():
            row = int(np.argmax(codes < ABSENT))
            raise DataError(
                f"column '{self.name}' holds '{words[found[row]]}' at {self.place(row)}, which is not among its labels "
                f"{', '.join(labels[:20])}; add it to the labels, or mend the row."
            )
        return codes

    def episodes(self) -> tuple[np.ndarray, list[str]]:
        """The number of each row's episode, in the order of their first rows, and their names."""
        if self.kind == "other":
            raise self._misfit("which names no episode")
        found, names = self.labels()
        self._require_present(found == ABSENT, "every row needs its episode")
        return found, names

    def times(self) -> tuple[np.ndarray, bool]:
        """Float64 that orders the rows, and whether it is seconds since 1970, not the column's own numbers."""
        import pyarrow as pa

        values = self._parsed_times() if self.kind == "text" else self.values
        kind = values.type
        if pa.types.is_time(kind):
            raise DataError(
                f"column '{self.name}' holds {kind}, which begins anew every day; give date and time together."
            )
        if pa.types.is_date(kind):
            values = values.cast(pa.timestamp("s"))
        if kind_of(values.type) == "time" or pa.types.is_duration(kind):
            found = _float64(values.cast(pa.int64())) / UNITS[values.type.unit]
        else:
            found = dataclasses.replace(self, values=values).numbers()
        self._require_present(np.isnan(found), "every row needs its time")
        if np.isinf(found).any():
            row = int(np.argmax(np.isinf(found)))
            raise DataError(f"column '{self.name}' is infinite at {self.place(row)}; mend the row.")
        return found, kind_of(values.type) == "time"

    def _parsed_times(self) -> Any:
        """Text as timestamps, with or without time zone, or as numbers; DataError names the first that is neither."""
        import pyarrow as pa

        text = trimmed(self.values)
        for kind in (*(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")), pa.float64()):
            try:
                return text.cast(kind)
            except pa.ArrowInvalid:
                continue
        words = [(row, word) for row, word in enumerate(text.to_pylist()) if word is not None]
        clocks = [_clock_of(word) for _, word in words]
        usual = max(("local", "zoned", "numbers"), key=clocks.count)
        strange = [word for word, clock in zip(words, clocks, strict=True) if clock is None]
        unlike = [word for word, clock in zip(words, clocks, strict=True) if clock != usual]
        row, word = (strange or unlike or words)[0]
        raise DataError(
            f"column '{self.name}' holds '{word}' at {self.place(row)}, which is no time like the others; write times "
            "as 2024-01-31 08:00:00, all with a time zone or all without, or all as numbers."
        )

    def _require_present(self, absent: np.ndarray, need: str) -> None:
        """DataError if a value is absent; ``need`` says why it is needed."""
        if absent.any():
            row = int(np.argmax(absent))
            raise DataError(f"column '{self.name}' is missing its value at {self.place(row)}; {need}.")

    def _misfit(self, why: str, remedy: str | None = None) -> DataError:
        remedy = remedy or "split it into columns of one number each, or leave it out"
        return DataError(f"column '{self.name}' holds {self.values.type} {why}; {remedy}.")


def _float64(column: Any) -> np.ndarray:
    """A copy that may be changed, NaN for nulls."""
    return np.array(column.to_numpy(), np.float64)


def _clock_of(text: str) -> str | None:
    """What a text tells the time by: ``numbers``, times that are ``local`` or ``zoned``, or None."""
    import pyarrow as pa

    if are_numbers(pa.scalar(text)).as_py():
        return "numbers"
    try:
        return "local" if datetime.fromisoformat(text).tzinfo is None else "zoned"
    except ValueError:
        return None


# What a column holds, before anything is decided.


@dataclass(frozen=True)
class Spots:
    """How often something was seen, and in which row first."""

    count: int
    first: int


def _spots(found: np.ndarray) -> Spots:
    return Spots(int(np.count_nonzero(found)), int(np.argmax(found)) if len(found) else 0)


@dataclass
class ColumnFacts:
    """What one column holds."""

    name: str
    kind: str
    """``number`` or ``text``: how it was looked at."""
    is_number: bool
    """Whether the column's type is one of numbers, also where they serve as labels."""
    num_rows: int
    missing: Spots
    digest: bytes
    """Of all values: equal columns have equal ones."""
    labels: tuple[str, ...] | None
    """The different values as text, numbers by size, other text by letters; None if more than ``MOST_LABELS``."""
    infinite: Spots = Spots(0, 0)
    """Infinite, or beyond float32."""
    low: float = np.inf
    high: float = -np.inf
    """The range of the numbers, usual sentinels left out."""
    mean: float = 0.0
    is_whole: bool = True
    sentinels: Mapping[float, Spots] = dataclasses.field(default_factory=dict)
    """Usual sentinels further from all other values than those are from each other."""

    @property
    def num_present(self) -> int:
        """Values that are not missing."""
        return self.num_rows - self.missing.count

    @property
    def is_constant(self) -> bool:
        """Whether all present values are the same."""
        return self.labels is not None and len(self.labels) <= 1

    @property
    def is_flat(self) -> bool:
        """Whether the numbers differ by less than a few steps of float32."""
        largest = np.float32(max(abs(self.low), abs(self.high)))
        return self.low < self.high and self.high - self.low < FEW_STEPS * float(np.spacing(largest))


def look(column: TableColumn, kind: str, sentinels: Sequence[float] = ()) -> tuple[np.ndarray, ColumnFacts]:
    """The column's numbers, or the codes of its labels in their order, and what it holds; sentinels are missing.

    ``kind`` is ``number``, ``boolean`` or ``text``.
    """
    is_number = column.kind == "number"
    if kind != "text":
        values = column.booleans(sentinels) if kind == "boolean" else column.numbers(sentinels)
        kind = "number"
        absent, labels = np.isnan(values), _number_labels(values)
        digest = hashlib.sha256(values.data)
    else:
        codes, words = column.labels(sentinels)
        absent, labels = codes == ABSENT, _ordered(words) if len(words) <= MOST_LABELS else None
        # More labels are no categories and never called equal to another column.
        digest = hashlib.sha256(codes.data if labels else column.name.encode())
        digest.update("\0".join(words[: MOST_LABELS + 1]).encode("utf-8", "replace"))
        values = codes if labels is None else np.array([*map(labels.index, words), ABSENT])[codes]
    facts = ColumnFacts(column.name, kind, is_number, len(values), _spots(absent), digest.digest(), labels)
    if kind == "number" or is_number:
        _measure(facts, values if kind == "number" else column.numbers(sentinels))
    return values, facts


def _number_labels(values: np.ndarray) -> tuple[str, ...] | None:
    for part in (values[: 100 * MOST_LABELS], values):
        different = np.unique(part[~np.isnan(part)])
        if len(different) > MOST_LABELS:
            return None
    return tuple(map(label_text, different.tolist()))


def _ordered(words: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(sorted(words, key=float))
    except ValueError:
        return tuple(sorted(words))


def _measure(facts: ColumnFacts, values: np.ndarray) -> None:
    """Add what there is to say about numbers."""
    facts.infinite = _spots(np.abs(values) > LARGEST)
    present = values[~np.isnan(values)]
    if facts.infinite.count or not present.size:
        return
    facts.mean = float(present.sum()) / present.size
    facts.is_whole = bool((present == np.rint(present)).all())
    rest = present[~np.isin(present, SENTINELS)]
    facts.low, facts.high = low, high = float(rest.min(initial=np.inf)), float(rest.max(initial=-np.inf))
    seen = {value: _spots(values == value) for value in SENTINELS if (present == value).any()}
    inside = [value for value in seen if max(low - value, value - high) <= high - low]
    low, high = min([low, *inside]), max([high, *inside])
    if low <= high:
        facts.sentinels = {v: spots for v, spots in seen.items() if max(low - v, v - high) > high - low}
