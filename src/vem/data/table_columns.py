"""Arrow columns → NumPy: numbers with NaN for missing, text, flags. What does not fit is named with its row."""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vem.data.checks import located
from vem.data.encoding import ABSENT, LARGEST, is_missing, label_text
from vem.data.files import require_file, require_inside, user_path
from vem.data.mapping import KEEP, TableMap
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
            f"column '{name}' holds {column.type} that cannot be read ({error}); mend the trajectory."
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


# Frames in memory → an Arrow table: pandas, Polars, Arrow, or a dict of columns. What does not fit is named.


MOST_COLUMNS = 10_000
"""Columns of a table; each is looked at by itself."""


def arrow_table(frame: Any) -> Any:
    """The frame as an Arrow table; DataError names the column and the row that no table can hold."""
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, Mapping):
        return _from_columns(frame)
    is_pandas = type(frame).__module__.startswith("pandas")
    if is_pandas and hasattr(frame, "columns"):
        require_different_names([str(name) for name in frame.columns])
    try:
        if isinstance(frame, pa.RecordBatch):
            return pa.Table.from_batches([frame])
        if is_pandas:
            return pa.Table.from_pandas(frame)
        if hasattr(frame, "collect") and hasattr(frame, "collect_schema"):  # a lazy Polars frame
            frame = frame.collect()
        return pa.table(frame)
    except Exception as error:  # objects, mixed types, or no table at all
        if is_pandas and hasattr(frame, "columns"):
            for index, name in enumerate(frame.columns):
                _arrow_column(str(name), frame.iloc[:, index])
        raise DataError(
            f"this {type(frame).__name__} is no table that Arrow can hold ({first_line(error)}); give a frame with one "
            "value of one type for each row and column."
        ) from None


def require_different_names(names: Sequence[str]) -> None:
    """DataError if two columns have one name, or there are too many."""
    require_few_columns(len(names))
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"two columns are called '{twice}'; give each its own name.")


def require_few_columns(count: int) -> None:
    """DataError if a table has more columns than are looked at."""
    if count > MOST_COLUMNS:
        raise DataError(
            f"the table has more than {MOST_COLUMNS:,} columns; keep those that matter, or give arrays as .npz or "
            ".hdf5."
        )


