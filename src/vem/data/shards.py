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
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vem.data.actions import Bounds, bounds_to_json, override_bounds
from vem.data.arrays import complete_info, located
from vem.data.dataset import DataInfo, Dataset, Facts, RowBlock, facts_of, fingerprint, info_from_json, with_bounds
from vem.data.files import json_value, require_inside, user_path
from vem.errors import DataError, SettingsError
from vem.storage import replace_file
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
        index = _stored_index(file)
        if "facts" not in index:
            raise DataError(f"{path}: the conversion is not finished; go on with: vem data convert SOURCE {path}")
        return Shards(path, index)
    except (FileNotFoundError, NotADirectoryError):
        problem = "has no index.json" if path.is_dir() else "is a file" if path.exists() else "does not exist"
        raise DataError(
            f"{path}: {problem}; shards are a folder that vem data convert SOURCE NAME{SUFFIX} writes."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DataError(f"{file}: is damaged ({error}); convert the data again.") from None


def _stored_index(file: Path) -> dict[str, Any]:
    """What index.json holds; it raises what damaged JSON makes of it."""
    index = json.loads(file.read_text(encoding="utf-8"))
    if index.pop("checksum") != index_checksum(index):
        raise ValueError("its checksum differs")
    if (index["format"], index["version"]) != (FORMAT, VERSION):
        raise DataError(f"{file}: format {index['format']} {index['version']} is not known to this vem.")
    return index


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


# Rows → shards: written once, in order; what is finished survives whatever happens and is not written again.


FLUSH_ROWS = 64 * SHARD_ROWS
"""Rows that are written and synced together."""


def write_shards(
    out: str | Path,
    blocks: Callable[[int], Iterable[RowBlock]],
    info: DataInfo,
    *,
    observation_size: int,
    action_size: int,
    num_rows: int | None = None,
    action_bounds: tuple[Any, Any] | None = None,
    known: Bounds | None = None,
    key: dict[str, Any] | None = None,
    report: Report | None = None,
) -> Path:
    """Write the folder ``out`` (NAME.shards) and return its path.

    ``blocks(first)`` gives the rows from row ``first`` on, in blocks of any size, in the form that ``Dataset``
    describes; ``num_rows`` is how many there are in all, where that is known. ``key`` says what they are read from:
    an unfinished folder with the same key is gone on with after its finished shards are checked, a finished one from
    its first damaged shard on. Without ``action_bounds`` they are ``known`` or follow from the data, as in
    ``from_arrays``.
    """
    path = user_path(out)
    if path.suffix != SUFFIX:
        raise DataError(f"{path}: shards are a folder NAME{SUFFIX}; write to {path.with_suffix(SUFFIX)}.")
    sizes: dict[str, tuple[int, ...]] = {"observations": (observation_size,), "actions": (action_size,)}
    try:
        with _Writer(path, {name: sizes.get(name, ()) for name in DTYPES}, json_value(key or {})) as writer:
            if num_rows is not None:
                writer.require_space(num_rows)
            for block in _regular(blocks(writer.num_rows)):
                writer.write(block)
                if report:
                    report("write", writer.num_rows, num_rows or writer.num_rows)
            writer.finish(info, action_bounds, known, report)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror or error}). The finished shards are kept: make room, or "
            "change the permissions, and run the same command again."
        ) from None
    return path


