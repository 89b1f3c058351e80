"""Datasets on disk that are opened without being read: NAME.shards.

NAME.shards/index.json     sizes, what the data is, facts about all rows, a checksum of each shard
NAME.shards/COLUMN.bin     a column of the Dataset, raw little-endian numbers, memory-mapped

A shard is 4,096 rows of one column. It is written, checked and repaired as a whole: whatever training reads goes
through ``Shards.read``, which compares each shard with its CRC-32. Sizes are compared when the folder is opened.
"""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.bounds import bounds_to_json, override_bounds
from vem.data.dataset import Dataset, RowBlock, info_from_json, with_bounds
from vem.data.facts import Facts
from vem.data.files import require_inside, user_path
from vem.errors import DataError, SettingsError
from vem.tasks import resolve_task

FORMAT = "vem-shards"
VERSION = 1
SUFFIX = ".shards"
SHARD_ROWS = 4096
DTYPES = {
    "observations": np.dtype("<f4"),
    "actions": np.dtype("<f4"),
    "rewards": np.dtype("<f4"),
    "valid": np.dtype("|b1"),
    "terminal": np.dtype("|b1"),
}
LARGEST_COUNT = 1 << 40
"""Rows, or numbers in a row, that an index may name."""
JOURNAL = "unfinished.jsonl"
"""What a conversion has written so far; it is gone when all is written."""

Report = Callable[[str, int, int], None]
"""Called with what is being done, how many rows are done, and how many there are."""


