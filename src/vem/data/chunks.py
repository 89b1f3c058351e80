"""Compressed chunks of an HDF5 dataset, unpacked in threads and once: HDF5 unpacks one at a time, at every reading."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

GZIP, SHUFFLE = 1, 2
"""HDF5's numbers of the filters that are undone here."""
LARGEST_HELD = 256 << 20
"""Bytes of a dataset up to which its chunks are held for the second reading; larger ones are unpacked again."""


@contextmanager
def unpacking_threads() -> Iterator[ThreadPoolExecutor | None]:
    """One thread for each core, or None where there is one core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores == 1:
        yield None
        return
    with ThreadPoolExecutor(min(cores, 8), thread_name_prefix="unpack") as threads:
        yield threads


def in_threads(dataset: Any, threads: ThreadPoolExecutor | None) -> Any:
    """The dataset with its chunks unpacked in threads, if any; as it is where its chunks are not whole rows in gzip."""
    if not dataset.chunks or dataset.chunks[1:] != dataset.shape[1:] or not dataset.size:
        return dataset
    pipeline = dataset.id.get_create_plist()
    filters = [pipeline.get_filter(index)[0] for index in range(pipeline.get_nfilters())]
    return Chunks(dataset, threads, SHUFFLE in filters) if filters in ([GZIP], [SHUFFLE, GZIP]) else dataset


class Chunks:
    """A dataset of gzip's chunks that slices by rows."""

    def __init__(self, dataset: Any, threads: ThreadPoolExecutor | None, is_shuffled: bool) -> None:
        self._dataset, self._is_shuffled = dataset, is_shuffled
        self._map = map if threads is None else threads.map
        self._held: dict[int, np.ndarray] | None = {} if dataset.nbytes <= LARGEST_HELD else None
        self.shape: tuple[int, ...] = dataset.shape
        self.dtype: np.dtype = dataset.dtype
        self.chunks: tuple[int, ...] = dataset.chunks

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        step = self.chunks[0]
        output = np.empty((max(stop - start, 0), *self.shape[1:]), self.dtype)

        def unpack(first: int) -> None:
            chunk = self._chunk(first)
            low, high = max(first, start), min(first + step, stop)
            output[low - start : high - start] = chunk[low - first : high - first]

        try:
            list(self._map(unpack, range(start - start % step, stop, step)))
        except Exception:  # a chunk that is absent, stored without its filters, or damaged: HDF5 knows or says it best
            return self._dataset[start:stop]
        return output

    def _chunk(self, first: int) -> np.ndarray:
        if self._held is None:
            return self._unpacked(first)
        if first not in self._held:
            self._held[first] = self._unpacked(first)
        return self._held[first]

    def _unpacked(self, first: int) -> np.ndarray:
        skipped, packed = self._dataset.id.read_direct_chunk((first, *(0 for _ in self.shape[1:])))
        if skipped:
            raise ValueError("stored without its filters")
        size = self.dtype.itemsize * int(np.prod(self.chunks))
        flat = np.frombuffer(zlib.decompress(packed, bufsize=size), np.uint8)
        if self._is_shuffled:
            planes = flat.reshape(self.dtype.itemsize, -1)
            flat = np.empty(planes.shape[::-1], np.uint8)
            for index, plane in enumerate(planes):  # much faster than a transposed copy
                flat[:, index] = plane
        return flat.reshape(-1).view(self.dtype).reshape(self.chunks)
