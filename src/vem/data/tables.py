"""Tables → Dataset: one Arrow table from files or a frame, its rows put in order, its columns read by a mapping."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from vem.data.actions import ActionColumn, known_bounds
from vem.data.arrays import assemble, lay_out, located, prepare
from vem.data.columns import (
    FEW_VALUES,
    MOST_LABELS,
    ColumnFacts,
    Place,
    TableColumn,
    are_numbers,
    kind_of,
    look,
    trimmed,
)
from vem.data.dataset import Dataset
from vem.data.encoding import ABSENT, Encoder, InputColumn, is_missing
from vem.data.files import require_file, require_inside, user_path
from vem.data.mapping import KEEP, TableMap, make_map
from vem.errors import DataError

SUFFIXES = (".parquet", ".pq", ".arrow", ".feather", ".ipc", ".csv", ".tsv", ".csv.gz")
SEPARATORS = ",;\t|"
HEAD_BYTES = 1 << 20
"""Bytes of a CSV file's beginning that the separator and the number of columns are found in."""
MOSTLY = 0.8
"""A column of text of which so much are numbers is one of numbers: the words among them are errors to name."""
MOST_COLUMNS = 10_000
"""Columns of a table; each is looked at by itself."""
NOT_UTF8 = "the text is not UTF-8; save the file with that encoding."
KIND_NAMES = {
    "number": "numbers",
    "boolean": "booleans",
    "text": "text",
    "time": "times",
    "other": "values that are neither numbers nor text",
}


# A file, a folder of files, or a frame → a table whose columns are read when they are asked for.


class Part(NamedTuple):
    """One file of a table, or the frame that it is."""

    name: str
    types: dict[str, Any]
    """Column → Arrow type; for CSV what most of its values look like."""
    read: Callable[[list[str]], Any]
    """Names of columns → an Arrow table of them."""


class Table:
    """One or several files of the same columns, or a frame."""

    def __init__(self, parts: Sequence[Part], name: str, source: str) -> None:
        self.parts, self.name, self.source = parts, name, source
        self.types = dict(parts[0].types)
        """Column → Arrow type in the first file with values in it."""
        self._starts: list[int] = []
        for part in parts:
            lacking = [name for name in self.types if name not in part.types]
            if lacking:
                raise DataError(
                    f"{source}: column '{lacking[0]}' is missing in {part.name}, but {parts[0].name} has it; all "
                    "files of a folder must have the same columns."
                )
            self.types = {name: part.types[name] if str(kind) == "null" else kind for name, kind in self.types.items()}

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.types)

    def read(self, names: Iterable[str]) -> dict[str, TableColumn]:
        """These columns, read from all files."""
        names = list(dict.fromkeys(names))
        tables = [self._read_part(part, names) for part in self.parts]
        self._starts = np.cumsum([0, *map(len, tables[:-1])]).tolist()
        return {
            name: TableColumn(name, self._joined(name, [t.column(name) for t in tables]), self.place) for name in names
        }

    def _read_part(self, part: Part, names: list[str]) -> Any:
        try:
            return part.read(names)
        except Exception as error:  # whatever pyarrow makes of damaged bytes
            raise DataError(
                f"{part.name}: cannot be read ({first_line(error)}); the file is damaged, copy or write it again."
            ) from None

    def _joined(self, name: str, columns: list[Any]) -> Any:
        """The column of all files in one type; text where they have none in common."""
        import pyarrow as pa

        tables = [pa.table({name: _plain(column)}) for column in columns]
        try:
            return pa.concat_tables(tables, promote_options="permissive").column(name)
        except pa.ArrowException:
            with contextlib.suppress(pa.ArrowException):
                return pa.concat_tables([table.cast(pa.schema({name: pa.string()})) for table in tables]).column(name)
            raise DataError(f"column '{name}' differs in kind between the files; write all in one way.") from None

    def place(self, row: int) -> str:
        """``row 7``, with its file where there are several; rows are counted from 0 in their file."""
        if len(self.parts) == 1:
            return f"row {row}"
        index = max(i for i, start in enumerate(self._starts) if start <= row)
        return f"row {row - self._starts[index]} of {self.parts[index].name}"


