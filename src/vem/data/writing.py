"""Rows → shards: written once, in order; what is finished survives whatever happens and is not written again."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vem.data.arrays import complete_info
from vem.data.bounds import Bounds
from vem.data.checks import FiniteCheck, located
from vem.data.dataset import DataInfo, Dataset, RowBlock, fingerprint
from vem.data.facts import facts_of
from vem.data.files import json_value, require_inside, user_path
from vem.data.shards import (
    DTYPES,
    FORMAT,
    JOURNAL,
    SHARD_ROWS,
    SUFFIX,
    VERSION,
    Report,
    index_checksum,
    row_bytes,
)
from vem.errors import DataError
from vem.storage import replace_file

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
    header = {
        "format": FORMAT,
        "version": VERSION,
        "key": json_value(key or {}),
        "sizes": [observation_size, action_size],
    }
    try:
        with _Writer(path, {name: sizes.get(name, ()) for name in DTYPES}, header) as writer:
            if num_rows is not None:
                writer.require_space(num_rows)
            for block in _regular(blocks(writer.num_rows), writer.num_rows):
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
    """The files of a folder that is being written."""

    def __init__(self, path: Path, sizes: dict[str, tuple[int, ...]], header: dict[str, Any]) -> None:
        self.path = path
        self.sizes = sizes
        self.header = header
        self.checksums: list[list[int]] = []
        self.num_rows = 0
        self._close = ExitStack()
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> _Writer:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in (JOURNAL, "index.json", *(f"{name}.bin" for name in DTYPES)):
                require_inside(self.path / name, self.path)
            self.checksums = self._finished()
            self.num_rows = len(self.checksums) * SHARD_ROWS
            lines = [self.header, *self.checksums]
            # From here on the folder is unfinished, also if it was complete and is being mended.
            replace_file(self.path / JOURNAL, "".join(json.dumps(line) + "\n" for line in lines).encode())
            (self.path / "index.json").unlink(missing_ok=True)
            self._journal = self._close.enter_context((self.path / JOURNAL).open("a", encoding="utf-8"))
            for name in DTYPES:
                file = self.path / f"{name}.bin"
                file.touch()
                self._files[name] = self._close.enter_context(file.open("r+b", buffering=0))
                self._files[name].truncate(self.num_rows * row_bytes(name, self.sizes[name]))
                self._files[name].seek(0, os.SEEK_END)
        except BaseException:
            self._close.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close.close()

    def _finished(self) -> list[list[int]]:
        """The checksums of the whole shards at the beginning that are as they should be."""
        noted = self._noted()
        for number, checksums in enumerate(noted):
            for name, checksum in zip(DTYPES, checksums, strict=True):
                count = SHARD_ROWS * row_bytes(name, self.sizes[name])
                file = self.path / f"{name}.bin"
                found = np.fromfile(file, np.uint8, count, offset=number * count) if file.exists() else np.empty(0)
                if len(found) != count or zlib.crc32(found.data) != checksum:
                    return noted[:number]
        return noted

    def _noted(self) -> list[list[int]]:
        """The checksums of whole shards that the folder's journal, or else its index, names."""
        journal, index = self.path / JOURNAL, self.path / "index.json"
        try:
            if journal.exists():
                lines = journal.read_text(encoding="utf-8").splitlines()
                header, *checksums = [*map(_parse, lines)] or [None]
            elif index.exists():
                stored = json.loads(index.read_text(encoding="utf-8"))
                header = {**{name: stored[name] for name in ("format", "version", "key")}}
                header["sizes"] = [stored["observation_size"], stored["action_size"]]
                checksums = [list(shard) for shard in zip(*(stored["crc32"][name] for name in DTYPES), strict=True)]
                checksums = checksums[: stored["num_rows"] // SHARD_ROWS]
            else:
                header, checksums = None, []
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            header, checksums = None, []
        if header is None and any(self.path.iterdir()):
            raise DataError(f"{self.path}: the folder is not empty and holds no readable shards; choose another name.")
        if header not in (None, self.header):
            raise DataError(
                f"{self.path}: was begun from another source, or with other rules; choose another name, or remove it."
            )
        # A line that was cut short ends what is known.
        broken = next((i for i, line in enumerate(checksums) if not _is_line(line)), len(checksums))
        return checksums[:broken]

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
        checksums = []
        for name, values in block._asdict().items():
            raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
            _write_all(self._files[name], raw.data)
            step = SHARD_ROWS * row_bytes(name, self.sizes[name])
            checksums.append([zlib.crc32(raw[at : at + step].data) for at in range(0, len(raw), step)])
        for file in self._files.values():
            os.fsync(file.fileno())
        noted = [list(shard) for shard in zip(*checksums, strict=True)]
        self.checksums += noted
        self.num_rows += len(block.valid)
        # A last shard that is not full is not noted: a resumed conversion writes it again.
        self._journal.writelines(json.dumps(line) + "\n" for line in noted[: len(block.valid) // SHARD_ROWS])
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def finish(
        self, info: DataInfo, action_bounds: tuple[Any, Any] | None, known: Bounds | None, report: Report | None
    ) -> None:
        """Check all rows, gather the facts about them, and write index.json: the folder is complete."""
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
            index = {
                "format": FORMAT,
                "version": VERSION,
                "num_rows": self.num_rows,
                "observation_size": dataset.observation_size,
                "action_size": dataset.action_size,
                "fingerprint": fingerprint(dataset),
                "key": self.header["key"],
                "info": json_value(dataclasses.asdict(info)),
                "facts": facts_of(dataset).to_json(),
                "crc32": {
                    name: list(values) for name, values in zip(DTYPES, zip(*self.checksums, strict=True), strict=True)
                },
            }
            index = json.loads(json.dumps(index))
            replace_file(
                self.path / "index.json", (json.dumps({**index, "checksum": index_checksum(index)}) + "\n").encode()
            )
            self._close.close()
            (self.path / JOURNAL).unlink()
            if report:
                report("check", self.num_rows, self.num_rows)


def _regular(blocks: Iterable[RowBlock], first: int) -> Iterator[RowBlock]:
    """The same rows in blocks of ``FLUSH_ROWS``, checked, the last as long as it is."""
    checks = {name: FiniteCheck(name) for name in ("observations", "actions", "rewards")}
    held: list[RowBlock] = []
    count = 0
    for block in blocks:
        block = RowBlock(*(np.asarray(values, DTYPES[name]) for name, values in block._asdict().items()))
        for name, check in checks.items():
            check.see(first, getattr(block, name))
            check.finish()
        first += len(block.valid)
        held.append(block)
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


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_line(line: Any) -> bool:
    return isinstance(line, list) and len(line) == len(DTYPES) and all(isinstance(value, int) for value in line)
