"""Every check on recorded data: each ends in one sentence that names the column, the row and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from vem.errors import DataError, SettingsError

# Action bounds: given by the user, known from the task or its environment, or the data's own range.


UNIT_TOLERANCE = 1e-4


class Bounds(NamedTuple):
    """Lower and upper bounds of each action, and where they come from."""

    low: np.ndarray
    high: np.ndarray
    source: str
    """``given``, ``task``, ``environment``, ``data``, or ``given and data`` where only some were given."""
    warning: str | None = None
    """One sentence if the data leave bounds that were given."""


def action_limits(
    actions: np.ndarray,
    valid: np.ndarray,
    given: tuple[object, object] | None = None,
    known: Bounds | None = None,
    names: Sequence[str] = (),
) -> Bounds:
    """The bounds of the actions: those given, else the task's or the environment's, else the data's own range.

    ``known`` are those of the task or the environment; if the data leave them they are not used, since the trajectory
    was made elsewhere. The data's range is its minimum and maximum in each dimension, c ± 1 where the
    action is always c. A given bound that is None or not finite counts as not given.
    """
    # Final rows hold zeros for an action, which must not widen the bounds.
    minimum = np.min(actions, axis=0, where=valid[:, None], initial=np.inf)
    maximum = np.max(actions, axis=0, where=valid[:, None], initial=-np.inf)
    constant = minimum == maximum
    margin = np.maximum(1, np.abs(minimum) * np.float32(1e-6))
    low, high = np.where(constant, minimum - margin, minimum), np.where(constant, maximum + margin, maximum)
    source = "data"
    if known is not None and _within(minimum, maximum, known.low, known.high).all():
        low, high = (
            np.where(np.isfinite(known.low), known.low, low),
            np.where(np.isfinite(known.high), known.high, high),
        )
        finite = np.isfinite([known.low, known.high])
        source = known.source if finite.all() else f"{known.source} and data" if finite.any() else "data"
    if given is None:
        return Bounds(low, high, source)
    bounds = override_bounds(given, low, high, source, names)
    return bounds._replace(warning=_beyond(actions, valid, (minimum, maximum), bounds, names))


def override_bounds(
    given: tuple[object, object], low: Any, high: Any, source: str | None, names: Sequence[str] = ()
) -> Bounds:
    """The bounds (low, high) from ``source`` with what is given on top."""
    given_low, given_high = (_bound(value, len(low)) for value in given)
    has_low, has_high = np.isfinite(given_low), np.isfinite(given_high)
    if has_low.any() or has_high.any():
        source = "given" if (has_low & has_high).all() or source == "given" else f"given and {source or 'data'}"
    low, high = np.where(has_low, given_low, low), np.where(has_high, given_high, high)
    if not (low < high).all():
        dimension = int(np.argmin(low < high))
        raise SettingsError(
            f"action_bounds: in {_called(dimension, names)} the lower bound {low[dimension]:g} is not below the "
            f"upper bound {high[dimension]:g}; swap or widen them."
        )
    return Bounds(low, high, source or "data")


def _beyond(
    actions: np.ndarray,
    valid: np.ndarray,
    extremes: tuple[np.ndarray, np.ndarray],
    bounds: Bounds,
    names: Sequence[str],
) -> str | None:
    """One sentence if the data, whose minimum and maximum are given, leave the bounds."""
    low, high = bounds.low, bounds.high
    outside = ~_within(*extremes, low, high)
    if not outside.any():
        return None
    dimension = int(np.argmax(outside))
    tolerance = _tolerance(low, high)[dimension]
    values = actions[:, dimension]
    beyond = valid & ((values < low[dimension] - tolerance) | (values > high[dimension] + tolerance))
    row = int(np.argmax(beyond))
    return (
        f"column 'actions' leaves its bounds in {int(outside.sum())} of {actions.shape[1]} dimensions: "
        f"{_called(dimension, names)} holds {values[row]:g} at row {row} of the dataset ({int(beyond.sum())} such "
        f"rows), bounds [{low[dimension]:g}, {high[dimension]:g}]. The policy stays inside the bounds; clip the "
        "actions or widen action_bounds."
    )


def known_bounds(task: str | None, environment: str | None, size: int) -> Bounds | None:
    """The bounds of the task, [−1, 1] in the benchmark, or of the environment if it can be made here.

    ``environment`` is one that the user named. One that a file names is not made: that would run what it names.
    """
    if task is not None:
        return Bounds(-np.ones(size, np.float32), np.ones(size, np.float32), "task")
    if environment is None:
        return None
    try:
        import gymnasium

        made = gymnasium.make(environment)
        space = made.action_space
        made.close()
    except Exception:  # an environment that cannot be made here says nothing; evaluating in it will say why
        return None
    is_fitting = isinstance(space, gymnasium.spaces.Box) and int(np.prod(space.shape)) == size
    return space_bounds(space) if is_fitting else None


def space_bounds(space: Any) -> Bounds:
    """The bounds of a Gymnasium Box; infinite ones leave the choice to the data."""
    return Bounds(space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32), "environment")


def _within(minimum: np.ndarray, maximum: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    tolerance = _tolerance(low, high)
    return (minimum >= low - tolerance) & (maximum <= high + tolerance)


def _tolerance(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How far values may be beyond bounds by rounding; 0 where float32 cannot hold the bounds' distance."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.nan_to_num(UNIT_TOLERANCE * (high - low), nan=0.0, posinf=0.0)


def _called(dimension: int, names: Sequence[str]) -> str:
    return f"column '{names[dimension]}'" if names else f"dimension {dimension}"


def _bound(value: object, size: int) -> np.ndarray:
    try:
        if isinstance(value, list | tuple):
            value = [np.inf if entry is None else entry for entry in value]
        bound = np.broadcast_to(np.asarray(np.inf if value is None else value, np.float32), (size,))
    except (ValueError, TypeError):
        raise SettingsError(
            f"action_bounds: {value!r} does not fit actions of size {size}; give (low, high), each a "
            f"number or {size} numbers."
        ) from None
    if np.isnan(bound).any():
        raise SettingsError("action_bounds: a bound is NaN; give numbers, or leave action_bounds out.")
    return bound


def bounds_to_json(given: tuple[Any, Any], size: int) -> list[list[float | None]]:
    """Given bounds as a run's config.json holds them; None where a bound is left to the data."""
    return [[float(bound) if np.isfinite(bound) else None for bound in _bound(value, size)] for value in given]


