"""What all file readers share: a path that can be read, and facts as JSON."""

from __future__ import annotations

import contextlib
import math
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.arrays import from_arrays
from vem.data.checks import Column, located
from vem.data.dataset import Dataset
from vem.errors import DataError, require


def require_file(path: Path) -> None:
    """Refuse what is not a readable file with something in it."""
    if path.is_dir():
        inside = sorted(child.name for child in path.iterdir() if child.suffix in (".hdf5", ".h5", ".npz"))
        hint = f"give one of its files: {', '.join(inside[:8])}" if inside else "it holds no .hdf5 or .npz file"
        raise DataError(f"{path}: is a directory; {hint}.")
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check the path.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be opened ({error}).") from None
    if empty:
        raise DataError(f"{path}: the file is empty (0 bytes); copy or download it again.")


def json_value(value: Any) -> Any:
    """The value as JSON can hold it; raises TypeError for what has no such form."""
    if isinstance(value, bytes | np.bytes_):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        if value.size > 64:
            raise TypeError("an array this large is no metadata")
        return json_value(value.tolist())
    if isinstance(value, np.generic):
        return json_value(value.item())
    if isinstance(value, dict):
        return {str(key): json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"{type(value).__name__} is no JSON value")


# Compressed chunks of an HDF5 dataset, unpacked in threads and once: HDF5 unpacks one at a time, at every reading.


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


# D4RL's HDF5 layout → Dataset, with h5py alone.


NEEDED = ("observations", "actions", "rewards")
OPTIONAL = ("terminals", "timeouts", "next_observations")
CONSTANT = "infos/goal"
MOST_COMPRESSION = 5_000
"""Beyond any real file: gzip reaches a thousand on constant data. Larger claims come from damaged headers."""


def read_hdf5(path: str | Path, **rules: Any) -> Dataset:
    """The Dataset in a file of D4RL's layout; ``rules`` are those of ``from_arrays``.

    The file's attributes, scalars under ``metadata/`` and a constant ``infos/goal`` become ``info.metadata``.
    """
    path = Path(path)
    require_file(path)
    with located(str(path)), open_hdf5(path) as (columns, metadata):
        return from_arrays(**columns, source=str(path), metadata=metadata, **{"name": path.stem, **rules})


@contextlib.contextmanager
def open_hdf5(path: Path) -> Iterator[tuple[dict[str, Column | None], dict[str, Any]]]:
    """The columns and the metadata of a file of D4RL's layout, which is open meanwhile."""
    with _opened(path) as file, unpacking_threads() as threads:
        yield _columns(file, threads), _metadata(file)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    require("h5py")
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        if h5py.is_hdf5(path):
            problem = "is damaged or cut short; copy or download it again"
        else:
            problem = "is no HDF5 file; D4RL datasets are, and arrays can be read from .npz"
        raise DataError(f"the file {problem} ({str(error).splitlines()[0]}).") from None
    with file:
        yield file


def _columns(file: Any, threads: ThreadPoolExecutor | None) -> dict[str, Column | None]:
    """The columns that the file has, not yet read."""
    key = ""
    try:
        columns = {}
        for key in (*NEEDED, *OPTIONAL):
            columns[key] = _column(file, key, threads)
        missing = [needed for needed in NEEDED if columns[needed] is None]
        if missing:
            raise DataError(f"column '{missing[0]}' is missing; {_contents(file)}")
        return columns
    except DataError:
        raise
    except Exception as error:  # whatever h5py makes of damaged bytes
        raise DataError(f"column '{key}' cannot be read ({error}); copy or download the file again.") from None


def _column(file: Any, key: str, threads: ThreadPoolExecutor | None) -> Column | None:
    import h5py

    try:
        found = file[key]
    except KeyError:
        _refuse_broken_link(file, key)
        return None
    if isinstance(found, h5py.Dataset):
        if found.size and found.nbytes > MOST_COMPRESSION * file.id.get_filesize():
            raise DataError(f"column '{key}' claims shape {found.shape}, more than the file can hold; it is damaged.")
        return Column(key, in_threads(found, threads))
    parts = ", ".join(list(found)[:5]) if isinstance(found, h5py.Group) else "a type"
    raise DataError(f"column '{key}' is a group ({parts}), not an array; join its parts into one.")


