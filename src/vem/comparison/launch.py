"""What is to be done with a cell, and doing it in this process."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from vem.comparison.grid import Cell, read_failure, record_failure, run_cell
from vem.comparison.remote import Mirror, working_copy
from vem.comparison.worker import STOPPED, CellProcess, explain_end, start_process
from vem.errors import VemError
from vem.evaluation.evaluate import evaluating
from vem.evaluation.results import read_evaluation
from vem.evaluation.workers import ONE_THREAD
from vem.errors import printable
from vem.training.machine import keep_programs
from vem.training.progress import stop_requests
from vem.training.run import Callback, Run


class Job(NamedTuple):
    """A cell, and how it is trained and evaluated."""

    cell: Cell
    num_episodes: int
    evaluate_every: float | None = None
    checkpoint_seconds: float = 60.0
    mirror: str | None = None
    """The address that holds the run, if its directory is a copy (``vem.comparison.remote``)."""

    def to_message(self) -> dict[str, Any]:
        """What the cell's process is told, as JSON values."""
        cell = self.cell
        return {
            "dataset": cell.dataset,
            "label": cell.label,
            "algorithm": cell.algorithm,
            "directory": str(cell.directory),
            "request": cell.request,
            "swept": cell.swept,
            "sha256": None if cell.data is None else cell.load().fingerprint(),
            "num_episodes": self.num_episodes,
            "evaluate_every": self.evaluate_every,
            "checkpoint_seconds": self.checkpoint_seconds,
            "mirror": self.mirror,
        }

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Job:
        """The job that a message describes; its dataset is read from its source."""
        cell = Cell(
            message["dataset"],
            message["label"],
            message["algorithm"],
            Path(message["directory"]),
            message["request"],
            message["swept"],
        )
        names = ("num_episodes", "evaluate_every", "checkpoint_seconds", "mirror")
        return cls(cell, *(message[name] for name in names))


def one_thread_variables() -> dict[str, str]:
    """Environment variables for a process with one thread, whose numbers do not depend on the machine's cores."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    return {**ONE_THREAD, "XLA_FLAGS": flags}


def run_here(
    job: Job, stream: TextIO | None, num_workers: int | None = None, sha256: str | None = None, log: Path | None = None
) -> bool:
    """Do what is left of a job in this process and return whether it succeeded; a failure is recorded, not raised.

    ``sha256`` is the fingerprint that the dataset must have. A mirrored job leaves ``log`` at its address too.
    """
    keep_programs()
    if job.mirror is None:
        return _run(job, stream, num_workers, sha256)
    say = _printer(stream)
    with working_copy(Mirror(job.mirror), job.cell, say, log) as (cell, push):
        return _run(job._replace(cell=cell), stream, num_workers, sha256, [push])


def _run(
    job: Job, stream: TextIO | None, num_workers: int | None, sha256: str | None, callbacks: Sequence[Callback] = ()
) -> bool:
    cell, say = job.cell, _printer(stream)

    def train(run: Run) -> None:
        run.seconds_per_checkpoint = job.checkpoint_seconds
        with evaluating(run, job.evaluate_every) as evaluations:
            run.train([*evaluations, *callbacks], progress=False if stream is None else stream)
        say(f"{cell.name}: evaluating {job.num_episodes} episodes of each policy")

    if sha256 is not None and cell.load().fingerprint() != sha256:
        text = "the dataset in hand has other rows than its file; compare it with one job, or save it to a file"
        record_failure(cell, text)
        say(text)
        return False
    try:
        run_cell(cell, job.num_episodes, num_workers, train)
    except VemError as error:
        say(f"{cell.name}: failed: {error}")
        return False
    say(f"{cell.name}: done")
    return True


def _printer(stream: TextIO | None) -> Callable[[str], None]:
    def say(text: str) -> None:
        if stream is not None:
            print(text, file=stream, flush=True)

    return say


# The progress of all running cells in one view: a live table on a terminal, lines elsewhere.


SECONDS_PER_LOOK = 2.0
SECONDS_PER_LINE = 30.0
SECONDS_PER_PULL = 10.0
BAR = 20
"""Letters of a bar."""


class CellProgress(NamedTuple):
    """How far a cell is."""

    steps: int
    num_steps: int
    score: float | None
    """Mean over seeds of the newest evaluation: the score, or the return where there are no references."""

    @property
    def text(self) -> str:
        """Steps done, and the score if there is one."""
        score = "" if self.score is None else f"  score {self.score:.1f}"
        return f"{self.steps:,} / {self.num_steps:,} steps{score}"

    @property
    def bar(self) -> str:
        """The share that is done."""
        done = BAR * self.steps // max(1, self.num_steps)
        return "━" * done + " " * (BAR - done)


def read_progress(cell: Cell) -> CellProgress | None:
    """How far the cell is, or None if its run was not begun."""
    files = cell.files
    with suppress(VemError):  # another process may be writing
        if files.is_run:
            line, evaluation = files.newest_metrics(), read_evaluation(files)
            spread = evaluation and (evaluation.score or evaluation.returns)
            return CellProgress(line.steps if line else 0, files.config.steps, spread.mean if spread else None)
    return None


class View:
    """What is shown while cells run. Without a stream, nothing is."""

    def __init__(self, stream: TextIO | None, total: int, mirror: Mirror | None = None) -> None:
        self.stream, self.total, self.mirror = stream, total, mirror
        self._live: Any = None
        self._shown: dict[str, str] = {}
        self._looked = self._lined = self._pulled = time.monotonic()

    def say(self, text: str) -> None:
        """Print one line."""
        if self.stream is None:
            return
        if self._live is not None:
            self._live.console.print(printable(text), markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)

    def refresh(self, cell: Cell) -> None:
        """Bring all records of a cell that ended, if its run is at an address."""
        if self.mirror is not None:
            try:
                self.mirror.pull_records(cell)
            except VemError as error:
                self.say(str(error))

    def update(self, cells: Sequence[Cell]) -> None:
        """Show how far the open cells are, if it is time to look again."""
        now = time.monotonic()
        if self.stream is None or now - self._looked < SECONDS_PER_LOOK:
            return
        self._looked = now
        if self._live is None and now - self._lined < SECONDS_PER_LINE:
            return
        if self.mirror is not None and now - self._pulled >= SECONDS_PER_PULL:
            self._pulled = now
            for cell in cells:
                with suppress(VemError):
                    self.mirror.pull_progress(cell)
        found = {cell.name: read_progress(cell) for cell in cells}
        if self._live is not None:
            self._live.update(self._table(found))
            return
        self._lined = now
        for name, progress in found.items():
            if progress is not None and self._shown.get(name) != progress.text:
                self._shown[name] = progress.text
                self.say(f"{name}: {progress.text}")

    def _table(self, found: dict[str, CellProgress | None]) -> Any:
        """A line about all cells, then a row for each that was begun: what does not fit on the terminal is cut off."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        begun = {name: progress for name, progress in found.items() if progress is not None}
        table = Table(box=None, padding=(0, 1), show_header=False)
        for name, progress in begun.items():
            table.add_row(*map(Text, (printable(name), progress.bar, progress.text)))
        waiting = len(found) - len(begun)
        return Group(Text(f"{len(found)} of {self.total} cells are open, {waiting} of them not begun"), table)