def _plain(column: Any) -> Any:
    """The column without dictionary, in a type that all of Arrow's functions know."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        parts = [_plain(pa.chunked_array([chunk.dictionary])).take(chunk.indices) for chunk in column.chunks]
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type if parts else None)
    if types.is_string_view(kind) or types.is_large_string(kind):
        return column.cast(pa.string())
    if types.is_decimal(kind) and kind.bit_width < 128:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column


def open_table(source: Any) -> Table:
    """The table in a file, in all table files of a folder, or in a frame (pandas, Polars, Arrow, a dict of columns)."""
    require_pyarrow()
    if not isinstance(source, str | Path):
        table = arrow_table(source)
        return Table([Part("table", _types(table.schema), table.select)], "table", "arrays")
    path = user_path(source)
    if not path.is_dir():
        require_file(path)
        return Table([_part(path)], path.name.removesuffix(_suffix(path)), str(path))
    files = table_files(path)
    if not files:
        raise DataError(f"{path}: the folder holds no table; {', '.join(SUFFIXES)} files are read.")
    if len(suffixes := {_suffix(file) for file in files}) > 1:
        raise DataError(
            f"{path}: the folder holds files of several kinds ({', '.join(sorted(suffixes))}); keep one kind, or give "
            "one file."
        )
    for file in files:
        require_inside(file, path)
    return Table([_partitioned(file, path) for file in files], path.name, str(path))


def table_files(folder: Path) -> list[Path]:
    """The tables of a folder in their order: part-2 before part-10, without hidden files and markers.

    Folders that are called COLUMN=VALUE, as Hive and Spark call them, belong to it.
    """
    found = []
    for path in folder.iterdir():
        if path.name.startswith((".", "_")):
            continue
        if "=" in path.name and path.is_dir() and not path.is_symlink():
            found += table_files(path)
        elif is_table(path):
            found.append(path)
    return sorted(found, key=lambda path: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", str(path))])


def is_table(path: Path) -> bool:
    """Whether the file's name is that of a table."""
    return path.name.lower().endswith(SUFFIXES)


def require_pyarrow() -> None:
    """DataError unless pyarrow is installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise DataError("tables are read with pyarrow, which is not installed: pip install 'vem[tables]'.") from None


def _suffix(path: Path) -> str:
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), path.suffix.lower())


def _partitioned(file: Path, folder: Path) -> Part:
    """A file of a folder, with a column for each COLUMN=VALUE on the way to it."""
    import pyarrow as pa

    part = _part(file)
    inside = file.relative_to(folder)
    said = dict(parent.split("=", 1) for parent in inside.parts[:-1])
    said = {name: int(value) if re.fullmatch(r"-?\d{1,18}", value) else value for name, value in said.items()}
    if not said:
        return part

    def read(names: list[str]) -> Any:
        held = [name for name in part.types if name in names] or list(part.types)[:1]
        table = part.read(held)
        for name, value in said.items():
            table = table.append_column(name, pa.array([value] * len(table)))
        return table.select(names)

    types = {**part.types, **{name: pa.scalar(value).type for name, value in said.items()}}
    return Part(str(inside), types, read)


def _part(path: Path) -> Part:
    suffix = _suffix(path)
    try:
        if suffix in (".parquet", ".pq"):
            return _parquet(path)
        return _csv(path) if "csv" in suffix or suffix == ".tsv" else _arrow(path)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # whatever pyarrow makes of damaged bytes
        raise DataError(
            f"{path}: is no {suffix} file, or is damaged or cut short ({first_line(error)}); write it again."
        ) from None


def _types(schema: Any) -> dict[str, Any]:
    """Column → type; DataError if two columns have one name, or there are too many."""
    names = list(schema.names)
    require_few_columns(len(names))
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"two columns are called '{twice}'; give each its own name.")
    return dict(zip(names, schema.types, strict=True))


def require_few_columns(count: int) -> None:
    """DataError if a table has more columns than are looked at."""
    if count > MOST_COLUMNS:
        raise DataError(
            f"the table has more than {MOST_COLUMNS:,} columns; keep those that matter, or give arrays as .npz or "
            ".hdf5."
        )


def _parquet(path: Path) -> Part:
    import pyarrow.parquet as parquet

    def read(names: list[str]) -> Any:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read(names)

    with parquet.ParquetFile(path) as file:
        return Part(path.name, _types(file.schema_arrow), read)


def _arrow(path: Path) -> Part:
    """An Arrow file or stream; Feather is the same."""
    import pyarrow as pa

    def opened() -> Any:
        try:
            return pa.ipc.open_file(pa.memory_map(str(path)))
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(pa.memory_map(str(path)))

    def read(names: list[str]) -> Any:
        with opened() as reader:
            table = reader.read_all()
        table.validate(full=True)  # damaged offsets would lead outside of the file
        return table.select(names)

    with opened() as reader:
        return Part(path.name, _types(reader.schema), read)


def _csv(path: Path) -> Part:
    """A CSV file, whose columns are numbers, booleans or times where all their values are, else text."""
    import pyarrow as pa

    with pa.input_stream(str(path), compression="detect") as stream:
        head = stream.read(HEAD_BYTES)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head.split(b"\n", 1)[0]:
        raise DataError(NOT_UTF8)
    header = re.split(r"\r\n|\n|\r", head.decode("utf-8", "replace"), maxsplit=1)[0].strip("\ufeff")
    separator = max(SEPARATORS, key=header.count)
    require_few_columns(header.count(separator) + 1)
    names = next(csv.reader([header], delimiter=separator), [])
    if names and all(re.fullmatch(r"[-+.\deE]*", name) for name in names):
        raise DataError(
            f"the first line holds numbers ({', '.join(names[:4])}, …) where the names of the columns are expected; "
            "put a line with names in front."
        )
    text = _csv_text(path, separator, names)
    _require_closed_quotes(text, separator)
    typed = pa.table({name: _typed(column) for name, column in zip(text.column_names, text.columns, strict=True)})
    types = {
        name: pa.float64() if pa.types.is_string(column.type) and _is_mostly_numbers(column) else column.type
        for name, column in zip(typed.column_names, typed.columns, strict=True)
    }
    return Part(path.name, types, typed.select)


def _csv_text(path: Path, separator: str, names: list[str]) -> Any:
    """All columns as text; DataError names the row that has too few or too many values."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    wrong: list[Any] = []

    def read(use_threads: bool) -> Any:
        return arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(use_threads=use_threads),
            parse_options=arrow_csv.ParseOptions(
                delimiter=separator, invalid_row_handler=lambda row: (wrong.append(row), "error")[1]
            ),
            convert_options=arrow_csv.ConvertOptions(
                strings_can_be_null=True, column_types=dict.fromkeys(names, pa.string())
            ),
        )

    try:
        text = read(use_threads=True)
        _types(text.schema)
        return text
    except UnicodeDecodeError:
        raise DataError(NOT_UTF8) from None
    except pa.ArrowInvalid as error:
        problem = first_line(error)
    if "UTF8" in problem:
        raise DataError(NOT_UTF8)
    wrong.clear()
    with contextlib.suppress(pa.ArrowInvalid):  # one thread counts the rows
        read(use_threads=False)
    if wrong and wrong[0].number is not None:
        raise DataError(
            f"row {wrong[0].number - 2} has {wrong[0].actual_columns} values where the first line names "
            f"{wrong[0].expected_columns} columns; mend or remove it."
        )
    raise DataError(f"is no CSV table, or is damaged ({problem[:200]}); write it again.")