def _refuse_broken_link(file: Any, key: str) -> None:
    """Say where a column's link leads, if it has one: h5py itself calls such a column missing."""
    import h5py

    link = file.get(key, getlink=True)
    if isinstance(link, h5py.SoftLink):
        raise DataError(
            f"column '{key}' is a soft link to '{link.path}' in the same file, which cannot be found; store the array."
        )
    if isinstance(link, h5py.ExternalLink):
        raise DataError(
            f"column '{key}' is an external link to '{link.path}' in the file '{link.filename}', which cannot be "
            "found; put that file beside this one, or store the array here."
        )


def _contents(file: Any) -> str:
    held = sorted(file)
    if any(key.startswith("episode_") for key in held):
        return "the file is laid out by episodes as Minari does; load it as minari:ID."
    return f"the file holds {', '.join(held[:12]) or 'nothing'}, D4RL's layout needs {', '.join(NEEDED)}."


def _metadata(file: Any) -> dict[str, Any]:
    """Attributes and ``metadata/`` scalars as JSON values; what cannot be read or is large is left out."""
    import h5py

    facts: dict[str, Any] = {}
    unreadable = contextlib.suppress(Exception)  # metadata is a courtesy; the columns decide
    with unreadable:
        for key in file.attrs:
            with unreadable:
                facts[key] = json_value(file.attrs[key])
    with unreadable:
        if isinstance(group := file.get("metadata"), h5py.Group):
            for key, found in group.items():
                if isinstance(found, h5py.Dataset) and found.size is not None and found.size <= 64:
                    with unreadable:
                        facts[f"metadata/{key}"] = json_value(found[()])
    with unreadable:
        goal = file.get(CONSTANT)
        if isinstance(goal, h5py.Dataset) and goal.ndim == 2 and len(goal) and _is_constant(goal):
            facts[CONSTANT] = json_value(goal[0])
    return facts


def _is_constant(values: Any) -> bool:
    first, step = values[0], 65_536
    return all(bool(np.all(values[start : start + step] == first)) for start in range(0, len(values), step))


# NumPy ``.npz`` archives with D4RL's column names → Dataset, never unpickling anything.


def read_npz(path: str | Path, **rules: Any) -> Dataset:
    """The Dataset in an ``.npz`` with the columns of ``from_arrays``, whose rules ``rules`` are."""
    path = Path(path)
    require_file(path)
    with located(str(path)):
        columns = _columns_npz(path)
        return from_arrays(**columns, source=str(path), **{"name": path.stem, **rules})


def _columns_npz(path: Path) -> dict[str, np.ndarray | None]:
    key = ""
    try:
        # NumPy leaves a damaged file open, so it is opened here.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError("the file is a single array, not an .npz archive; write it with numpy.savez.")
            missing = [needed for needed in NEEDED if needed not in archive]
            if missing:
                raise DataError(
                    f"column '{missing[0]}' is missing; the file holds "
                    f"{', '.join(archive.files[:12]) or 'nothing'}, and {', '.join(NEEDED)} are needed."
                )
            columns = {}
            for key in (*NEEDED, *OPTIONAL):
                columns[key] = archive.get(key)
            return columns
    except DataError:
        raise
    except Exception as error:  # whatever NumPy and zipfile make of damaged bytes
        if "allow_pickle" in str(error) and key:
            raise DataError(
                f"column '{key}' holds Python objects, which are never unpickled; save plain number arrays."
            ) from None
        where = f"column '{key}'" if key else "the file"
        raise DataError(
            f"{where} is no .npz data, or is damaged or cut short ({error or type(error).__name__}); save it again."
        ) from None