# Arrays that start where a device of the host can read them in place, so that training needs no second copy.


ALIGNMENT = 64
"""Bytes; JAX copies arrays that do not start at a multiple of it."""


def aligned(array: np.ndarray) -> np.ndarray:
    """The array itself if it is contiguous and aligned, else a copy that is."""
    if array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An aligned array without values."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + size].view(dtype).reshape(shape)


# One recorded quantity, read in blocks of rows from an array or an open HDF5 file.


BLOCK_BYTES = 2 << 20


class Column:
    """Rows of one quantity, handed out as float32 blocks so that no second copy of the data is ever made.

    ``values`` is a NumPy array or anything that looks like one and slices by rows, such as an HDF5 dataset.
    """

    def __init__(self, name: str, values: Any):
        self.name = name
        sliceable = hasattr(values, "shape") and isinstance(getattr(values, "dtype", None), np.dtype)
        self.values = values if sliceable else _array(name, values)
        _require_numbers(name, self.values.dtype)
        # An HDF5 dataset without a dataspace has no shape at all.
        self.shape: tuple[int, ...] = self.values.shape or ()
        self.block_rows = self._block_rows()

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """The rows from ``start`` up to ``stop``, in the column's own type."""
        try:
            return np.asarray(self.values[start:stop])
        except Exception as error:  # whatever the library that holds the file makes of damaged bytes
            raise DataError(
                f"column '{self.name}': rows {start} to {stop} cannot be read ({_first_line(error)}). "
                "The file is damaged; copy or download it again."
            ) from None

    def _block_rows(self) -> int:
        """Rows of a block: about two megabytes, in whole chunks of a compressed file."""
        row_bytes = max(1, self.values.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64)))
        rows = max(1, BLOCK_BYTES // row_bytes)
        chunks = getattr(self.values, "chunks", None)
        return max(1, round(rows / chunks[0])) * chunks[0] if chunks else rows

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """First row and float32 values of each block; rows that are not finite come as they are."""
        step = self.block_rows
        for start in range(0, self.num_rows, step):
            yield start, as_float32(self.read(start, min(start + step, self.num_rows)))

    def gather(self, index: np.ndarray, output: np.ndarray | None = None) -> np.ndarray:
        """``column[index]`` as float32 for a non-decreasing ``index``, reading each block at most once."""
        if output is None:
            output = aligned_empty((len(index), *self.shape[1:]), np.float32)
        step = self.block_rows
        starts = range(0, self.num_rows, step)
        limits = np.searchsorted(index, [*starts, self.num_rows])
        for start, first, last in zip(starts, limits[:-1], limits[1:], strict=True):
            if first < last:
                block = as_float32(self.read(start, min(start + step, self.num_rows)))
                output[first:last] = block[index[first:last] - start]
        return output


def as_float32(values: np.ndarray) -> np.ndarray:
    """The values as float32; what float32 cannot hold becomes infinite, which the checks report."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32, copy=False)


def _array(name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(
            f"column '{name}' is no array ({_first_line(error)}); pass numbers of shape (rows, size)."
        ) from None


def _require_numbers(name: str, dtype: np.dtype) -> None:
    if dtype.kind in "biuf":
        return
    kind = {"O": "Python objects", "S": "bytes", "U": "text", "c": "complex numbers", "V": "records"}
    raise DataError(
        f"column '{name}' holds {kind.get(dtype.kind, 'values')} ({dtype}), not real numbers; "
        "convert it to float32, one row of equal length per step."
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


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
            "or mend the trajectory."
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
                "trajectory."
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
