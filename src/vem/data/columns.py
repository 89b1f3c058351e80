"""One recorded quantity, read in blocks of rows from an array or an open HDF5 file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from vem.data.alignment import aligned_empty
from vem.errors import DataError

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
