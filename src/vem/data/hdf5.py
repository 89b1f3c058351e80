"""D4RL's HDF5 layout → Dataset, with h5py alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.arrays import from_arrays
from vem.data.checks import located
from vem.data.columns import Column
from vem.data.dataset import Dataset
from vem.data.files import json_value, require_file, task_environment
from vem.errors import DataError

NEEDED = ("observations", "actions", "rewards")
OPTIONAL = ("terminals", "timeouts", "next_observations")
CONSTANT = "infos/goal"


def read_hdf5(path: str | Path, **rules: Any) -> Dataset:
    """The Dataset in a file of D4RL's layout; ``rules`` are those of ``from_arrays``.

    The file's attributes, scalars under ``metadata/`` and a constant ``infos/goal`` become ``info.metadata``.
    """
    path = Path(path)
    require_file(path)
    with located(str(path)), _opened(path) as file:
        columns = {key: _column(file, key) for key in (*NEEDED, *OPTIONAL)}
        missing = [key for key in NEEDED if columns[key] is None]
        if missing:
            raise DataError(f"column '{missing[0]}' is missing; {_contents(file)}")
        rules.setdefault("name", path.stem)
        rules.setdefault("environment", task_environment(rules["name"]))
        return from_arrays(**columns, source=str(path), metadata=_metadata(file), **rules)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
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


def _column(file: Any, key: str) -> Column | None:
    import h5py

    try:
        found = file.get(key)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"column '{key}' cannot be read ({error}); copy or download the file again."
        ) from None
    if found is None:
        return None
    if not isinstance(found, h5py.Dataset):
        raise DataError(
            f"column '{key}' is a group ({', '.join(list(found)[:5])}), not an array; join its parts into "
            "one."
        )
    try:
        return Column(key, found)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"column '{key}' cannot be read ({error}); copy or download the file again."
        ) from None


def _contents(file: Any) -> str:
    held = sorted(file)
    if any(key.startswith("episode_") for key in held):
        return "the file is laid out by episodes as Minari does; load it as minari:ID."
    return f"the file holds {', '.join(held[:12]) or 'nothing'}, D4RL's layout needs {', '.join(NEEDED)}."


def _metadata(file: Any) -> dict[str, Any]:
    """Attributes and ``metadata/`` scalars as JSON values; what cannot be read or is large is left out."""
    import h5py

    facts: dict[str, Any] = {}
    unreadable = (OSError, RuntimeError, KeyError, ValueError, TypeError)

    def keep(key: str, value: Any) -> None:
        with contextlib.suppress(*unreadable):
            facts[key] = json_value(value)

    with contextlib.suppress(*unreadable):
        for key in file.attrs:
            with contextlib.suppress(*unreadable):
                keep(key, file.attrs[key])
    with contextlib.suppress(*unreadable):
        if isinstance(group := file.get("metadata"), h5py.Group):
            for key, found in group.items():
                if isinstance(found, h5py.Dataset) and found.size is not None and found.size <= 64:
                    keep(f"metadata/{key}", found[()])
    with contextlib.suppress(*unreadable):
        goal = file.get(CONSTANT)
        if isinstance(goal, h5py.Dataset) and goal.ndim == 2 and len(goal) and _is_constant(goal):
            keep(CONSTANT, goal[0])
    return facts


def _is_constant(values: Any) -> bool:
    first, step = values[0], 65_536
    return all(bool(np.all(values[start : start + step] == first)) for start in range(0, len(values), step))