def _require_closed_quotes(text: Any, separator: str) -> None:
    """DataError if a quote that nobody closed has taken following rows into its value."""
    import pyarrow.compute as pc

    line = rf"[\r\n]([^\r\n]*{re.escape(separator)}){{{min(text.num_columns - 1, 1000)}}}"
    rows = []
    for column in text.columns:
        if kind_of(column.type) == "text":
            found = pc.match_substring_regex(column, line)  # pyright: ignore[reportAttributeAccessIssue]
            rows.append(pc.index(found, True).as_py())
    if (found_rows := [row for row in rows if row >= 0]) and text.num_columns > 1:
        raise DataError(
            f"row {min(found_rows)} opens a quote that is not closed before the line ends, and following rows are "
            "taken for its text; close the quote, or remove it."
        )


def _typed(column: Any) -> Any:
    """Text as what all of it spells, if anything."""
    import pyarrow as pa

    if kind_of(column.type) != "text":
        return column
    text = trimmed(column)
    for kind in (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        with contextlib.suppress(pa.ArrowInvalid):
            return text.cast(kind)
    return text


def _is_mostly_numbers(column: Any) -> bool:
    import pyarrow.compute as pc

    share = pc.mean(are_numbers(column).cast("float64")).as_py()  # pyright: ignore[reportAttributeAccessIssue]
    return share is not None and share >= MOSTLY


def arrow_table(frame: Any) -> Any:
    """The frame as an Arrow table; DataError names the column and the row that no table can hold."""
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, Mapping):
        return _from_columns(frame)
    is_pandas = type(frame).__module__.startswith("pandas") and hasattr(frame, "columns")
    names = [str(name) for name in frame.columns] if is_pandas else []
    if is_pandas:
        _types(pa.schema([(name, pa.null()) for name in names]))
    try:
        if isinstance(frame, pa.RecordBatch):
            return pa.Table.from_batches([frame])
        if is_pandas:
            return pa.Table.from_pandas(frame)
        if hasattr(frame, "collect") and hasattr(frame, "collect_schema"):  # a lazy Polars frame
            frame = frame.collect()
        return pa.table(frame)
    except Exception as error:  # objects, mixed types, or no table at all
        for index, name in enumerate(names):
            _arrow_column(name, frame.iloc[:, index])
        raise DataError(
            f"this {type(frame).__name__} is no table that Arrow can hold ({first_line(error)}); give a frame with one "
            "value of one type for each row and column."
        ) from None


