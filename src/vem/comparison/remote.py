"""Run directories at an fsspec address (``s3://bucket/study``): work is done in a local copy that is pushed and pulled.

A run's process pulls its run before it begins, and pushes what is new after each checkpoint and at the end. The
command that started it has a copy of its own, without checkpoints, below ``runs/remote``. There is no lock: two
processes that do the same run write the same bits.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vem.comparison.job import Job
from vem.errors import RunError
from vem.training.run import Callback, Run

SECONDS_PER_PUSH = 10.0
"""How often metrics are pushed between checkpoints."""
PROGRESS_FILES = ("config.json", "metrics.jsonl", "evaluation.json")


def is_address(out: str | Path) -> bool:
    """Whether ``out`` names an fsspec filesystem rather than a folder."""
    return "://" in str(out)


def copy_place(address: str) -> Path:
    """Where the command that started the runs has its copy."""
    name = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in address)
    return Path("runs", "remote", name)


class Remote:
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

    def pull(self, job: Job, wanted: Callable[[str], bool] = lambda file: True) -> None:
        """Make the run's directory what is at the address, of the files whose relative names are wanted.

        A run whose config.json is not there was never begun.
        """
        shutil.rmtree(job.directory, ignore_errors=True)
        job.failure_path.unlink(missing_ok=True)
        found = self._names(job)
        files = filter(wanted, found) if "config.json" in found else []
        self._get(_place(job), files, job.directory)
        failure = f"{_place(job)}.failed.json"
        if self._try("read", lambda: self._files.exists(f"{self._root}/{failure}")):
            self._get(job.dataset, [job.failure_path.name], job.failure_path.parent)

    def pull_records(self, job: Job) -> None:
        """Bring all of a run but its checkpoints, which only training needs."""
        self.pull(job, lambda file: not file.startswith("checkpoints/"))

    def pull_progress(self, job: Job) -> None:
        """Bring what shows the run's progress; what is not there yet stays as it is."""
        self._get(_place(job), set(PROGRESS_FILES) & set(self._names(job)), job.directory)

    def put(self, local: Path, files: Iterable[str], name: str) -> None:
        """Push files of a local folder to the folder ``name``."""
        here = [local / file for file in files]
        there = [f"{self._root}/{name}/{path.relative_to(local).as_posix()}" for path in here]

        def write() -> None:
            for folder in {path.rpartition("/")[0] for path in there}:
                self._files.makedirs(folder, exist_ok=True)
            self._files.put(list(map(str, here)), there)

        if here:
            self._try("write to", write)

    def put_folder(self, local: Path, name: str) -> None:
        """Push all files below a folder."""
        self._try("write to", lambda: self._files.put(f"{local}/", f"{self._root}/{name}/", recursive=True))

    def remove(self, names: Iterable[str]) -> None:
        """Remove the files of these names that are there."""

        def remove() -> None:
            for path in [f"{self._root}/{name}" for name in names]:
                if self._files.exists(path):
                    self._files.rm_file(path)

        self._try("write to", remove)

    def _names(self, job: Job) -> list[str]:
        """The names of a run's files, relative to its directory."""
        top = f"{self._root}/{_place(job)}/"
        self._try("read", self._files.invalidate_cache)
        found = self._try("read", lambda: self._files.find(top) if self._files.exists(top) else [])
        return sorted(path[len(top) :] for path in found if path.startswith(top))

    def _get(self, name: str, files: Iterable[str], local: Path) -> None:
        files = list(files)
        there, here = [f"{self._root}/{name}/{file}" for file in files], [local / file for file in files]
        for folder in {path.parent for path in here}:
            folder.mkdir(parents=True, exist_ok=True)
        if files:
            self._try("read", lambda: self._files.get(there, list(map(str, here))))

    def _try(self, verb: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:
            # Each filesystem has errors of its own.
            text = " ".join(str(error).split()) or type(error).__name__
            raise RunError(f"cannot {verb} {self.address}: {text}") from None


@contextmanager
def working_copy(job: Job, say: Callable[[str], None], log: Path | None = None) -> Iterator[tuple[Job, Callback]]:
    """The job in a temporary copy of its run, and a callback of training that pushes it; pushed again at the end."""
    assert job.remote is not None
    remote = Remote(job.remote)
    with tempfile.TemporaryDirectory(prefix="vem-") as place:
        copy = job.at(Path(place) / job.dataset / job.directory.name)
        remote.pull(copy)
        known, pushed = _stamps(copy.directory), time.monotonic()

        def push_changes() -> None:
            nonlocal known
            stamps = _stamps(copy.directory)
            changed = sorted(file for file, stamp in stamps.items() if known.get(file) != stamp)
            # Policies and checkpoints first: the records at the top say that they are there.
            for is_top in (False, True):
                remote.put(copy.directory, [file for file in changed if ("/" not in file) == is_top], _place(copy))
            remote.remove(f"{_place(copy)}/{file}" for file in known if file not in stamps)
            known = stamps

        def push(run: Run, _: Any) -> None:
            nonlocal pushed
            is_due = time.monotonic() - pushed >= SECONDS_PER_PUSH
            checkpoints = {f"checkpoints/{path.name}" for path in copy.files.checkpoints.glob("[0-9]*")}
            if is_due or checkpoints - known.keys():
                pushed = time.monotonic()
                try:
                    push_changes()
                except RunError as error:  # the next push may succeed; training need not end for it
                    say(str(error))

        try:
            yield copy, push
        finally:
            push_changes()
            if copy.failure_path.exists():
                remote.put(copy.failure_path.parent, [copy.failure_path.name], copy.dataset)
            else:
                remote.remove([f"{_place(copy)}.failed.json"])
            if log is not None and log.exists():
                shutil.copyfile(log, copy.log_path)
                remote.put(copy.log_path.parent, [copy.log_path.name], copy.dataset)


def _stamps(top: Path) -> dict[str, tuple[int, int]]:
    """Relative name → time and size of each file of the run that is complete."""
    stamps = {}
    for path in top.rglob("*"):
        if not path.name.startswith(".") and path.is_file():
            facts = path.stat()
            stamps[path.relative_to(top).as_posix()] = (facts.st_mtime_ns, facts.st_size)
    return stamps


def _place(job: Job) -> str:
    return f"{job.dataset}/{job.directory.name}"