def first_line(error: BaseException) -> str:
    """What an error of pyarrow says first."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _from_columns(columns: Mapping[Any, Any]) -> Any:
    import pyarrow as pa

    wrong = [name for name in columns if not isinstance(name, str)]
    if wrong:
        raise DataError(f"a column is called {wrong[0]!r}; names of columns are text.")
    made = {name: _arrow_column(name, values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in made.items()}
    if len(set(lengths.values())) > 1:
        first, *others = lengths
        other = next(name for name in others if lengths[name] != lengths[first])
        raise DataError(
            f"column '{other}' has {lengths[other]} rows and '{first}' {lengths[first]}; give one value for each row "
            "in all columns."
        )
    try:
        return pa.table(made)
    except UnicodeEncodeError:
        raise DataError("the name of a column is no text that can be encoded; name it anew.") from None


def _arrow_column(name: str, values: Any) -> Any:
    import pyarrow as pa

    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    is_list = hasattr(values, "__len__") and not isinstance(values, str | bytes)
    if not is_list or getattr(values, "ndim", 1) != 1:
        shape = getattr(values, "shape", None)
        found = f"is {values!r}"[:80] if shape is None else f"has shape {shape}"
        raise DataError(f"column '{name}' {found}; give one value for each row.")
    try:
        return pa.array(values, from_pandas=True)
    except Exception as error:  # mixed types, objects, numbers beyond 64 bits
        problem = _problem(name, values) or f"column '{name}' cannot be read ({first_line(error)})."
        raise DataError(problem) from None


def _problem(name: str, values: Iterable[Any]) -> str | None:
    """What is wrong with the first value that fits no column, or not that of the values before it."""
    import pyarrow as pa

    usual: str | None = None
    for row, value in enumerate(values):
        if is_missing(value):
            continue
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:60] + "…"
        try:
            kind = kind_of(pa.array([value]).type)
        except Exception:
            return (
                f"column '{name}' holds {shown} ({type(value).__name__}) at row {row}, which is no number, text or "
                "time that a table can hold; convert it."
            )
        if usual is not None and kind != usual:
            return f"column '{name}' holds {shown} at row {row} among values of kind {usual}; write all in one way."
        usual = kind
    return None


# A CSV file as batches of text columns: separator and decimal mark found, rows of the wrong length named.


SEPARATORS = ",;\t|"
BLOCK_BYTES = 1 << 22
HEAD_BYTES = 1 << 20
"""Bytes of the beginning that the separator, the decimal mark and the number of columns are found in."""
CSV_PART_NUMBER = r"^\s*[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?\s*$"
MOSTLY = 0.8
NOT_UTF8 = "the text is not UTF-8; save the file with that encoding."
DECIMAL_COMMA = re.compile(r"-?\d+,\d+")


def _is_mostly_numbers(column: Any) -> bool:
    import pyarrow.compute as compute

    found = compute.match_substring_regex(column, CSV_PART_NUMBER)  # pyright: ignore[reportAttributeAccessIssue]
    share = compute.mean(found.cast("float64")).as_py()  # pyright: ignore[reportAttributeAccessIssue]
    return share is not None and share >= MOSTLY


def _has_hexadecimals(column: Any) -> bool:
    """Whether Arrow would take a text such as 0x1F for a whole number."""
    import pyarrow.compute as compute

    found = compute.match_substring(column, "0x", ignore_case=True)  # pyright: ignore[reportAttributeAccessIssue]
    return bool(compute.any(found).as_py())  # pyright: ignore[reportAttributeAccessIssue]


class CsvPart:
    """One CSV file. ``types`` are what its first block looks like; ``batches`` are text."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self.path, self.name, self.num_rows = path, path.name, None
        with pa.input_stream(str(path), compression="detect") as stream:
            head = stream.read(HEAD_BYTES)
        self._is_checked = False
        _require_utf8(head)
        header, first, *_ = [*re.split(r"\r\n|\n|\r", head.decode("utf-8", "replace"), maxsplit=2), ""]
        self.separator = max(SEPARATORS, key=header.count)
        require_few_columns(header.count(self.separator) + 1)
        cells = first.strip().split(self.separator)
        self.decimal = "," if self.separator != "," and any(map(DECIMAL_COMMA.fullmatch, cells)) else "."
        self.names = next(csv.reader([header.strip("\ufeff")], delimiter=self.separator), [])
        try:
            with self._opened(None) as reader:
                self.names = list(reader.schema.names)
                self.types = dict(zip(self.names, reader.schema.types, strict=True))
                first = next(iter(reader), None)
        except pa.ArrowInvalid as error:
            raise DataError(self._explained(str(error))) from None
        except UnicodeDecodeError:
            raise DataError(NOT_UTF8) from None
        if first is not None:
            # A few words among numbers are errors to name, not categories.
            has_twins = len(self.types) < len(self.names)  # refused by check_names
            words = [] if has_twins else [name for name, kind in self.types.items() if pa.types.is_string(kind)]
            self.types |= {name: pa.float64() for name in words if _is_mostly_numbers(first.column(name))}

    def check_names(self) -> None:
        """DataError if two columns have one name, or one has none."""
        if self.names and all(re.fullmatch(r"[-+.\deE]*", name) for name in self.names):
            raise DataError(
                f"{self.path}: the first line holds numbers ({', '.join(self.names[:4])}, …) where the names of the "
                "columns are expected; put a line with names in front."
            )
        with located(str(self.path)):
            require_different_names(self.names)

    def batches(self, columns: list[str]) -> Iterator[Any]:
        """The rows in order: numbers and booleans where a block holds nothing else, else text."""
        import pyarrow as pa

        num_rows = 0
        try:
            with self._opened(columns) as reader:
                for batch in reader:
                    num_rows += batch.num_rows
                    yield self._typed(self._with_points(batch) if self.decimal == "," else batch)
        except pa.ArrowInvalid as error:
            raise DataError(self._explained(str(error))) from None
        self._check_quotes(num_rows)

    def _check_quotes(self, num_rows: int) -> None:
        """DataError if a quote that nobody closed has taken following rows into its value."""
        if self._is_checked:
            return
        self._is_checked = True
        import pyarrow as pa

        num_lines, last = 0, b"\n"
        with pa.input_stream(str(self.path), compression="detect") as stream:
            while block := stream.read(BLOCK_BYTES):
                num_lines, last = num_lines + block.count(b"\n"), block[-1:]
        if num_lines + (last != b"\n") == num_rows + 1:  # one line a row, and the names
            return
        try:
            for row, cells in self._records(strict=True):
                for cell in cells:
                    if any(line.count(self.separator) >= len(self.names) - 1 for line in cell.splitlines()[1:]):
                        raise DataError(_swallowed(row))
        except csv.Error as error:
            if "end of data" in str(error):
                raise DataError(_swallowed(self._last)) from None

    def _records(self, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Number and cells of each row; empty lines are no rows."""
        opener = gzip.open if self.path.name.lower().endswith(".gz") else open
        with opener(self.path, "rt", encoding="utf-8", errors="replace", newline="") as lines:
            self._last = -1
            for cells in csv.reader(lines, delimiter=self.separator, strict=strict):
                if cells:
                    yield self._last, cells
                    self._last += 1

    def _opened(self, columns: list[str] | None) -> Any:
        from pyarrow import csv as arrow_csv
        from pyarrow import string

        return arrow_csv.open_csv(
            self.path,
            read_options=arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=arrow_csv.ParseOptions(delimiter=self.separator),
            convert_options=arrow_csv.ConvertOptions(
                strings_can_be_null=True,
                decimal_point=self.decimal,
                include_columns=columns,
                column_types={} if columns is None else dict.fromkeys(columns, string()),
            ),
        )

    def _with_points(self, batch: Any) -> Any:
        """The batch with 21.5 for 21,5."""
        import pyarrow as pa
        import pyarrow.compute as compute

        columns: list[Any] = []
        for column in batch.columns:
            is_number = compute.match_substring_regex(column, r"^\s*-?\d+,\d+\s*$")  # pyright: ignore[reportAttributeAccessIssue]
            points = compute.replace_substring(column, ",", ".")  # pyright: ignore[reportAttributeAccessIssue]
            columns.append(compute.if_else(is_number, points, column))  # pyright: ignore[reportAttributeAccessIssue]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _typed(self, batch: Any) -> Any:
        """The batch with booleans and numbers where the file began with them and the whole batch still has them.

        So 3, 3.0 and 03 are one label. A batch with a word among its numbers stays text, and the word is named later.
        """
        import pyarrow as pa
        import pyarrow.compute as compute

        columns: list[Any] = list(batch.columns)
        for index, name in enumerate(batch.schema.names):
            kind = self.types[name]
            if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
                with contextlib.suppress(pa.ArrowInvalid):
                    trimmed = compute.utf8_trim_whitespace(columns[index])  # pyright: ignore[reportAttributeAccessIssue]
                    if not _has_hexadecimals(trimmed):
                        columns[index] = trimmed.cast(kind)
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _explained(self, problem: str) -> str:
        """What is wrong, with its row: pyarrow does not say which."""
        if "UTF8" in problem:
            return NOT_UTF8
        try:
            rows = list(islice(self._records(), 2))
            if len(rows) == 1 and len(rows[0][1]) == len(self.names):
                return "the table has no rows; record at least two steps."
            for row, cells in self._records():
                if len(cells) != len(self.names):
                    return (
                        f"row {row} has {len(cells)} values where the first line names {len(self.names)} columns; "
                        "mend or remove it."
                    )
        except (OSError, EOFError, csv.Error):
            pass
        return f"is no CSV table, or is damaged ({problem.splitlines()[0][:200]}); write it again."


def _require_utf8(head: bytes) -> None:
    """DataError for the encodings that the first bytes give away."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head.split(b"\n", 1)[0]:
        raise DataError(NOT_UTF8)


def _swallowed(row: int) -> str:
    return (
        f"row {row} opens a quote that is not closed before the line ends, and following rows are taken for its text; "
        "close the quote, or remove it."
    )


# A table as an iterator of row blocks: Parquet, Arrow or Feather, CSV, a folder of such files, or a frame in memory.


BATCH_ROWS = 65_536
SUFFIXES = (".parquet", ".pq", ".arrow", ".feather", ".ipc", ".csv", ".tsv", ".csv.gz")


class Block(NamedTuple):
    """Some rows of a table, one after another."""

    start: int
    """Number of its first row in the table."""
    columns: dict[str, Any]
    """Name → Arrow array."""
    num_rows: int


class Table:
    """Rows in blocks, from one or several files of the same columns or from memory."""

    def __init__(self, parts: Sequence[Any], name: str, source: str) -> None:
        self.parts, self.name, self.source = list(parts), name, source
        self.types: dict[str, Any] = dict(self.parts[0].types)
        """Column → Arrow type in the first file with values in it; for CSV what its beginning looks like."""
        self._starts: list[int] = []
        for part in self.parts:
            part.check_names()
            lacking = [name for name in self.types if name not in part.types]
            if lacking:
                raise DataError(
                    f"{source}: column '{lacking[0]}' is missing in {part.name}, but {self.parts[0].name} has it; all "
                    "files of a folder must have the same columns."
                )
            self.types = {name: part.types[name] if str(kind) == "null" else kind for name, kind in self.types.items()}

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.types)

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, or None where only reading shows it."""
        counts = [part.num_rows for part in self.parts]
        return None if None in counts else sum(counts)

    def blocks(self, columns: Sequence[str]) -> Iterator[Block]:
        """The rows in order, in blocks of at most ``BATCH_ROWS``."""
        start, self._starts = 0, []
        for part in self.parts:
            self._starts.append(start)
            batches = part.batches(list(columns))
            while True:
                try:
                    batch = next(batches, None)
                except DataError as error:
                    raise error if len(self.parts) == 1 else DataError(f"{part.name}: {error}") from None
                except Exception as error:  # whatever pyarrow makes of damaged bytes
                    raise DataError(
                        f"{part.name}: rows after row {start - self._starts[-1]} cannot be read "
                        f"({first_line(error)}); the file is damaged, copy or write it again."
                    ) from None
                if batch is None:
                    break
                if batch.num_rows:
                    yield Block(start, {name: batch.column(name) for name in columns}, batch.num_rows)
                start += batch.num_rows

    def place(self, row: int) -> str:
        """``row 7``, with its file where there are several; rows are counted from 0 in their file."""
        if len(self.parts) == 1:
            return f"row {row}"
        index = max(i for i, start in enumerate(self._starts) if start <= row)
        return f"row {row - self._starts[index]} of {self.parts[index].name}"


def open_table(source: Any) -> Table:
    """The table in a file, in all table files of a folder, or in a frame (pandas, Polars, Arrow, a dict of columns)."""
    require_pyarrow()
    if not isinstance(source, str | Path):
        return Table([_MemoryPart(arrow_table(source))], "table", "arrays")
    path = user_path(source)
    if path.is_dir():
        files = table_files(path)
        if not files:
            raise DataError(f"{path}: the folder holds no table; {', '.join(SUFFIXES)} files are read.")
        if len({_suffix(file) for file in files}) > 1:
            raise DataError(
                f"{path}: the folder holds files of several kinds ({', '.join(sorted({_suffix(f) for f in files}))}); "
                "keep one kind, or give one file."
            )
        for file in files:
            require_inside(file, path)
        return Table([_part(file) for file in files], path.name, str(path))
    require_file(path)
    return Table([_part(path)], path.name.removesuffix(_suffix(path)), str(path))


def table_files(folder: Path) -> list[Path]:
    """The tables of a folder in their order: part-2 before part-10, without hidden files and markers."""
    found = [path for path in folder.iterdir() if is_table(path) and not path.name.startswith((".", "_"))]
    return sorted(found, key=lambda path: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", path.name)])


def is_table(path: Path) -> bool:
    """Whether the file's name is that of a table."""
    return path.name.lower().endswith(SUFFIXES)


