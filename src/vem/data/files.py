"""What all file readers share: a path that can be read, and facts as JSON."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vem.errors import DataError

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
