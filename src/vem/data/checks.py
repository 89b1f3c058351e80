"""Every check on recorded data: each ends in one sentence that names the column, the row and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

import numpy as np

from vem.data.columns import Column
from vem.errors import DataError, SettingsError

MOST_NAMES = 1_000
"""Names of a file that are looked at for a misspelled one."""


@contextmanager
def located(source: str) -> Iterator[None]:
    """Put the name of the file in front of what is wrong with it."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{source}: {error}") from None


def require_choice(setting: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a rule that does not exist."""
    if value not in choices:
        raise SettingsError(f"{setting}={value!r} is unknown; choose one of {', '.join(choices)}.")


def require_matrix(column: Column) -> Column:
    """The column, if it has shape (rows, size) with at least one row and one number in it."""
    shape = column.shape
    if len(shape) >= 1 and shape[0] == 0:
        raise DataError(f"column '{column.name}' is empty (shape {shape}); record at least two steps.")
    if len(shape) == 2 and shape[1] > 0:
        return column
    if len(shape) == 1:
        remedy = f"for one number per step use {column.name}[:, None]"
    elif len(shape) > 2:
        remedy = f"flatten each step, e.g. {column.name}.reshape(len({column.name}), -1)"
    else:
        remedy = "give one row of numbers for each step"
    raise DataError(f"column '{column.name}' has shape {shape} where (rows, size) is expected; {remedy}.")


def require_actions(column: Column, is_discrete: bool) -> Column:
    """The column with shape (rows, size); one choice a step may come as (rows,)."""
    if is_discrete and len(column.shape) == 1 and column.num_rows:
        return Column(column.name, column.read(0, column.num_rows)[:, None])
    return require_matrix(column)


def require_single(column: Column, num_rows: int) -> Column:
    """The column, if it has shape (rows,) or (rows, 1)."""
    shape = column.shape
    if not (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
        raise DataError(f"column '{column.name}' has shape {shape}, expected ({num_rows},); give one number per step.")
    require_length(column, num_rows)
    return column


def require_vector(column: Column, num_rows: int) -> np.ndarray:
    """The whole column in its own type with shape (rows,); (rows, 1) is accepted."""
    return require_single(column, num_rows).read(0, num_rows).reshape(num_rows)


def require_length(column: Column, num_rows: int) -> None:
    """Refuse a column that does not have one row for each observation."""
    if column.num_rows != num_rows:
        shorter = min(column.num_rows, num_rows)
        raise DataError(
            f"column '{column.name}' has {column.num_rows} rows and 'observations' has {num_rows}: row "
            f"{shorter} has no partner. Every column needs one row per step; cut them to the same length "
            "or mend the recording."
        )


def resembling_names(held: Iterable[str], columns: Mapping[str, object]) -> list[str]:
    """One sentence for each name in a file that is none of the columns and resembles one that is missing (None)."""
    missing = [name for name, values in columns.items() if values is None]
    return [
        f"column '{name}' is not read; if it is meant to be '{close[0]}', which is missing, rename it."
        for name in islice(held, MOST_NAMES)
        if name not in columns and (close := difflib.get_close_matches(name.lower(), missing, n=1, cutoff=0.8))
    ]


class FiniteCheck:
    """Counts rows that are NaN, infinite, or beyond float32, block by block, and reports them all at once."""

    def __init__(self, name: str):
        self.name = name
        self.count = 0
        self.first = -1

    def see(self, start: int, block: np.ndarray) -> None:
        """Take note of one float32 block that begins at row ``start``."""
        # A float64 sum of finite float32 values is finite, and much cheaper than a look at each value.
        with np.errstate(invalid="ignore"):
            if np.isfinite(block.sum(dtype=np.float64)):
                return
        bad = ~np.isfinite(block.reshape(len(block), -1)).all(axis=1)
        if self.count == 0:
            self.first = start + int(np.argmax(bad))
        self.count += int(bad.sum())

    def finish(self) -> None:
        """Raise if anything was seen."""
        if self.count:
            rows = "row" if self.count == 1 else "rows"
            raise DataError(
                f"column '{self.name}' has {self.count} {rows} with NaN, infinity or numbers beyond "
                f"float32, the first at row {self.first}; remove the episodes that hold them or mend the "
                "recording."
            )


def require_finite(column: Column) -> None:
    """Refuse a column with NaN, infinity or numbers that float32 cannot hold."""
    check = FiniteCheck(column.name)
    for start, block in column.blocks():
        check.see(start, block)
    check.finish()


def require_flags(name: str, values: np.ndarray) -> np.ndarray:
    """The flags as booleans; numbers must be 0 or 1."""
    if values.dtype == np.bool_:
        return values
    wrong = ~((values == 0) | (values == 1))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"column '{name}' holds {values[row]!r} at row {row} ({int(wrong.sum())} such rows); flags are "
            "0 or 1, so convert it to booleans."
        )
    return values.astype(np.bool_)


def require_rows(
    observations: np.ndarray, actions: np.ndarray, rewards: np.ndarray, valid: np.ndarray, terminal: np.ndarray
) -> None:
    """Refuse arrays that are not the rows of a Dataset; about 40 ms for a million rows of 29 + 8 numbers."""
    numbers = {"observations": observations, "actions": actions, "rewards": rewards}
    flags = {"valid": valid, "terminal": terminal}
    num_rows = len(valid) if np.ndim(valid) else 0
    for name, values in (numbers | flags).items():
        dtype, ndim = (
            np.dtype(np.bool_ if name in flags else np.float32),
            2 if name in ("observations", "actions") else 1,
        )
        if not isinstance(values, np.ndarray) or values.dtype != dtype:
            found = getattr(values, "dtype", type(values).__name__)
            raise _no_dataset(f"'{name}' is {found} where a NumPy array of {dtype} is expected")
        if values.ndim != ndim or len(values) != num_rows or 0 in values.shape:
            expected = f"({num_rows}, size)" if ndim == 2 else f"({num_rows},)"
            raise _no_dataset(f"'{name}' has shape {values.shape} where {expected} is expected, as 'valid' has")
    final = ~valid
    if not final[-1]:
        raise _no_dataset("the last row is valid; it must be the final observation of the last episode")
    if final[0] or (final[1:] & final[:-1]).any():
        row = 0 if final[0] else int(np.argmax(final[1:] & final[:-1])) + 1
        raise _no_dataset(f"row {row} is the final observation of an episode without a step")
    ended = terminal[:-1] & ~final[1:]
    if terminal[-1] or (terminal & final).any() or ended.any():
        row = int(np.argmax((terminal & final) | np.append(ended, False)))
        raise _no_dataset(f"row {row} is terminal and not the last step of its episode")
    for name in ("actions", "rewards"):
        if numbers[name][final].any():
            row = int(np.flatnonzero(final)[np.argmax(numbers[name][final].reshape(final.sum(), -1).any(axis=1))])
            raise _no_dataset(f"'{name}' is not zero at row {row}, which is not valid")
    for name, values in numbers.items():
        # NaN and infinity show in the extremes, which need no memory.
        if not (np.isfinite(values.min()) and np.isfinite(values.max())):
            row = int(np.argmin(np.isfinite(values).reshape(num_rows, -1).all(axis=1)))
            raise _no_dataset(f"'{name}' holds NaN or infinity at row {row}")


def _no_dataset(problem: str) -> DataError:
    return DataError(f"these arrays are no Dataset: {problem}; vem.from_arrays builds one from recorded steps.")