def require_pyarrow() -> None:
    """DataError unless pyarrow is installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise DataError("tables are read with pyarrow, which is not installed: pip install 'vem[tables]'.") from None


def _part(path: Path) -> Any:
    kind = {".parquet": _ParquetPart, ".pq": _ParquetPart}.get(_suffix(path), _ArrowPart)
    if "csv" in _suffix(path) or _suffix(path) == ".tsv":
        kind = CsvPart
    try:
        return kind(path)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # whatever pyarrow makes of damaged bytes
        raise DataError(
            f"{path}: is no {_suffix(path)} file, or is damaged or cut short ({first_line(error)}); write it again."
        ) from None


def _suffix(path: Path) -> str:
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), path.suffix.lower())


class _ArrowTypes:
    """What parts with an Arrow schema share."""

    def __init__(self, name: str, schema: Any) -> None:
        self.name, self.names = name, list(schema.names)
        self.types: dict[str, Any] = dict(zip(self.names, schema.types, strict=True))

    def check_names(self) -> None:
        require_different_names(self.names)


class _ParquetPart(_ArrowTypes):
    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as parquet

        self.path = path
        with parquet.ParquetFile(path) as file:
            super().__init__(path.name, file.schema_arrow)
            self.num_rows = file.metadata.num_rows

    def batches(self, columns: list[str]) -> Iterator[Any]:
        import pyarrow.parquet as parquet

        with parquet.ParquetFile(self.path, page_checksum_verification=True) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=columns)


class _ArrowPart(_ArrowTypes):
    """An Arrow file or stream; Feather is the same."""

    def __init__(self, path: Path) -> None:
        self.path, self.num_rows = path, None
        with self._opened() as reader:
            super().__init__(path.name, reader.schema)

    def _opened(self) -> Any:
        import pyarrow as pa

        try:
            return pa.ipc.open_file(pa.memory_map(str(self.path)))
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(pa.memory_map(str(self.path)))

    def batches(self, columns: list[str]) -> Iterator[Any]:
        with self._opened() as reader:
            count = getattr(reader, "num_record_batches", None)
            found = reader if count is None else (reader.get_batch(index) for index in range(count))
            for batch in found:
                batch.validate(full=True)  # damaged offsets would lead outside of the file
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS).select(columns)


class _MemoryPart(_ArrowTypes):
    def __init__(self, table: Any) -> None:
        self.table, self.num_rows = table, table.num_rows
        super().__init__("table", table.schema)

    def batches(self, columns: list[str]) -> Iterator[Any]:
        yield from self.table.select(columns).to_batches(BATCH_ROWS)


# One pass over a table: what each column holds, before anything is decided.


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


# A time column → float64 that orders the rows: seconds for timestamps, dates and durations, else its own numbers.


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


# Checks on a table: the order of its rows, gaps and repeated steps; then columns that say nothing, or too much.


REGULAR_SHARE = 0.75
"""A log is regular if so many of its steps take nearly the usual time."""
REGULAR_FACTOR = 1.5
IRREGULAR_FACTOR = 10.0
MOST_PIECES = 0.1
"""More trajectories than this share of the rows are no trajectories: the rows of several are interleaved."""
FEW_STEPS = 16
"""Numbers closer together than so many steps of float32 are lost in it."""
FEW_PIECES = 5
"""So many trajectories are never too many."""


class RowKeys(NamedTuple):
    """What decides the order of the rows and where trajectories end, one entry for each row of the table."""

    episode: np.ndarray | None
    """Number of the episode."""
    time: np.ndarray | None
    is_timestamp: bool
    """Whether times are seconds since 1970."""
    episode_names: Sequence[str] = ()


class Order(NamedTuple):
    """In which order the rows are read, and where trajectories end."""

    rows: np.ndarray | None
    """Row of the table for each step; None: as they are."""
    ends: np.ndarray
    """Step → whether its trajectory ends after it, by episode, time and gap."""
    rule: str
    """What was done, in a few words."""


def find_order(keys: RowKeys, mapping: TableMap, num_rows: int, place: Place) -> Order:
    """The order of the rows; DataError where transitions would be wrong.

    With an episode and a time column rows are sorted by both. With one of them they must be in order already.
    """
    if keys.episode is not None and keys.time is not None:
        return _by_episode_and_time(keys, mapping, place)
    if keys.episode is not None:
        return _by_episode(keys.episode, keys.episode_names, mapping, place)
    if keys.time is not None:
        return _by_time(keys.time, keys, mapping, place)
    ends = np.zeros(num_rows, np.bool_)
    ends[-1] = True
    return Order(None, ends, "as in the table")


def _by_episode_and_time(keys: RowKeys, mapping: TableMap, place: Place) -> Order:
    episode, time = keys.episode, keys.time
    assert episode is not None
    assert time is not None
    # Episodes in the order of their beginnings, so that the order of the table's rows changes nothing.
    begins = np.full(int(episode.max()) + 1, np.inf)
    np.minimum.at(begins, episode, time)
    place_of_episode = np.argsort(np.argsort(begins, kind="stable"), kind="stable")
    rows = np.lexsort((time, place_of_episode[episode]))
    episode, time = episode[rows], time[rows]
    same_episode = episode[1:] == episode[:-1]
    repeated = same_episode & (time[1:] == time[:-1])
    if repeated.any() and mapping.duplicates == "refuse":
        first = int(np.argmax(repeated))
        raise DataError(
            f"{place(int(rows[first]))} and {place(int(rows[first + 1]))} are one step twice: '{mapping.episode}' is "
            f"{keys.episode_names[episode[first]]} and '{mapping.time}' is {_time_text(time[first], keys)} in both "
            f"({_many(repeated, 'such row')}). Remove them, map the column that tells them apart as episode, or keep "
            'the first of each with duplicates = "first".'
        )
    if repeated.any():
        kept = np.concatenate([[True], ~repeated])
        rows, episode, time = rows[kept], episode[kept], time[kept]
        same_episode = episode[1:] == episode[:-1]
    steps = np.diff(time)
    ends = np.append(~same_episode, True)
    ends[:-1] |= _gaps(steps, same_episode, mapping, keys, rows, place)
    moved = int((rows != np.arange(len(rows))).sum()) if not repeated.any() else len(rows)
    is_as_it_was = moved == 0
    rule = "by episode and time, as in the table" if is_as_it_was else f"sorted by {mapping.episode} and {mapping.time}"
    if repeated.any():
        rule += f", {int(repeated.sum())} repeated rows dropped"
    return Order(None if is_as_it_was else rows, ends, rule)


def _by_episode(episode: np.ndarray, names: Sequence[str], mapping: TableMap, place: Place) -> Order:
    ends = np.append(episode[1:] != episode[:-1], True)
    starts = np.flatnonzero(np.concatenate([[True], ends[:-1]]))
    pieces = episode[starts]
    _, first = np.unique(pieces, return_index=True)
    again = np.setdiff1d(np.arange(len(pieces)), first)
    if again.size:
        piece = int(again[0])
        before = int(np.flatnonzero(pieces[:piece] == pieces[piece])[-1])
        raise DataError(
            f"column '{mapping.episode}' is {names[pieces[piece]]} up to {place(int(starts[before + 1]) - 1)} and "
            f"again at {place(int(starts[piece]))}: rows of several episodes are interleaved, and following rows are "
            "not following steps. Map the time column too, then rows are sorted by both."
        )
    return Order(None, ends, "by episode, as in the table")


def _by_time(time: np.ndarray, keys: RowKeys, mapping: TableMap, place: Place) -> Order:
    steps = np.diff(time)
    backwards, equal = steps < 0, steps == 0
    column = f"column '{mapping.time}'"
    if equal.any():
        first = int(np.argmax(equal))
        raise DataError(
            f"{column} is {_time_text(time[first], keys)} at {place(first)} and at {place(first + 1)} "
            f"({_many(equal, 'such pair')}): a step recorded twice, or several trajectories in one log. Map the column "
            "that tells them apart as episode, or remove the repeated rows."
        )
    if backwards.any():
        first, count = int(np.argmax(backwards)), int(backwards.sum())
        where = (
            f"{column} runs backwards {count} times, first from {_time_text(time[first], keys)} at {place(first)} to "
            f"{_time_text(time[first + 1], keys)} at {place(first + 1)}"
        )
        if count > max(FEW_PIECES, MOST_PIECES * len(time)):
            raise DataError(
                f"{where}: rows are unsorted, or those of several trajectories are interleaved, and following rows are "
                "not following steps. Map the column that tells the trajectories apart as episode, then rows are "
                "sorted; if there is one trajectory only, sort the table by time."
            )
        if not isinstance(mapping.gap, float | int):
            raise DataError(
                f"{where}: trajectories one after another, or unsorted rows. Map the column that tells them apart as "
                f"episode, sort the table, or say gap = {_number_text(_limit(steps[steps > 0]))}: then a trajectory "
                "ends wherever time runs backwards or jumps further than that."
            )
    ends = np.append(backwards, True)
    ends[:-1] |= _gaps(steps, ~backwards, mapping, keys, None, place)
    return Order(None, ends, "by time, as in the table")


def _gaps(
    steps: np.ndarray,
    inside: np.ndarray,
    mapping: TableMap,
    keys: RowKeys,
    rows: np.ndarray | None,
    place: Place,
) -> np.ndarray:
    """Steps that are too long to be steps; DataError if there are some and the mapping does not say what they are."""
    taken = steps[inside]
    if not taken.size or mapping.gap == KEEP:
        return np.zeros(len(steps), np.bool_)
    if isinstance(mapping.gap, float | int):
        return inside & (steps > mapping.gap)
    usual, limit = _usual(taken), _limit(taken)
    long = inside & (steps > limit)
    if long.any():
        first = int(np.argmax(long))
        before, after = (first, first + 1) if rows is None else (int(rows[first]), int(rows[first + 1]))
        raise DataError(
            f"column '{mapping.time}' jumps by {_duration_text(steps[first], keys)} from {place(before)} to "
            f"{place(after)}, where steps usually take {_duration_text(usual, keys)} ({_many(long, 'such gap')}): "
            f"rows are missing, and the transition across is wrong. Say gap = {_number_text(limit)} to end the "
            f'trajectory at longer steps, or gap = "{KEEP}" if they are real.'
        )
    return long


def _limit(steps: np.ndarray) -> float:
    """The longest step in time that is still one: little more than the usual one in a regular log."""
    if not steps.size:
        return 1.0
    usual = _usual(steps)
    is_regular = np.mean(np.abs(steps - usual) <= 0.1 * usual) >= REGULAR_SHARE
    return (REGULAR_FACTOR if is_regular else IRREGULAR_FACTOR) * usual


def _usual(steps: np.ndarray) -> float:
    """The median step; of two middle ones the shorter, so that one gap among few steps is still one."""
    return float(np.quantile(steps, 0.5, method="lower"))


def propose_gap(time: np.ndarray, episode: np.ndarray | None) -> tuple[float, int] | None:
    """The longest step and the number of gaps, where there are some."""
    order = np.arange(len(time)) if episode is None else np.lexsort((time, episode))
    steps = np.diff(time[order])
    inside = steps > 0 if episode is None else (np.diff(episode[order]) == 0) & (steps > 0)
    if not inside.any():
        return None
    limit = _limit(steps[inside])
    count = int((inside & (steps > limit)).sum()) + (int((steps < 0).sum()) if episode is None else 0)
    return (limit, count) if count else None


def check_values(facts: Mapping[str, ColumnFacts], mapping: TableMap, place: Place) -> None:
    """DataError for numbers beyond float32, sentinels nobody declared, and missing values that are refused."""
    for name, fact in facts.items():
        role = mapping.roles[name]
        if fact.num_present == 0:
            raise DataError(f"column '{name}' has no value in any row; leave it out of the mapping.")
        if fact.infinite.count:
            raise DataError(
                f"column '{name}' has {_count(fact.infinite.count)} with infinity or numbers beyond float32, the first "
                f"at {place(fact.infinite.first)}; mend the trajectory."
            )
        is_declared = mapping.sentinels is not None or mapping.rule(name).sentinels is not None
        has_labels = bool(mapping.rule(name).labels)
        if fact.is_number and not has_labels and not is_declared and (found := fact.sentinels):
            value, spots = next(iter(found.items()))
            raise DataError(
                f"column '{name}' is {value:g} in {_count(spots.count)}, first at {place(spots.first)}, far outside "
                f"its other values [{fact.low:g}, {fact.high:g}]: a sentinel for a missing value? Say sentinels = "
                f"[{value:g}] to read it as missing, or sentinels = [] if it is real."
            )
        if fact.kind == "number" and _is_flat(fact):
            raise DataError(
                f"column '{name}' lies between {fact.low:.10g} and {fact.high:.10g}, and float32 cannot tell such "
                "numbers apart; subtract an offset from all of them, or leave it out."
            )
        rule = mapping.rule(name).missing or (mapping.missing if role == "observation" else "refuse")
        if fact.missing.count and rule == "refuse" and role == "observation":
            raise DataError(
                f"column '{name}' misses {fact.missing.count} of {fact.num_rows} values, the first at "
                f'{place(fact.missing.first)}; say missing = "forward-fill" (the last value in the episode), missing = '
                '"indicator" (its mean, and a number that says so), or mend the trajectory.'
            )


def _is_flat(fact: ColumnFacts) -> bool:
    """Whether the numbers differ by less than a few steps of float32."""
    largest = np.float32(max(abs(fact.low), abs(fact.high)))
    return fact.low < fact.high and fact.high - fact.low < FEW_STEPS * float(np.spacing(largest))


def column_warnings(facts: Mapping[str, ColumnFacts], mapping: TableMap) -> Iterable[str]:
    """One sentence for each column that is constant, a copy of another, or asks what it is."""
    seen: dict[bytes, str] = {}
    for name, fact in facts.items():
        role = mapping.roles[name]
        if role == "observation" and fact.is_constant and not fact.missing.count:
            yield f"column '{name}' never changes, so it tells nothing; leave it out of the observation."
            continue
        digest = fact.digest.digest()
        if digest in seen:
            other = seen[digest]
            if {role, mapping.roles[other]} == {"observation"}:
                yield f"columns '{other}' and '{name}' are equal in every row; leave one out."
            elif "observation" in (role, mapping.roles[other]):
                known, told = (name, other) if role == "observation" else (other, name)
                yield (
                    f"column '{known}', an observation, equals the {mapping.roles[told]} '{told}' in every row: it "
                    "tells the policy its answer, which it will not know when it acts. Leave it out."
                )
        seen.setdefault(digest, name)
        asks = role == "action" and mapping.rule(name).kind is None and fact.kind == "number" and fact.is_whole
        if asks and fact.labels is not None and 2 <= len(fact.labels) <= FEW_VALUES:
            yield (
                f"action column '{name}' holds only {len(fact.labels)} whole numbers ({_some(fact.ordered_labels())}): "
                f'an amount or a choice? It is read as an amount; say kind = "box" or kind = "discrete" under '
                f"[columns.{name}]."
            )


def _many(found: np.ndarray, what: str) -> str:
    count = int(found.sum())
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _count(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= 6 else f"{', '.join(labels[:3])}, …, {labels[-1]}"


def _time_text(value: float, keys: RowKeys) -> str:
    if not keys.is_timestamp:
        return _number_text(value)
    try:
        return datetime.fromtimestamp(float(value), UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return _number_text(value)


def _duration_text(value: float, keys: RowKeys) -> str:
    if not keys.is_timestamp:
        return _number_text(value)
    for unit, seconds in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if value >= 2 * seconds:
            return f"{value / seconds:.3g} {unit}"
    return f"{value:.6g} seconds"


def _number_text(value: float) -> str:
    return f"{value:.10g}"