def first_line(error: BaseException) -> str:
    """What an error of pyarrow says first."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _from_columns(columns: Mapping[Any, Any]) -> Any:
    import pyarrow as pa

    wrong = [name for name in columns if not isinstance(name, str)]
    if wrong:
        raise DataError(f"a column is called {wrong[0]!r}; names of columns are text.")
    made = {name: _arrow_column(name, values) for name, values in columns.items()}
    first = next(iter(made), "")
    other = next((name for name in made if len(made[name]) != len(made[first])), None)
    if other is not None:
        raise DataError(
            f"column '{other}' has {len(made[other])} rows and '{first}' {len(made[first])}; give one value for each "
            "row in all columns."
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
        what = f"is {values!r}"[:80] if shape is None else f"has shape {shape}"
        raise DataError(f"column '{name}' {what}; give one value for each row.")
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
        shown = f"column '{name}' holds {repr(value)[:60]} ({type(value).__name__}) at row {row}"
        try:
            kind = kind_of(pa.array([value]).type)
        except Exception:
            return f"{shown}, which is no number, text or time that a table can hold; convert it."
        if usual not in (None, kind):
            return f"{shown} among values of kind {usual}; write all in one way."
        usual = kind
    return None


# The order of the rows: sorted where the mapping can tell, refused where transitions would be wrong.


REGULAR_SHARE = 0.75
"""A log is regular if so many of its steps take nearly the usual time."""
REGULAR_FACTOR = 1.5
IRREGULAR_FACTOR = 10.0
MOST_PIECES = 0.1
"""More trajectories than this share of the rows are no trajectories: the rows of several are interleaved."""
FEW_PIECES = 5
"""So many trajectories are never too many."""


class RowKeys(NamedTuple):
    """What decides the order of the rows and where trajectories end, one entry for each row of the table."""

    place: Place
    episode: np.ndarray | None
    """Number of the episode."""
    time: np.ndarray | None
    is_timestamp: bool = False
    """Whether times are seconds since 1970."""
    episode_names: Sequence[str] = ()

    def time_text(self, row: int) -> str:
        """The time of a row for people."""
        assert self.time is not None
        value = float(self.time[row])
        with contextlib.suppress(ValueError, OverflowError, OSError):
            if self.is_timestamp:
                return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return f"{value:.10g}"

    def duration_text(self, value: float) -> str:
        """A difference of times for people."""
        if not self.is_timestamp:
            return f"{value:.10g}"
        for unit, seconds in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
            if value >= 2 * seconds:
                return f"{value / seconds:.3g} {unit}"
        return f"{value:.6g} seconds"


class Order(NamedTuple):
    """In which order the rows are read, and where trajectories end."""

    rows: np.ndarray
    """Row of the table for each step."""
    ends: np.ndarray
    """Step → whether its trajectory ends after it, by episode, time and gap."""
    rule: str
    """What was done, in a few words."""


def find_order(keys: RowKeys, mapping: TableMap, num_rows: int) -> Order:
    """The order of the rows; DataError where transitions would be wrong.

    With an episode and a time column rows are sorted by both. With one of them they must be in order already.
    """
    if keys.episode is not None and keys.time is not None:
        return _by_episode_and_time(keys, keys.episode, keys.time, mapping)
    if keys.episode is not None:
        return _by_episode(keys, keys.episode, mapping)
    if keys.time is not None:
        return _by_time(keys, keys.time, mapping)
    return Order(np.arange(num_rows), np.arange(num_rows) == num_rows - 1, "as in the table")


def _by_episode_and_time(keys: RowKeys, episode: np.ndarray, time: np.ndarray, mapping: TableMap) -> Order:
    # Episodes in the order of their beginnings, so that the order of the table's rows changes nothing.
    begins = np.full(int(episode.max()) + 1, np.inf)
    np.minimum.at(begins, episode, time)
    place_of_episode = np.argsort(np.argsort(begins, kind="stable"), kind="stable")
    rows = np.lexsort((time, place_of_episode[episode]))
    repeated = (np.diff(episode[rows]) == 0) & (np.diff(time[rows]) == 0)
    rule = f"sorted by {mapping.episode} and {mapping.time}"
    if repeated.any():
        first, second = rows[int(np.argmax(repeated)) :][:2].tolist()
        if mapping.duplicates == "refuse":
            raise DataError(
                f"{keys.place(first)} and {keys.place(second)} are one step twice: '{mapping.episode}' is "
                f"{keys.episode_names[int(episode[first])]} and '{mapping.time}' is {keys.time_text(first)} in both "
                f"({_many(repeated, 'such row')}). Remove them, map the column that tells them apart as episode, or "
                'keep the first of each with duplicates = "first".'
            )
        rows = rows[np.concatenate([[True], ~repeated])]
        rule += f", {int(repeated.sum())} repeated rows dropped"
    elif (rows == np.arange(len(rows))).all():
        rule = "by episode and time, as in the table"
    inside = np.diff(episode[rows]) == 0
    ends = np.append(~inside | _gaps(keys, np.diff(time[rows]), inside, mapping, rows), True)
    return Order(rows, ends, rule)


def _by_episode(keys: RowKeys, episode: np.ndarray, mapping: TableMap) -> Order:
    ends = np.append(np.diff(episode) != 0, True)
    starts = np.flatnonzero(np.concatenate([[True], ends[:-1]]))
    pieces = episode[starts]
    _, first = np.unique(pieces, return_index=True)
    again = np.setdiff1d(np.arange(len(pieces)), first)
    if again.size:
        piece = int(again[0])
        before = int(np.flatnonzero(pieces[:piece] == pieces[piece])[-1])
        raise DataError(
            f"column '{mapping.episode}' is {keys.episode_names[int(pieces[piece])]} up to "
            f"{keys.place(int(starts[before + 1]) - 1)} and again at {keys.place(int(starts[piece]))}: rows of several "
            "episodes are interleaved, and following rows are not following steps. Map the time column too, then rows "
            "are sorted by both."
        )
    return Order(np.arange(len(episode)), ends, "by episode, as in the table")


def _by_time(keys: RowKeys, time: np.ndarray, mapping: TableMap) -> Order:
    steps = np.diff(time)
    backwards, equal = steps < 0, steps == 0
    if equal.any():
        first = int(np.argmax(equal))
        raise DataError(
            f"column '{mapping.time}' is {keys.time_text(first)} at {keys.place(first)} and at {keys.place(first + 1)} "
            f"({_many(equal, 'such pair')}): a step recorded twice, or several trajectories in one log. Map the column "
            "that tells them apart as episode, or remove the repeated rows."
        )
    if backwards.any():
        first, count = int(np.argmax(backwards)), int(backwards.sum())
        where = (
            f"column '{mapping.time}' runs backwards {count} times, first from {keys.time_text(first)} at "
            f"{keys.place(first)} to {keys.time_text(first + 1)} at {keys.place(first + 1)}"
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
                f"episode, sort the table, or say gap = {_limit(steps[steps > 0]):.10g}: then a trajectory ends "
                "wherever time runs backwards or jumps further than that."
            )
    rows = np.arange(len(time))
    ends = np.append(backwards | _gaps(keys, steps, ~backwards, mapping, rows), True)
    return Order(rows, ends, "by time, as in the table")


def _gaps(keys: RowKeys, steps: np.ndarray, inside: np.ndarray, mapping: TableMap, rows: np.ndarray) -> np.ndarray:
    """Steps that are too long to be steps; DataError if there are some and the mapping does not say what they are."""
    if not inside.any() or mapping.gap == KEEP:
        return np.zeros(len(steps), np.bool_)
    if isinstance(mapping.gap, float | int):
        return inside & (steps > mapping.gap)
    limit = _limit(steps[inside])
    long = inside & (steps > limit)
    if long.any():
        first = int(np.argmax(long))
        raise DataError(
            f"column '{mapping.time}' jumps by {keys.duration_text(steps[first])} from {keys.place(int(rows[first]))} "
            f"to {keys.place(int(rows[first + 1]))}, where steps usually take "
            f"{keys.duration_text(_usual(steps[inside]))} ({_many(long, 'such gap')}): rows are missing, and the "
            f"transition across is wrong. Say gap = {limit:.10g} to end the trajectory at longer steps, or gap = "
            f'"{KEEP}" if they are real.'
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


def _many(found: np.ndarray, what: str) -> str:
    count = int(found.sum())
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# Columns that say nothing, or too much, or what float32 cannot hold.


def check_values(fact: ColumnFacts, mapping: TableMap, place: Place) -> None:
    """DataError for numbers beyond float32, sentinels nobody declared, and missing values that are refused."""
    name, role, rule = fact.name, mapping.roles[fact.name], mapping.rule(fact.name)
    if fact.num_present == 0:
        raise DataError(f"column '{name}' has no value in any row; leave it out of the mapping.")
    if fact.infinite.count:
        raise DataError(
            f"column '{name}' has {_rows(fact.infinite.count)} with infinity or numbers beyond float32, the first "
            f"at {place(fact.infinite.first)}; mend the trajectory."
        )
    is_declared = mapping.sentinels is not None or rule.sentinels is not None or bool(rule.labels)
    if fact.is_number and not is_declared and fact.sentinels:
        value, spots = next(iter(fact.sentinels.items()))
        raise DataError(
            f"column '{name}' is {value:g} in {_rows(spots.count)}, first at {place(spots.first)}, far outside "
            f"its other values [{fact.low:g}, {fact.high:g}]: a sentinel for a missing value? Say sentinels = "
            f"[{value:g}] to read it as missing, or sentinels = [] if it is real."
        )
    if fact.kind == "number" and fact.is_flat:
        raise DataError(
            f"column '{name}' lies between {fact.low:.10g} and {fact.high:.10g}, and float32 cannot tell such "
            "numbers apart; subtract an offset from all of them, or leave it out."
        )
    if fact.missing.count and role == "observation" and (rule.missing or mapping.missing) == "refuse":
        raise DataError(
            f"column '{name}' misses {fact.missing.count} of {fact.num_rows} values, the first at "
            f'{place(fact.missing.first)}; say missing = "forward-fill" (the last value in the episode), missing = '
            '"indicator" (its mean, and a number that says so), or mend the trajectory.'
        )


def column_warnings(facts: Mapping[str, ColumnFacts], mapping: TableMap) -> Iterable[str]:
    """One sentence for each column that is constant, a copy of another, or asks what it is."""
    seen: dict[bytes, str] = {}
    for name, fact in facts.items():
        role = mapping.roles[name]
        if role == "observation" and fact.is_constant and not fact.missing.count:
            yield f"column '{name}' never changes, so it tells nothing; leave it out of the observation."
            continue
        if (other := seen.setdefault(fact.digest, name)) != name:
            if {role, mapping.roles[other]} == {"observation"}:
                yield f"columns '{other}' and '{name}' are equal in every row; leave one out."
            elif "observation" in (role, mapping.roles[other]):
                known, told = (name, other) if role == "observation" else (other, name)
                yield (
                    f"column '{known}', an observation, equals the {mapping.roles[told]} '{told}' in every row: it "
                    "tells the policy its answer, which it will not know when it acts. Leave it out."
                )
        asks = role == "action" and mapping.rule(name).kind is None and fact.kind == "number" and fact.is_whole
        if asks and fact.labels is not None and 2 <= len(fact.labels) <= FEW_VALUES:
            some = fact.labels if len(fact.labels) <= 6 else (*fact.labels[:3], "…", fact.labels[-1])
            yield (
                f"action column '{name}' holds only {len(fact.labels)} whole numbers ({', '.join(some)}): an amount "
                f'or a choice? It is read as an amount; say kind = "box" or kind = "discrete" under [columns.{name}].'
            )


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


# A table read by a mapping.


ENTRIES = tuple(TableMap.__dataclass_fields__)
"""What a mapping may say, also as keywords of ``load`` and ``from_table``."""


def from_table(frame: Any, mapping: Any = None, **rules: Any) -> Dataset:
    """The Dataset in a frame of pandas, Polars or Arrow, a dict of columns, or the path of a table or a folder of them.

    ``mapping`` is a TableMap, a dict, or a TOML or JSON file as ``vem data map`` writes it; its entries may also be
    keywords (``observation=``, ``action=``, ``gap=`` …). Without one it is proposed from the columns' names, and
    refused if they leave anything open.

    ``rules`` are those of ``from_arrays`` (``split``, ``time_limit``, ``teleports``, ``action_bounds``, ``task``,
    ``environment``, ``name``). Jumps of the observations (``teleports``) are kept unless nothing else says where
    trajectories end.
    """
    table = open_table(frame)
    entries = {name: rules.pop(name) for name in ENTRIES if name in rules}
    with located(table.source if table.source != "arrays" else rules.get("name") or table.name):
        chosen = make_map(mapping, **entries)
        remarks: list[str] = []
        if mapping is None:
            chosen = _proposed(table, chosen, remarks if not entries else [])
        chosen.check()
        chosen.check_columns(table.names)
        _require_one_kind(table, chosen)
        return _Reading(table, chosen, remarks).dataset(**rules)


def _require_one_kind(table: Table, mapping: TableMap) -> None:
    """DataError if the files of a folder hold values of different kinds in a mapped column."""
    for name, role in mapping.roles.items():
        rule = mapping.rule(name)
        if rule.kind in ("categorical", "discrete") or rule.labels or role == "episode":
            continue  # any value is a label
        kinds: dict[str, str] = {}
        for part in table.parts:
            zone = " with a time zone" if getattr(part.types[name], "tz", None) else ""
            if (kind := kind_of(part.types[name])) != "empty":
                kinds.setdefault(KIND_NAMES[kind] + zone, part.name)
        if len(kinds) > 1:
            (first, here), (second, there) = list(kinds.items())[:2]
            raise DataError(
                f"column '{name}', mapped as {role}, holds {first} in {here} and {second} in {there}; write all files "
                'in one way, or, if they are labels, say kind = "categorical" or "discrete".'
            )


def _proposed(table: Table, mapping: TableMap, remarks: list[str]) -> TableMap:
    """The proposed mapping, if the columns' names leave nothing open."""
    from vem.data.proposal import propose

    proposal = propose(table, mapping, roles_only=True)
    if proposal.unclear:
        raise DataError(
            f"the columns {', '.join(table.names[:20])} do not say which is what: {proposal.unclear}. vem data map "
            "FILE --out map.toml proposes a mapping to complete and pass as --map (mapping=)."
        )
    mapping = proposal.mapping
    roles = {role: getattr(mapping, role) for role in ("observation", "action", "reward", "episode", "time")}
    texts = [f"{role} {', '.join(v) if isinstance(v, tuple) else v}" for role, v in roles.items() if v]
    remarks.append(
        f"no mapping was given, so the columns' names decided: {'; '.join(texts)}. vem data map FILE explains it, "
        "and --map (mapping=) fixes it."
    )
    return mapping


