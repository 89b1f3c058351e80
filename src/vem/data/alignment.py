"""Arrays that start where a device of the host can read them in place, so that training needs no second copy."""

from __future__ import annotations

from typing import Any

import numpy as np

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