@contextmanager
def showing(view: View) -> Iterator[View]:
    """The view with a live table, if its stream is a terminal."""
    if view.stream is None or not view.stream.isatty():
        yield view
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=view.stream), refresh_per_second=2, transient=True) as live:
        view._live = live
        try:
            yield view
        finally:
            view._live = None


# Cells in processes of their own on this machine, each with a share of the cores.


POLL_SECONDS = 0.2


class _Running(NamedTuple):
    cell: Cell
    process: CellProcess
    started: float


def run_jobs(jobs: Sequence[Job], view: View, num_jobs: int) -> bool:
    """Run the jobs, ``num_jobs`` at a time; True if a signal stopped them (after saving).

    A job that fails leaves its failure beside its run, and the others go on.
    """
    waiting, total = deque(jobs), len(jobs)
    slots: list[_Running | None] = [None] * min(num_jobs, total)
    cores = share_cores(available_cores(), len(slots))
    with stop_requests() as requests:
        try:
            while any(slots) or (waiting and not requests):
                for index, running in enumerate(slots):
                    if running is not None and (code := running.process.process.poll()) is not None:
                        running.process.close()
                        finish_cell(running.cell, code, time.monotonic() - running.started, bool(requests), view)
                        slots[index] = running = None
                    if running is None and waiting and not requests:
                        job = waiting.popleft()
                        cell = job.cell
                        view.say(f"{cell.name}: started ({total - len(waiting)} of {total}); log: {cell.log_path}")
                        slots[index] = _start(job, cores[index])
                    elif running is not None and requests:
                        running.process.ask_to_stop()
                view.update([running.cell for running in slots if running is not None])
                time.sleep(POLL_SECONDS)
        finally:
            for running in filter(None, slots):
                running.process.kill()
    return bool(requests)


def finish_cell(cell: Cell, code: int, seconds: float, is_stopping: bool, view: View, why: str | None = None) -> None:
    """Say how a cell's process ended, and record a failure that it could not record itself; ``why`` says more."""
    view.refresh(cell)
    if code == 0:
        view.say(f"{cell.name}: done in {seconds:.0f} s")
    elif code == STOPPED or is_stopping:
        view.say(f"{cell.name}: stopped and saved")
    else:
        if read_failure(cell) is None:
            record_failure(cell, why or f"{explain_end(code, 'its process')}; see {cell.log_path}")
        view.say(f"{cell.name}: failed after {seconds:.0f} s: {read_failure(cell)}")


def share_cores(cores: Sequence[int], num_jobs: int) -> list[list[int]]:
    """The cores of each job: equal shares, or one core in turn where there are more jobs than cores."""
    count = len(cores)
    if num_jobs >= count:
        return [[cores[index % count]] for index in range(num_jobs)]
    return [list(cores[index * count // num_jobs : (index + 1) * count // num_jobs]) for index in range(num_jobs)]


def available_cores() -> list[int]:
    """Numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _start(job: Job, cores: Sequence[int]) -> _Running:
    log = job.cell.log_path
    message = {**job.to_message(), "cores": list(cores), "log": str(log), "lock_seconds": 0.0}
    process = start_process(message, log, {**os.environ, **one_thread_variables()})
    return _Running(job.cell, process, time.monotonic())
