"""What all file readers share: a path that can be read, and facts as JSON."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from vem.errors import DataError


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
