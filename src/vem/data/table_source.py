"""A table as an iterator of row blocks: Parquet, Arrow or Feather, CSV, a folder of such files, or a frame in memory.

pyarrow reads; at most one batch of rows is held at a time. CSV columns come as text, which the columns' kinds decide
how to read: so a value that does not fit is found with its row, however late it comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vem.data.csv_part import CsvPart
from vem.data.files import require_file, require_inside, user_path
from vem.data.table_frames import arrow_table, first_line, require_different_names
from vem.errors import DataError

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
