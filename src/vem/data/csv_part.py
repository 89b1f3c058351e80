"""A CSV file as batches of text columns: separator and decimal mark found, rows of the wrong length named."""

from __future__ import annotations

import contextlib
import csv
import gzip
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from vem.data.checks import located
from vem.data.table_frames import require_different_names, require_few_columns
from vem.errors import DataError

SEPARATORS = ",;\t|"
BLOCK_BYTES = 1 << 22
HEAD_BYTES = 1 << 20
"""Bytes of the beginning that the separator, the decimal mark and the number of columns are found in."""
NUMBER = r"^\s*[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?\s*$"
MOSTLY = 0.8
NOT_UTF8 = "the text is not UTF-8; save the file with that encoding."
DECIMAL_COMMA = re.compile(r"-?\d+,\d+")


def _is_mostly_numbers(column: Any) -> bool:
    import pyarrow.compute as compute

    found = compute.match_substring_regex(column, NUMBER)  # pyright: ignore[reportAttributeAccessIssue]
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