class _Writer:
    """The files of a folder that is being written; index.json names the finished shards from the first to the last."""

    def __init__(self, path: Path, sizes: dict[str, tuple[int, ...]], key: dict[str, Any]) -> None:
        self.path = path
        self.sizes = sizes
        self.header = {
            "format": FORMAT,
            "version": VERSION,
            "key": key,
            "observation_size": sizes["observations"][0],
            "action_size": sizes["actions"][0],
        }
        self.checksums: dict[str, list[int]] = {name: [] for name in DTYPES}
        self.num_rows = 0
        self._close = ExitStack()
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> _Writer:
        with ExitStack() as opened:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in ("index.json", *(f"{name}.bin" for name in DTYPES)):
                require_inside(self.path / name, self.path)
            noted = self._noted()
            count = self._count_sound(noted)
            self.checksums = {name: noted[name][:count] for name in DTYPES}
            self.num_rows = count * SHARD_ROWS
            # From here on the folder is unfinished, also if it was complete and is being mended.
            self._write_index({})
            for name in DTYPES:
                file = self.path / f"{name}.bin"
                file.touch()
                self._files[name] = opened.enter_context(file.open("r+b", buffering=0))
                self._files[name].truncate(self.num_rows * row_bytes(name, self.sizes[name]))
                self._files[name].seek(0, os.SEEK_END)
            self._close = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._close.close()

    def _noted(self) -> dict[str, list[int]]:
        """The checksums of the shards that the folder's index names."""
        file = self.path / "index.json"
        try:
            index = _stored_index(file) if file.exists() else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            index = None
        if index is None:
            if any(self.path.iterdir()):
                raise DataError(
                    f"{self.path}: the folder is not empty and holds no readable shards; choose another name."
                )
            return self.checksums
        if any(index.get(name) != value for name, value in self.header.items()):
            raise DataError(
                f"{self.path}: was begun from another source, or with other rules; choose another name, or remove it."
            )
        return index["crc32"]

    def _count_sound(self, noted: dict[str, list[int]]) -> int:
        """How many whole shards at the beginning are as they should be."""
        for number, checksums in enumerate(zip(*(noted[name] for name in DTYPES), strict=False)):
            for name, checksum in zip(DTYPES, checksums, strict=True):
                count = SHARD_ROWS * row_bytes(name, self.sizes[name])
                file = self.path / f"{name}.bin"
                found = np.fromfile(file, np.uint8, count, offset=number * count) if file.exists() else np.empty(0)
                if len(found) != count or zlib.crc32(found.data) != checksum:
                    return number
        return len(noted["valid"])

    def _write_index(self, more: dict[str, Any]) -> None:
        index = json.loads(json.dumps({**self.header, "num_rows": self.num_rows, "crc32": self.checksums, **more}))
        content = json.dumps({**index, "checksum": index_checksum(index)}) + "\n"
        replace_file(self.path / "index.json", content.encode())

    def require_space(self, num_rows: int) -> None:
        """DataError unless the disk has room for the rows that are left."""
        row = sum(row_bytes(name, size) for name, size in self.sizes.items())
        needed, free = (num_rows - self.num_rows) * row, shutil.disk_usage(self.path).free
        if needed > free:
            raise DataError(
                f"{self.path}: {needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are free on the disk; make "
                "room or choose another place."
            )

    def write(self, block: RowBlock) -> None:
        """Add rows, and note them when they are on the disk. All blocks but the last hold whole shards."""
        for name, values in block._asdict().items():
            raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
            _write_all(self._files[name], raw.data)
            step = SHARD_ROWS * row_bytes(name, self.sizes[name])
            self.checksums[name] += [zlib.crc32(raw[at : at + step].data) for at in range(0, len(raw), step)]
        for file in self._files.values():
            os.fsync(file.fileno())
        self.num_rows += len(block.valid)
        self._write_index({})

    def finish(
        self, info: DataInfo, action_bounds: tuple[Any, Any] | None, known: Bounds | None, report: Report | None
    ) -> None:
        """Check all rows, gather the facts about them, and write the whole index: the folder is complete."""
        with located(str(self.path)):
            if self.num_rows == 0:
                raise DataError("there is no row to write.")
            if report:
                report("check", 0, self.num_rows)
            columns = RowBlock(
                **{
                    name: np.memmap(self.path / f"{name}.bin", dtype, "r", shape=(self.num_rows, *self.sizes[name]))
                    for name, dtype in DTYPES.items()
                }
            )
            dataset = Dataset(*columns, info=info)
            info = complete_info(info, columns.actions, columns.rewards, columns.valid, action_bounds, known)
            self._write_index(
                {
                    "fingerprint": fingerprint(dataset),
                    "info": json_value(dataclasses.asdict(info)),
                    "facts": facts_of(dataset).to_json(),
                }
            )
            if report:
                report("check", self.num_rows, self.num_rows)


def _regular(blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
    """The same rows in blocks of ``FLUSH_ROWS``, the last as long as it is."""
    held: list[RowBlock] = []
    count = 0
    for block in blocks:
        held.append(RowBlock(*(np.asarray(values, DTYPES[name]) for name, values in block._asdict().items())))
        count += len(block.valid)
        if count >= FLUSH_ROWS:
            joined = _join(held)
            whole = count - count % FLUSH_ROWS
            for start in range(0, whole, FLUSH_ROWS):
                yield RowBlock(*(values[start : start + FLUSH_ROWS] for values in joined))
            held, count = [RowBlock(*(values[whole:] for values in joined))], count - whole
    if count:
        yield _join(held)


def _join(blocks: list[RowBlock]) -> RowBlock:
    return blocks[0] if len(blocks) == 1 else RowBlock(*map(np.concatenate, zip(*blocks, strict=True)))


def _write_all(file: BinaryIO, content: memoryview) -> None:
    """Write everything: an unbuffered file may take less at a time."""
    while content:
        content = content[file.write(content) :]
