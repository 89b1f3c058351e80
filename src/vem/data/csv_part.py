"""A CSV file as batches of text columns: separator and decimal mark found, rows of the wrong length named."""

from __future__ import annotations

import contextlib
import csv
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vem.errors import DataError

SEPARATORS = ",;\t|"
BLOCK_BYTES = 1 << 22
NUMBER = r"^\s*[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?\s*$"
MOSTLY = 0.8
DECIMAL_COMMA = re.compile(r"-?\d+,\d+")


def _is_mostly_numbers(column: Any) -> bool:
    import pyarrow.compute as compute

    found = compute.match_substring_regex(column, NUMBER)  # pyright: ignore[reportAttributeAccessIssue]
    share = compute.mean(found.cast("float64")).as_py()  # pyright: ignore[reportAttributeAccessIssue]
    return share is not None and share >= MOSTLY


class CsvPart:
    """One CSV file. ``types`` are what its first block looks like; ``batches`` are text."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self.path, self.name, self.num_rows = path, path.name, None
        with pa.input_stream(str(path), compression="detect") as stream:
            head = stream.read(1 << 16)
        header = head.split(b"\n", 1)[0].decode("utf-8", "replace")
        self.separator = max(SEPARATORS, key=header.count)
        first = head.split(b"\n", 2)[1].decode("utf-8", "replace") if head.count(b"\n") else ""
        cells = first.strip().split(self.separator)
        self.decimal = "," if self.separator != "," and any(map(DECIMAL_COMMA.fullmatch, cells)) else "."
        self.names = next(csv.reader([header.strip("\ufeff\r")], delimiter=self.separator), [])
        try:
            with self._opened(None) as reader:
                self.names = list(reader.schema.names)
                self.types = dict(zip(self.names, reader.schema.types, strict=True))
                first = next(iter(reader), None)
        except pa.ArrowInvalid as error:
            raise DataError(self._explained(str(error))) from None
        if first is not None:
            # A few words among numbers are errors to name, not categories.
            words = [name for name, kind in self.types.items() if pa.types.is_string(kind)]
            self.types |= {name: pa.float64() for name in words if _is_mostly_numbers(first.column(name))}

    def check_names(self) -> None:
        """DataError if two columns have one name, or one has none."""
        for name in self.names:
            if self.names.count(name) > 1:
                raise DataError(f"{self.path}: two columns are called '{name}'; give each its own name.")
        if self.names and all(re.fullmatch(r"[-+.\deE]*", name) for name in self.names):
            raise DataError(
                f"{self.path}: the first line holds numbers ({', '.join(self.names[:4])}, …) where the names of the "
                "columns are expected; put a line with names in front."
            )

    def batches(self, columns: list[str]) -> Iterator[Any]:
        """The rows as text, in order."""
        import pyarrow as pa

        try:
            with self._opened(columns) as reader:
                for batch in reader:
                    yield self._typed(self._with_points(batch) if self.decimal == "," else batch)
        except pa.ArrowInvalid as error:
            raise DataError(f"{self.path}: {self._explained(str(error))}") from None

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
        """The batch with booleans where the file began with them and still has them."""
        import pyarrow as pa

        columns: list[Any] = list(batch.columns)
        for index, name in enumerate(batch.schema.names):
            if pa.types.is_boolean(self.types[name]):
                with contextlib.suppress(pa.ArrowInvalid):
                    columns[index] = columns[index].cast(pa.bool_())
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _explained(self, problem: str) -> str:
        """What is wrong, with its row: pyarrow does not say which."""
        if "UTF8" in problem:
            return "the text is not UTF-8; save the file with that encoding."
        try:
            opener = gzip.open if self.path.name.lower().endswith(".gz") else open
            with opener(self.path, "rt", encoding="utf-8", errors="replace", newline="") as lines:
                for row, cells in enumerate(csv.reader(lines, delimiter=self.separator), -1):
                    if cells and len(cells) != len(self.names):
                        return (
                            f"row {row} has {len(cells)} values where the first line names {len(self.names)} columns; "
                            "mend or remove it."
                        )
        except (OSError, EOFError, csv.Error):
            pass
        return f"is no CSV table, or is damaged ({problem.splitlines()[0][:200]}); write it again."
