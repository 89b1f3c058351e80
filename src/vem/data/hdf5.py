"""D4RL's HDF5 layout → Dataset, with h5py alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.arrays import from_arrays
from vem.data.checks import located, resembling_names
from vem.data.chunks import in_threads, unpacking_threads
from vem.data.columns import Column
from vem.data.dataset import Dataset
from vem.data.files import MOST_COMPRESSION, MOST_METADATA, kept_metadata, require_file
from vem.errors import DataError
from vem.extras import require

NEEDED = ("observations", "actions", "rewards")
OPTIONAL = ("terminals", "timeouts", "next_observations")
CONSTANT = "infos/goal"
MOST_LINKS = 16
"""Soft links that are followed on the way to one column; rings have no end."""


def read_hdf5(path: str | Path, **rules: Any) -> Dataset:
    """The Dataset in a file of D4RL's layout; ``rules`` are those of ``from_arrays``.

    The file's attributes, scalars under ``metadata/`` and a constant ``infos/goal`` become ``info.metadata``.
    """
    path = Path(path)
    require_file(path)
    with located(str(path)), open_hdf5(path) as (columns, facts):
        return from_arrays(**columns, source=str(path), **facts, **{"name": path.stem, **rules})


@contextlib.contextmanager
def open_hdf5(path: Path) -> Iterator[tuple[dict[str, Column | None], dict[str, Any]]]:
    """The columns of a file of D4RL's layout, which is open meanwhile, and what else ``prepare`` is told of it."""
    with _opened(path) as file, unpacking_threads() as threads:
        columns = _columns(file, threads)
        columns, remarks = _columns(file, threads)
        yield columns, {"metadata": kept_metadata(_facts(file)), "remarks": remarks}


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


def _columns(file: Any, threads: ThreadPoolExecutor | None) -> tuple[dict[str, Column | None], list[str]]:
    """The columns that the file has, not yet read, and what there is to say about other names in it."""
    key, left = "", MOST_COMPRESSION * file.id.get_filesize()
    try:
        columns = {}
        for key in (*NEEDED, *OPTIONAL):
            found = _dataset(file, key)
            if found is None:
                columns[key] = None
                continue
            left -= found.nbytes if found.size else 0
            if left < 0:
                raise DataError(
                    f"column '{key}' claims shape {found.shape}, more than the file can hold; it is damaged."
                )
            columns[key] = Column(key, in_threads(found, threads))
        missing = [needed for needed in NEEDED if columns[needed] is None]
        if missing:
            raise DataError(f"column '{missing[0]}' is missing; {_contents(file)}")
        return columns, resembling_names(file, columns)
    except DataError:
        raise
    except Exception as error:  # whatever h5py makes of damaged bytes
        raise DataError(f"column '{key}' cannot be read ({error}); copy or download the file again.") from None


def _dataset(file: Any, key: str) -> Any:
    import h5py

    found = _find(file, key)
    if found is None or isinstance(found, h5py.Dataset):
        return found
    parts = ", ".join(list(found)[:5]) if isinstance(found, h5py.Group) else "a type"
    raise DataError(f"column '{key}' is a group ({parts}), not an array; join its parts into one.")


def _find(file: Any, key: str) -> Any:
    """What the file itself holds under a name, or None; DataError for a link that is broken or leads elsewhere."""
    import h5py
    from h5py import h5l  # pyright: ignore[reportAttributeAccessIssue]

    found: Any = file
    left, num_links, target = key.split("/"), 0, ""
    while left:
        part = left.pop(0)
        name = part.encode("utf-8", "surrogateescape")
        if not part:
            continue
        is_held = isinstance(found, h5py.Group) and found.id.links.exists(name)
        if target and (not is_held or num_links > MOST_LINKS):
            raise DataError(
                f"column '{key}' is a soft link to '{target}' in the same file, which cannot be found; store the array."
            )
        if not is_held:
            return None
        links = found.id.links
        kind = links.get_info(name).type
        if kind == h5l.TYPE_SOFT:
            num_links, target = num_links + 1, links.get_val(name).decode("utf-8", "surrogateescape")
            found, left = file if target.startswith("/") else found, [*target.split("/"), *left]
        elif kind == h5l.TYPE_HARD:
            found = found[part]
        else:
            raise _elsewhere(key, "an external link")
    if isinstance(found, h5py.Dataset) and (found.external or _is_joined(found)):
        raise _elsewhere(key, "stored outside of the file" if found.external else "joined from other files")
    return found


def _is_joined(dataset: Any) -> bool:
    """Whether it is a virtual dataset with parts in other files."""
    return dataset.is_virtual and any(source.file_name != "." for source in dataset.virtual_sources())


def _elsewhere(key: str, how: str) -> DataError:
    return DataError(f"column '{key}' is {how}, and no other file is opened for it; store the array here.")


def _contents(file: Any) -> str:
    held = sorted(file)
    if any(key.startswith("episode_") for key in held):
        return "the file is laid out by episodes as Minari does; load it as minari:ID."
    return f"the file holds {', '.join(held[:12]) or 'nothing'}, D4RL's layout needs {', '.join(NEEDED)}."


def _facts(file: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Attributes, ``metadata/`` scalars and a constant goal, each with a function that reads it."""
    import h5py

    def attribute(key: str) -> Any:
        if h5py.h5a.open(file.id, key.encode("utf-8", "surrogateescape")).get_storage_size() > MOST_METADATA:
            raise ValueError("too large")
        return file.attrs[key]

    def scalar(key: str) -> Any:
        found = _find(file, key)
        if not isinstance(found, h5py.Dataset) or found.size is None or found.nbytes > MOST_METADATA:
            raise ValueError("no scalar")
        return found[()]

    def constant(key: str) -> Any:
        goal = _find(file, key)
        is_goal = isinstance(goal, h5py.Dataset) and goal.ndim == 2 and len(goal)
        if not is_goal or goal.nbytes > MOST_COMPRESSION * file.id.get_filesize() or not _is_constant(goal):
            raise ValueError("not constant")
        return goal[0]

    unreadable = contextlib.suppress(Exception)  # metadata is a courtesy; the columns decide
    with unreadable:
        yield CONSTANT, lambda: constant(CONSTANT)
    with unreadable:
        for key in file.attrs:
            yield key, lambda key=key: attribute(key)
    with unreadable:
        if isinstance(group := _find(file, "metadata"), h5py.Group):
            for key in group:
                yield f"metadata/{key}", lambda key=f"metadata/{key}": scalar(key)


def _is_constant(values: Any) -> bool:
    first, step = values[0], 65_536
    return all(bool(np.all(values[start : start + step] == first)) for start in range(0, len(values), step))
