"""D4RL's HDF5 layout → Dataset, with h5py alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.arrays import from_arrays
from vem.data.checks import located
from vem.data.chunks import in_threads, unpacking_threads
from vem.data.columns import Column
from vem.data.dataset import Dataset
from vem.data.files import json_value, require_file
from vem.errors import DataError
from vem.extras import require

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
