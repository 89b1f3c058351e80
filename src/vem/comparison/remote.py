"""Run directories at an fsspec address (``s3://bucket/study``): work is done in a local copy that is pushed and pulled.

A cell's process pulls its run before it begins, and pushes what is new after each checkpoint and at the end. The
command that started it has a copy of its own, without checkpoints, below ``runs/mirror``. There is no lock: two
processes that do the same cell write the same bits.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vem.comparison.grid import Cell
from vem.errors import RunError
from vem.training.run import Callback, Run

SECONDS_PER_PUSH = 10.0
"""How often metrics are pushed between checkpoints."""
PROGRESS_FILES = ("config.json", "metrics.jsonl", "evaluation.json")
PARTIAL = ".part"


def is_address(out: str | Path) -> bool:
    """Whether ``out`` names an fsspec filesystem rather than a folder."""
    return "://" in str(out)


def copy_place(address: str) -> Path:
    """Where the command that started the cells has its copy."""
    name = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in address)
    return Path("runs", "mirror", name)


class Mirror:
    """The files below an fsspec address. All of its errors are RunErrors that name the address."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        if self.address.startswith("memory://"):
            raise RunError(f"{address} is the memory of one process; give an address that all nodes can read and write")
        try:
            core = importlib.import_module("fsspec.core")
        except ImportError:
            raise RunError(f"{address} needs fsspec: pip install 'vem[ray]', or give a folder") from None
        self._files, self._root = self._try("open", lambda: core.url_to_fs(self.address))

    def check(self) -> None:
        """RunError if nothing can be written below the address."""
        probe = f"{self._root}/.probe-{uuid.uuid4().hex}"

        def write() -> None:
            self._files.makedirs(self._root, exist_ok=True)
            self._files.pipe_file(probe, b"")
            self._files.rm_file(probe)

        self._try("write to", write)

    def pull(self, cell: Cell, wanted: Callable[[str], bool]) -> None:
        """Make the cell's directory what is at the address, of the files whose relative names are wanted.

        A run whose config.json is not there was never begun.
        """
        name, directory = _name(cell), cell.directory
        found = self._try("read", lambda: self._relative(name))
        if "config.json" not in found:
            found = []
        shutil.rmtree(directory, ignore_errors=True)
        for file in filter(wanted, found):
            self._get(f"{name}/{file}", directory / file)
        failed = cell.failure_path
        failed.unlink(missing_ok=True)
        if self._try("read", lambda: self._files.exists(f"{self._root}/{name}.failed.json")):
            self._get(f"{name}.failed.json", failed)

    def pull_records(self, cell: Cell) -> None:
        """Bring all of a run but its checkpoints, which only training needs."""
        self.pull(cell, lambda file: not file.startswith("checkpoints/"))

    def pull_progress(self, cell: Cell) -> None:
        """Bring what shows the cell's progress; what is not there yet stays as it is."""
        name = _name(cell)
        found = self._try("read", lambda: self._relative(name))
        for file in PROGRESS_FILES:
            if file in found:
                self._get(f"{name}/{file}", cell.directory / file)

    def put(self, local: Path, name: str) -> None:
        """Push one file: complete or absent."""
        target = f"{self._root}/{name}"
        partial = f"{target}.{uuid.uuid4().hex}{PARTIAL}"

        def write() -> None:
            self._files.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            self._files.put_file(str(local), partial)
            self._files.mv(partial, target)

        self._try("write to", write)

    def put_folder(self, local: Path, name: str) -> str:
        """Push all files below a folder, and return its address."""
        for path in sorted(local.rglob("*")):
            if path.is_file():
                self.put(path, f"{name}/{path.relative_to(local).as_posix()}")
        return f"{self.address}/{name}"

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

        def remove() -> None:
            if self._files.exists(f"{self._root}/{name}"):
                self._files.rm_file(f"{self._root}/{name}")

        self._try("write to", remove)

    def _relative(self, name: str) -> list[str]:
        top = f"{self._root}/{name}/"
        self._files.invalidate_cache()
        found = self._files.find(top) if self._files.exists(top) else []
        return sorted(path[len(top) :] for path in found if path.startswith(top) and not path.endswith(PARTIAL))

    def _get(self, name: str, local: Path) -> None:
        local.parent.mkdir(parents=True, exist_ok=True)
        self._try("read", lambda: self._files.get_file(f"{self._root}/{name}", str(local)))

    def _try(self, verb: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:
            # Each filesystem has errors of its own.
            text = " ".join(str(error).split()) or type(error).__name__
            raise RunError(f"cannot {verb} {self.address}: {text}") from None


@contextmanager
def working_copy(
    mirror: Mirror, cell: Cell, say: Callable[[str], None], log: Path | None = None
) -> Iterator[tuple[Cell, Callback]]:
    """The cell in a temporary copy of its run, and a callback of training that pushes it; pushed again at the end."""
    with tempfile.TemporaryDirectory(prefix="vem-") as place:
        copy = cell.at(Path(place) / cell.dataset / cell.directory.name)
        mirror.pull(copy, lambda file: True)
        pushing = _Pushing(mirror, copy)
        pushed = time.monotonic()

        def push(run: Run, _: Any) -> None:
            nonlocal pushed
            is_due = time.monotonic() - pushed >= SECONDS_PER_PUSH
            if not (is_due or pushing.has_new_checkpoint):
                return
            pushed = time.monotonic()
            try:
                pushing()
            except RunError as error:  # the next push may succeed; training need not end for it
                say(str(error))

        try:
            yield copy, push
        finally:
            pushing()
            if log is not None and log.exists():
                mirror.put(log, f"{_name(cell)}.log")


class _Pushing:
    """Pushes the files of a run that changed since the last time."""

    def __init__(self, mirror: Mirror, cell: Cell) -> None:
        self.mirror, self.cell = mirror, cell
        self.pushed: dict[str, tuple[int, int]] = self._stamps()

    @property
    def has_new_checkpoint(self) -> bool:
        files = self.cell.files.checkpoints.glob("[0-9]*")
        return any(f"checkpoints/{path.name}" not in self.pushed for path in files)

    def __call__(self) -> None:
        name, directory = _name(self.cell), self.cell.directory
        stamps = self._stamps()
        # config.json first: without it there is no run; the records last: they tell that the rest is there.
        for file in sorted(stamps, key=lambda file: (file != "config.json", "/" not in file, file)):
            if self.pushed.get(file) != stamps[file]:
                self.mirror.put(directory / file, f"{name}/{file}")
                self.pushed[file] = stamps[file]
        for file in [file for file in self.pushed if file not in stamps]:
            self.mirror.remove(f"{name}/{file}")
            del self.pushed[file]
        if self.cell.failure_path.exists():
            self.mirror.put(self.cell.failure_path, f"{name}.failed.json")
        else:
            self.mirror.remove(f"{name}.failed.json")

    def _stamps(self) -> dict[str, tuple[int, int]]:
        """Relative name → time and size of each file of the run that is complete."""
        top, stamps = self.cell.directory, {}
        for path in top.rglob("*"):
            if not path.name.startswith(".") and path.is_file():
                facts = path.stat()
                stamps[path.relative_to(top).as_posix()] = (facts.st_mtime_ns, facts.st_size)
        return stamps


def _name(cell: Cell) -> str:
    return f"{cell.dataset}/{cell.directory.name}"