@dataclass
class _Reading:
    """One table being read by a complete mapping."""

    table: Table
    mapping: TableMap
    remarks: list[str]

    def dataset(
        self,
        *,
        name: str | None = None,
        split: str = "terminals",
        time_limit: str = "bootstrap",
        teleports: str | None = None,
        action_bounds: tuple[Any, Any] | None = None,
        task: str | None = None,
        environment: str | None = None,
    ) -> Dataset:
        mapping = self.mapping
        is_bare = mapping.episode is None and mapping.time is None and mapping.truncated is None
        watch = None
        if mapping.time is None:
            free = [name for name in self.table.names if name not in mapping.roles]
            watch = next((name for name in free if kind_of(self.table.types[name]) == "time"), None)
        self.columns = self.table.read([*mapping.roles, *([watch] if watch else [])])
        self.num_rows = len(self.columns[str(mapping.reward)].values)
        if not self.num_rows:
            raise DataError("the table has no rows; record at least two steps.")
        self._look()
        encoder = self._encoder()
        order, terminal = self._order()
        ends = order.ends
        if is_bare:
            ends = ends | terminal
            if mapping.terminal is None:
                self.remarks.append(
                    f"the table is read as one trajectory of {self.num_rows} rows, because no column says where one "
                    "ends; map episode, time, terminal or truncated if it holds several."
                )
        if watch:
            self._require_order(watch, ends)
        layout = lay_out(terminal, ends, np.zeros_like(ends), split=split, time_limit=time_limit)
        if not layout.valid.any():
            raise DataError(
                f"no valid transition in {self.num_rows} rows: each step is the last of its trajectory. Check the "
                "columns mapped as episode and truncated, the gap, or use time_limit='end' (--time-limit end)."
            )
        self.order, self.ends = order, ends | terminal if split == "terminals" else ends
        needed, acted = np.zeros((2, len(ends)), np.bool_)
        needed[layout.rows], acted[layout.rows[layout.valid]] = True, True
        prepared = prepare(
            self._observations(encoder, needed),
            self._actions(encoder, acted),
            self._filled(str(mapping.reward), acted, np.nan),
            terminal,
            ends,
            name=name or self.table.name,
            split=split,
            time_limit=time_limit,
            teleports=teleports or ("split" if is_bare else "keep"),
            discrete=None,
            source=self.table.source,
            task=task,
            environment=environment,
            rules={"order": order.rule, "mapping": mapping.to_json()},
            remarks=self.remarks,
        )
        rows = prepared.gather(0, prepared.num_recorded)
        if not rows.valid.any():
            raise prepared.nothing_valid()
        info = dataclasses.replace(prepared.info, action_columns=encoder.outputs, encoder=encoder)
        known = known_bounds(info.task, environment, len(encoder.outputs))
        return assemble(rows, info, action_bounds or _bounds(encoder), known)

    def _look(self) -> None:
        """What the columns hold: their values as numbers or codes, and whether these can be used."""
        self.values: dict[str, np.ndarray] = {}
        self.facts: dict[str, ColumnFacts] = {}
        for name in (*self.mapping.observation, *self.mapping.action, str(self.mapping.reward)):
            kind = {"categorical": "text", "discrete": "text", "box": "number"}.get(self._kind(name), self._kind(name))
            self.values[name], fact = look(self.columns[name], kind, self._sentinels(name))
            check_values(fact, self.mapping, self.table.place)
            self.facts[name] = fact
        self.remarks += column_warnings(self.facts, self.mapping)

    def _sentinels(self, name: str) -> tuple[float, ...]:
        own = self.mapping.rule(name).sentinels
        return (self.mapping.sentinels or ()) if own is None else own

    def _kind(self, name: str) -> str:
        rule, role = self.mapping.rule(name), self.mapping.roles[name]
        if role == "reward":
            return "number"
        choice, amount = ("discrete", "box") if role == "action" else ("categorical", "number")
        if rule.kind is not None:
            return rule.kind
        natural = kind_of(self.table.types[name])
        if rule.labels or natural == "text":
            return choice
        if natural == "boolean":
            return "discrete" if role == "action" else "boolean"
        return amount

    def _encoder(self) -> Encoder:
        mapping = self.mapping
        inputs = []
        for name in mapping.observation:
            kind: Any = self._kind(name)
            missing: Any = mapping.rule(name).missing or mapping.missing
            labels = self._labels(name) if kind == "categorical" else ()
            fill = self.facts[name].mean if kind != "categorical" and missing == "indicator" else 0.0
            inputs.append(InputColumn(name, kind, missing, labels, fill, self._sentinels(name)))
        outputs = []
        for name in mapping.action:
            rule = mapping.rule(name)
            if self._kind(name) == "box":
                low, high = (np.nan if bound is None else bound for bound in (rule.low, rule.high))
                outputs.append(ActionColumn(name, "box", low, high))
                continue
            labels = self._labels(name)
            if len(labels) < 2:
                raise DataError(
                    f"action column '{name}' is always '{''.join(labels)}': there is nothing to choose; leave it out "
                    "of the actions, or name all its labels."
                )
            outputs.append(ActionColumn(name, "discrete", 0.0, len(labels) - 1.0, labels))
        return Encoder(tuple(inputs), tuple(outputs), tuple(self._output_type(column) for column in outputs))

    def _labels(self, name: str) -> tuple[str, ...]:
        """The labels of a column, as given or found; its values become their codes."""
        column, labels = self.columns[name], self.mapping.rule(name).labels
        if labels:
            self.values[name] = column.codes(labels, self._sentinels(name))
            return labels
        labels = self.facts[name].labels
        if labels is None:
            word = f" (the first that is no number: {column.first_word()})" if column.kind == "text" else ""
            raise DataError(
                f"column '{name}' has more than {MOST_LABELS} different values{word}, too many for categories; leave "
                "it out, or join them into fewer."
            )
        return labels

    def _output_type(self, column: ActionColumn) -> Literal["number", "integer", "text", "boolean"]:
        kind = kind_of(self.table.types[column.name])
        if column.kind == "box" or kind not in ("number", "boolean"):
            return "number" if column.kind == "box" else "text"
        if kind == "boolean":
            return "boolean"
        return "integer" if all(label.lstrip("-").isdigit() for label in column.labels) else "number"

    def _order(self) -> tuple[Order, np.ndarray]:
        """The order of the steps with the ends that columns say, and which steps are terminal."""
        mapping, columns, place = self.mapping, self.columns, self.table.place
        episode, names = columns[mapping.episode].episodes() if mapping.episode else (None, [])
        time, is_timestamp = columns[mapping.time].times() if mapping.time else (None, False)
        order = find_order(RowKeys(place, episode, time, is_timestamp, names), mapping, self.num_rows)
        terminal = np.zeros(len(order.rows), np.bool_)
        if mapping.terminal:
            terminal = columns[mapping.terminal].flags()[order.rows]
        inner = terminal & ~order.ends
        if mapping.episode is not None and inner.any():
            self.remarks.append(
                f"column '{mapping.terminal}' is set at {int(inner.sum())} steps that are not the last of their "
                f"episode, first at {place(int(order.rows[np.argmax(inner)]))}; by split='terminals' an episode ends "
                "at each of them."
            )
        if mapping.truncated:
            order = order._replace(ends=order.ends | columns[mapping.truncated].flags()[order.rows])
        return order, terminal

    def _require_order(self, watch: str, ends: np.ndarray) -> None:
        """DataError if a time column that nobody mapped runs backwards inside of a trajectory."""
        try:
            time, _ = self.columns[watch].times()
        except DataError:  # a column that nobody mapped may be damaged
            return
        backwards = (np.diff(time) < 0) & ~ends[:-1]
        if backwards.any():
            row = int(np.argmax(backwards))
            raise DataError(
                f"the rows are not in the order of column '{watch}': it runs backwards from {self.table.place(row)} to "
                f"{self.table.place(row + 1)} ({int(backwards.sum())} times). Map it as time, with the column that "
                "tells trajectories apart as episode, or sort the table."
            )

    def _observations(self, encoder: Encoder, needed: np.ndarray) -> np.ndarray:
        blocks = np.empty((len(needed), len(encoder.feature_names)), np.float32)
        start = 0
        for column in encoder.inputs:
            empty = ABSENT if column.kind == "categorical" else np.nan
            if column.missing == "forward-fill":
                values = self._filled(column.name, needed, empty)
            else:
                values = self.values[column.name][self.order.rows]
            stop = start + len(column.feature_names)
            blocks[:, start:stop] = column.encode(values)
            start = stop
        return blocks

    def _actions(self, encoder: Encoder, acted: np.ndarray) -> np.ndarray:
        moves = np.empty((len(acted), len(encoder.outputs)), np.float32)
        for index, column in enumerate(encoder.outputs):
            moves[:, index] = self._filled(column.name, acted, ABSENT if column.kind == "discrete" else np.nan)
        return moves

    def _filled(self, name: str, needed: np.ndarray, empty: float) -> np.ndarray:
        """A column's values in order; DataError if one is missing that is needed and cannot be filled forward."""
        values, role, rows = self.values[name][self.order.rows], self.mapping.roles[name], self.order.rows
        absent = np.isnan(values) if np.isnan(empty) else values == empty
        rule = self.mapping.rule(name).missing or (self.mapping.missing if role == "observation" else "refuse")
        if rule == "forward-fill" and absent.any():
            begins = np.concatenate([[True], self.ends[:-1]])
            last, steps = np.where(absent, -1, np.arange(len(values))), np.arange(len(values))
            last = np.maximum.accumulate(last)
            is_known = absent & (last >= np.maximum.accumulate(np.where(begins, steps, 0)))
            values[is_known] = values[last[is_known]]
            absent &= ~is_known
        lacking = absent & needed
        if lacking.any():
            place = self.table.place(int(rows[np.argmax(lacking)]))
            if role == "observation":
                raise DataError(
                    f"column '{name}' is missing its value at {place}, and no earlier row of the episode has one to "
                    'fill forward; say missing = "indicator", or mend the trajectory.'
                )
            held = ', or say missing = "forward-fill" if it keeps its last value' if role == "action" else ""
            raise DataError(
                f"{role} column '{name}' is missing its value at {place} ({int(lacking.sum())} such steps); every "
                f"step but the last of a trajectory needs one. Mend the trajectory{held}."
            )
        values[absent] = 0
        return values


def _bounds(encoder: Encoder) -> tuple[Any, Any] | None:
    """The bounds that the mapping gives, if it gives any."""
    low = [column.low for column in encoder.outputs]
    high = [column.high for column in encoder.outputs]
    boxes = [column for column in encoder.outputs if column.kind == "box"]
    if all(np.isnan([column.low, column.high]).all() for column in boxes):
        return None
    return [None if np.isnan(x) else x for x in low], [None if np.isnan(x) else x for x in high]