class Shards:
    """The files of a sharded Dataset; nothing but index.json is read before it is asked for."""

    def __init__(self, path: Path, index: dict[str, Any]) -> None:
        self.path = path
        self.num_rows = _count(index, "num_rows")
        self.sizes: dict[str, tuple[int, ...]] = {
            name: (_count(index, f"{name.removesuffix('s')}_size"),) if name in ("observations", "actions") else ()
            for name in DTYPES
        }
        self.fingerprint = str(index["fingerprint"])
        self.facts = Facts.from_json(index["facts"])
        self.info = info_from_json(index["info"])
        lengths = {len(self.facts.observation_mean), len(self.facts.observation_deviation)}
        if lengths != set(self.sizes["observations"]) or {
            len(self.info.action_low),
            len(self.info.action_high),
        } != set(self.sizes["actions"]):
            raise ValueError("its sizes contradict one another")
        num_shards = -(-self.num_rows // SHARD_ROWS)
        self._checksums = {name: _checksums(index["crc32"][name], num_shards) for name in DTYPES}

    def file(self, column: str) -> Path:
        """The file of a column."""
        return self.path / f"{column}.bin"

    def row_bytes(self, column: str) -> int:
        """Bytes of one row of a column."""
        return row_bytes(column, self.sizes[column])

    def require_files(self) -> None:
        """DataError unless every column's file is there and has the right size."""
        for name in DTYPES:
            file, expected = self.file(name), self.num_rows * self.row_bytes(name)
            require_inside(file, self.path)
            try:
                found = file.stat().st_size
            except OSError as error:
                reason = "are missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
                raise DataError(f"{file}: the shards of column '{name}' {self._remedy(reason)}") from None
            if found != expected:
                shard = min(found, expected) // (SHARD_ROWS * self.row_bytes(name))
                reason = f"end in shard {shard}: the file has {found:,} bytes and should have {expected:,}"
                raise DataError(f"{file}: the shards of column '{name}' {self._remedy(reason)}")

    def mapped(self, column: str) -> np.ndarray:
        """The column as a read-only memory map."""
        return np.memmap(self.file(column), DTYPES[column], "r", shape=(self.num_rows, *self.sizes[column]))

    def read(self, column: str, start: int, stop: int) -> np.ndarray:
        """The rows from ``start`` to ``stop``, read into memory of their own and checked.

        Reading instead of touching the memory map keeps the pages out of the process's resident memory.
        """
        first, row = start // SHARD_ROWS, self.row_bytes(column)
        begin, end = first * SHARD_ROWS, min(-(-stop // SHARD_ROWS) * SHARD_ROWS, self.num_rows)
        try:
            found = np.fromfile(self.file(column), np.uint8, (end - begin) * row, offset=begin * row)
        except OSError as error:
            raise DataError(f"{self.file(column)}: cannot be read ({error.strerror or error}).") from None
        for shard in range(first, -(-stop // SHARD_ROWS)):
            at = (shard - first) * SHARD_ROWS * row
            if zlib.crc32(found[at : at + SHARD_ROWS * row].data) != self._checksums[column][shard]:
                last = min((shard + 1) * SHARD_ROWS, self.num_rows)
                reason = f"(rows {shard * SHARD_ROWS:,} to {last - 1:,}) does not have its checksum: the file"
                raise DataError(
                    f"{self.file(column)}: shard {shard} of column '{column}' "
                    + self._remedy(f"{reason} was changed or is damaged")
                )
        values = found.view(DTYPES[column]).reshape(-1, *self.sizes[column])
        return values[start - begin : stop - begin]

    def verify(self, report: Report | None = None) -> None:
        """DataError at the first shard that does not have its checksum."""
        step = 16 * SHARD_ROWS
        for start in range(0, self.num_rows, step):
            stop = min(start + step, self.num_rows)
            for name in DTYPES:
                self.read(name, start, stop)
            if report:
                report("verify", stop, self.num_rows)

    def _remedy(self, problem: str) -> str:
        return f"{problem}; copy the folder again, or mend it with: vem data convert SOURCE {self.path}"


def row_bytes(column: str, size: tuple[int, ...]) -> int:
    """Bytes of one row of a column."""
    return DTYPES[column].itemsize * math.prod(size)


def read_index(path: Path) -> Shards:
    """The shards in a folder; DataError if they cannot be used."""
    file = path / "index.json"
    require_inside(file, path)
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
        if index.pop("checksum") != index_checksum(index):
            raise ValueError("its checksum differs")
        if (index.get("format"), index.get("version")) != (FORMAT, VERSION):
            raise DataError(f"{file}: format {index.get('format')} {index.get('version')} is not known to this vem.")
        return Shards(path, index)
    except FileNotFoundError:
        if (path / JOURNAL).exists():
            raise DataError(
                f"{path}: the conversion is not finished; go on with: vem data convert SOURCE {path}"
            ) from None
        problem = "has no index.json" if path.is_dir() else "does not exist"
        raise DataError(f"{path}: {problem}; make one with: vem data convert SOURCE {path}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DataError(f"{file}: is damaged ({error}); convert the data again.") from None


def _count(index: dict[str, Any], key: str) -> int:
    """A whole number from 1 to what an array may have."""
    value = index[key]
    if type(value) is not int or not 0 < value <= LARGEST_COUNT:
        raise ValueError(f"{key} is {str(value)[:40]}")
    return value


def _checksums(values: Any, count: int) -> np.ndarray:
    """The checksum of each shard of a column."""
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"crc32 does not hold {count} checksums")
    if not all(type(value) is int and 0 <= value < 1 << 32 for value in values):
        raise ValueError("crc32 holds what is no checksum")
    return np.asarray(values, np.uint32)


def index_checksum(index: dict[str, Any]) -> int:
    """CRC-32 of everything in index.json."""
    return zlib.crc32(json.dumps(index, sort_keys=True).encode())


def open_shards(path: str | Path, **rules: Any) -> Dataset:
    """The Dataset in a folder, its columns as memory maps; nothing is read but sizes.

    The reading rules were applied by the conversion, so ``rules`` may only repeat them; ``task``, ``environment`` and
    ``name`` may say what the data is, and ``action_bounds`` where the policy may act.
    """
    path = user_path(path)
    shards = read_index(path)
    shards.require_files()
    info = dataclasses.replace(shards.info, source=str(path))
    given = {name: rules.pop(name, None) for name in ("task", "environment", "name")}
    if (bounds := rules.pop("action_bounds", None)) is not None:
        size = shards.sizes["actions"][0]
        given_rule = {"action_bounds": bounds_to_json(bounds, size)}
        info = with_bounds(info, override_bounds(bounds, info.action_low, info.action_high, info.bounds_source))
        info = dataclasses.replace(info, rules={**info.rules, **given_rule})
    for name, value in rules.items():
        if value != info.rules.get(name):
            raise SettingsError(
                f"{path} was converted with {name} {info.rules.get(name, 'unset')} and {value!r} is asked for; convert "
                f"the source again with --{name.replace('_', '-')}, or leave the rule out"
            )
    if given["name"]:
        info = dataclasses.replace(info, name=given["name"])
    if given["task"] or given["environment"]:
        resolved = resolve_task(
            task=given["task"],
            environment=given["environment"],
            metadata=info.metadata,
            name=info.name,
            source=info.source,
            sizes=(shards.sizes["observations"][0], shards.sizes["actions"][0]),
        )
        info = dataclasses.replace(
            info,
            task=resolved.task.name if resolved.task else None,
            task_source=resolved.source,
            environment=resolved.environment,
        )
    return Dataset(*(shards.mapped(name) for name in RowBlock._fields), info=info, shards=shards)


def resident(dataset: Dataset) -> Dataset:
    """The dataset with all rows in memory: itself, or the rows of its shards, read and checked."""
    if dataset.shards is None:
        return dataset
    columns = {}
    for name in RowBlock._fields:
        columns[name] = np.empty(getattr(dataset, name).shape, DTYPES[name])
        start = 0
        for part in dataset.slices(name):
            columns[name][start : start + len(part)] = part
            start += len(part)
    return dataclasses.replace(dataset, **columns)
