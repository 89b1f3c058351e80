"""Frames in memory → an Arrow table: pandas, Polars, Arrow, or a dict of columns. What does not fit is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vem.data.encoding import is_missing
from vem.data.table_values import kind_of
from vem.errors import DataError

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
