"""What all file readers share: a path that can be read, and facts as JSON."""

from __future__ import annotations

import contextlib
import json
import math
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.arrays import Column, from_arrays, located, resembling_names
from vem.data.dataset import Dataset
from vem.errors import DataError, require

MOST_COMPRESSION = 1_000
"""Bytes that a file may claim to hold for each of its own, all columns together; gzip reaches more on zeros alone."""
MOST_METADATA = 1 << 16
"""Characters of metadata that are kept of one file, as JSON."""
MOST_FACTS = 1_000
"""Entries of metadata that are looked at in one file."""


def user_path(text: str | Path) -> Path:
    """The path with ``~`` replaced; DataError where that is no path."""
    if not str(text):
        raise DataError("the path is empty; give a file, a folder or the name of a dataset.")
    try:
        path = Path(text).expanduser()
        path.exists()  # refuses what is too long for a name
    except RuntimeError:
        raise DataError(f"{text}: no user is called so; give the folder instead of {Path(text).parts[0]}.") from None
    except OSError as error:
        raise DataError(f"{str(text)[:200]}: cannot be opened ({error.strerror}).") from None
    return path


def require_file(path: Path) -> None:
    """Refuse what is not a readable file with something in it."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check the path.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be opened ({error}).") from None
    if stat.S_ISDIR(found.st_mode):
        inside = sorted(child.name for child in path.iterdir() if child.suffix in (".hdf5", ".h5", ".npz"))
        hint = f"give one of its files: {', '.join(inside[:8])}" if inside else "it holds no .hdf5 or .npz file"
        raise DataError(f"{path}: is a directory; {hint}.")
    refuse_pipe(path)
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be opened ({error}).") from None
    if empty:
        raise DataError(f"{path}: the file is empty (0 bytes); copy or download it again.")


def refuse_pipe(path: Path) -> None:
    """Refuse what is neither a file nor a directory: opening a pipe would wait until somebody writes to it."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path}: is a pipe or a device, not a file; write what it holds to a file first.")


def require_inside(file: Path, folder: Path) -> None:
    """Refuse a link that leads out of the folder whose file it seems to be, and what is no file."""
    try:
        if not file.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{file}: is a link that leads out of its folder; put the file itself there.")
        refuse_pipe(file)
    except (OSError, RuntimeError) as error:  # a link to itself
        raise DataError(f"{file}: cannot be opened ({error}).") from None


def kept_metadata(entries: Iterable[tuple[str, Callable[[], Any]]]) -> dict[str, Any]:
    """The entries as JSON values, each read by its function; what cannot be read, or is too much, is left out."""
    kept: dict[str, Any] = {}
    left = MOST_METADATA
    for key, read in islice(entries, MOST_FACTS):
        try:
            value = json_value(read())
            size = len(key) + len(json.dumps(value))
        except Exception:  # whatever the library makes of damaged bytes: metadata is a courtesy, the columns decide
            continue
        if size <= left:
            kept[key], left = value, left - size
    return kept


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


# D4RL's HDF5 layout → Dataset, with h5py alone.


NEEDED = ("observations", "actions", "rewards")
OPTIONAL = ("terminals", "timeouts", "next_observations")
CONSTANT = "infos/goal"
MOST_LINKS = 16
"""Soft links that are followed on the way to one column; rings have no end."""
LARGEST_HELD = 256 << 20
"""Bytes of a column up to which it is read at once; larger ones are read in blocks, twice."""


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
    with _opened(path) as file:
        columns, remarks = _columns(file)
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


def _columns(file: Any) -> tuple[dict[str, Column | None], list[str]]:
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
            columns[key] = _held(Column(key, found))
        missing = [needed for needed in NEEDED if columns[needed] is None]
        if missing:
            raise DataError(f"column '{missing[0]}' is missing; {_contents(file)}")
        return columns, resembling_names(file, columns)
    except DataError:
        raise
    except Exception as error:  # whatever h5py makes of damaged bytes
        raise DataError(f"column '{key}' cannot be read ({error}); copy or download the file again.") from None


def _held(column: Column) -> Column:
    """The column read at once, unless it is large."""
    if not column.shape or not 0 < column.values.nbytes <= LARGEST_HELD:
        return column
    return Column(column.name, column.read(0, column.num_rows))


def _dataset(file: Any, key: str) -> Any:
    import h5py

    found = _find(file, key)
    if found is None or isinstance(found, h5py.Dataset):
        return found
    parts = ", ".join(list(found)[:5]) if isinstance(found, h5py.Group) else "a type"
    raise DataError(f"column '{key}' is a group ({parts}), not an array; join its parts into one.")


def _find(file: Any, path: str, key: str = "", depth: int = 0) -> Any:
    """What the file itself holds under a path, or None; DataError for a link that is broken or leads elsewhere."""
    import h5py
    from h5py import h5l  # pyright: ignore[reportAttributeAccessIssue]

    found, place = file, ""
    for part in filter(None, path.split("/")):
        name = part.encode("utf-8", "surrogateescape")
        if not isinstance(found, h5py.Group) or not found.id.links.exists(name):
            return None
        links = found.id.links
        kind, is_followed = links.get_info(name).type, depth < MOST_LINKS
        if kind == h5l.TYPE_SOFT and is_followed:
            target = links.get_val(name).decode("utf-8", "surrogateescape")
            found = _find(file, target if target.startswith("/") else f"{place}/{target}", key or path, depth + 1)
        else:
            found = found[part] if kind == h5l.TYPE_HARD else None
        is_elsewhere = isinstance(found, h5py.Dataset) and (found.external or _is_joined(found))
        if found is None or is_elsewhere:
            raise DataError(
                f"column '{key or path}' is a link that leads nowhere, or lies in another file, which is not opened; "
                "store the array itself."
            )
        place = f"{place}/{part}"
    return found


def _is_joined(dataset: Any) -> bool:
    """Whether it is a virtual dataset with parts in other files."""
    return dataset.is_virtual and any(source.file_name != "." for source in dataset.virtual_sources())


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


# NumPy ``.npz`` archives with D4RL's column names → Dataset, never unpickling anything.


def read_npz(path: str | Path, **rules: Any) -> Dataset:
    """The Dataset in an ``.npz`` with the columns of ``from_arrays``, whose rules ``rules`` are."""
    path = Path(path)
    require_file(path)
    with located(str(path)):
        columns, remarks = _columns_npz(path)
        return from_arrays(**columns, source=str(path), remarks=remarks, **{"name": path.stem, **rules})


def _columns_npz(path: Path) -> tuple[dict[str, np.ndarray | None], list[str]]:
    """The columns that are known, and what there is to say about the others."""
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
            claimed = sum(trial.file_size for trial in (archive.zip.infolist() if archive.zip else ()))
            if claimed > MOST_COMPRESSION * path.stat().st_size:
                raise DataError(f"the file claims {claimed:,} bytes, more than it can hold; it is damaged.")
            columns = {}
            for key in (*NEEDED, *OPTIONAL):
                columns[key] = archive.get(key)
            return columns, resembling_names(archive.files, columns)
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
