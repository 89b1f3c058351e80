"""One pass over a table: what each column holds, before anything is decided."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vem.data.encoding import LARGEST, label_text
from vem.data.table_source import Table
from vem.data.table_values import kind_of, numbers, texts

MOST_LABELS = 100
"""A categorical column has at most so many values."""
FEW_VALUES = 20
"""Whole numbers with at most so many values may be choices rather than amounts."""
SENTINELS = (-99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0)
"""Numbers that loggers write for a missing value."""


@dataclass
class Spots:
    """How often something was seen, and where first."""

    count: int = 0
    first: int = -1

    def see(self, start: int, found: np.ndarray) -> None:
        """Take note of where ``found`` is True in a block that begins at row ``start``."""
        if found.any():
            self.first = start + int(np.argmax(found)) if self.count == 0 else self.first
            self.count += int(found.sum())


@dataclass
class ColumnFacts:
    """What one column holds."""

    name: str
    kind: str
    """``number`` or ``text``: how it was looked at."""
    type: str
    """The type as Arrow calls it."""
    is_number: bool = False
    """Whether the column's type is one of numbers, also where they serve as labels."""
    num_rows: int = 0
    missing: Spots = field(default_factory=Spots)
    infinite: Spots = field(default_factory=Spots)
    """Infinite, or beyond float32."""
    low: float = np.inf
    high: float = -np.inf
    total: float = 0.0
    is_whole: bool = True
    labels: set[str] | None = field(default_factory=set)
    """The different values as text; None if there are more than ``MOST_LABELS``."""
    candidates: dict[float, Spots] = field(default_factory=dict)
    digest: Any = field(default_factory=hashlib.sha256)
    """Of all values: equal columns have equal ones."""

    @property
    def num_present(self) -> int:
        """Values that are not missing."""
        return self.num_rows - self.missing.count

    @property
    def is_constant(self) -> bool:
        """Whether all present values are the same."""
        return self.labels is not None and len(self.labels) <= 1

    @property
    def mean(self) -> float:
        """The mean of the present numbers."""
        return self.total / max(1, self.num_present)

    @property
    def sentinels(self) -> dict[float, Spots]:
        """Usual sentinels further from all other values than those are from each other."""
        inside = [value for value in self.candidates if not self._is_far(value)]
        low, high = min([self.low, *inside]), max([self.high, *inside])
        return {v: spots for v, spots in self.candidates.items() if low <= high and self._is_far(v, low, high)}

    def _is_far(self, value: float, low: float | None = None, high: float | None = None) -> bool:
        low, high = self.low if low is None else low, self.high if high is None else high
        return max(low - value, value - high) > high - low

    def ordered_labels(self) -> tuple[str, ...]:
        """The labels: numbers by size, other text by letters."""
        found = list(self.labels or ())
        try:
            return tuple(sorted(found, key=float))
        except ValueError:
            return tuple(sorted(found))

    def see_numbers(self, start: int, values: np.ndarray) -> None:
        """Take note of a block of numbers, NaN for missing."""
        self.num_rows += len(values)
        absent = np.isnan(values)
        self.missing.see(start, absent)
        self.digest.update(values.data)
        present = values[~absent] if absent.any() else values
        if not present.size:
            return
        if np.abs(present).max() > LARGEST:
            self.infinite.see(start, np.abs(np.where(absent, 0, values)) > LARGEST)
            return
        self.total += float(present.sum())
        self.is_whole = self.is_whole and bool((present == np.rint(present)).all())
        if self.labels is not None:
            different = np.unique(present)
            self._see_labels({label_text(value) for value in different[: MOST_LABELS + 1].tolist()})
        low, high = float(present.min()), float(present.max())
        for sentinel in SENTINELS:
            if low <= sentinel <= high and (found := values == sentinel).any():
                self.candidates.setdefault(sentinel, Spots()).see(start, found)
                present = present[present != sentinel]
        if present.size:
            self.low, self.high = min(self.low, float(present.min())), max(self.high, float(present.max()))

    def see_texts(self, start: int, encoded: Any) -> None:
        """Take note of a block of text, an Arrow dictionary array."""
        self.num_rows += len(encoded)
        words = encoded.dictionary.to_pylist()
        indices = np.array(encoded.indices.cast("float64").to_numpy(zero_copy_only=False))
        none = np.array([word is None for word in words] or [True], np.bool_)
        absent = np.isnan(indices)
        absent[~absent] = none[indices[~absent].astype(np.int64)]
        self.missing.see(start, absent)
        used = np.unique(indices[~absent]).astype(np.int64)
        self._see_labels({words[index] for index in used})
        if self.is_number:
            for index in used[:MOST_LABELS]:
                self._see_numeric_label(start, float(words[index]), indices == index)
        if len(words) > MOST_LABELS:  # no categories: never called equal to another column
            self.digest.update(self.name.encode())
            return
        hashes = [int.from_bytes(hashlib.sha256(str(word).encode()).digest()[:6]) for word in words] or [0]
        self.digest.update(np.where(absent, -1, np.array(hashes)[np.where(absent, 0, indices).astype(np.int64)]).data)

    def _see_numeric_label(self, start: int, value: float, found: np.ndarray) -> None:
        """Take note of a number that serves as a label: it may be a sentinel, or infinite."""
        if abs(value) > LARGEST:
            self.infinite.see(start, found)
        elif value in SENTINELS:
            self.candidates.setdefault(value, Spots()).see(start, found)
        else:
            self.low, self.high = min(self.low, value), max(self.high, value)

    def _see_labels(self, found: set[str]) -> None:
        if self.labels is not None:
            self.labels |= found
            if len(self.labels) > MOST_LABELS:
                self.labels = None


def scan(
    table: Table,
    kinds: dict[str, str],
    sentinels: dict[str, tuple[float, ...]],
    also: Sequence[str] = (),
    each: Callable[[int, dict[str, Any], int], None] | None = None,
    progress: bool | None = None,
) -> dict[str, ColumnFacts]:
    """What each of the columns in ``kinds`` (``number`` or ``text``) holds; ``sentinels`` there count as missing.

    ``each`` is called with the first row, the Arrow columns and the number of rows of every block; ``also`` names more
    columns for it.
    """
    facts = {
        name: ColumnFacts(name, kind, str(table.types[name]), kind_of(table.types[name]) == "number")
        for name, kind in kinds.items()
    }
    with reading(table, "looking at", progress) as show:
        for start, columns, num_rows in table.blocks(list(dict.fromkeys([*kinds, *also]))):
            for name, fact in facts.items():
                if fact.kind == "number":
                    values = numbers(name, columns[name], start, table.place)
                    if declared := sentinels.get(name):
                        values[np.isin(values, declared)] = np.nan
                    fact.see_numbers(start, values)
                else:
                    fact.see_texts(start, texts(name, columns[name], sentinels.get(name, ())))
            if each is not None:
                each(start, columns, num_rows)
            show(start + num_rows)
    return facts


def natural_kind(table: Table, name: str) -> str:
    """How a column is looked at if nobody says: ``number`` for numbers and booleans, else ``text``."""
    return "number" if kind_of(table.types[name]) in ("number", "boolean") else "text"


@contextmanager
def reading(table: Table, what: str, progress: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Show how many rows are read, on the standard error if that is a terminal; give a function of their number."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda num_rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(f"{what} {table.name}", total=table.num_rows)
        yield lambda num_rows: shown.update(task, completed=num_rows)
