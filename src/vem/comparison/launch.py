"""Doing jobs, in this process or in others on this machine, and showing how far they are."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from vem.comparison.job import Job
from vem.comparison.remote import Remote, working_copy
from vem.comparison.worker import STOPPED, RunProcess, explain_end, one_thread_variables, start_process
from vem.errors import SettingsError, VemError, printable
from vem.estimation.points import estimating
from vem.evaluation.environments import own_environment
from vem.evaluation.evaluate import evaluating
from vem.evaluation.results import read_evaluation
from vem.training.machine import keep_programs
from vem.training.progress import stop_requests
from vem.training.run import Callback, Run


def run_here(job: Job, stream: TextIO | None, num_workers: int | None = None, log: Path | None = None) -> bool:
    """Do what is left of a job in this process and return whether it succeeded; a failure is recorded, not raised.

    A job whose run is at an address leaves ``log`` there, too.
    """

    def say(text: str) -> None:
        if stream is not None:
            print(text, file=stream, flush=True)

    keep_programs()
    if job.remote is None:
        return _run(job, stream, say, num_workers)
    with working_copy(job, say, log) as (copy, push):
        return _run(copy, stream, say, num_workers, [push])


def _run(
    job: Job,
    stream: TextIO | None,
    say: Callable[[str], None],
    num_workers: int | None,
    callbacks: Sequence[Callback] = (),
) -> bool:
    def train(run: Run) -> None:
        run.seconds_per_checkpoint = job.checkpoint_seconds
        with watching(run, job.request.evaluate_every) as own:
            run.train([*own, *callbacks], progress=False if stream is None else stream)
        what = f"{job.episodes} episodes of each policy" if job.has_environment else "policies on held-out trajectories"
        say(f"{job.name}: evaluating {what}")

    try:
        if job.sha256 is not None and job.request.load().fingerprint() != job.sha256:
            text = "the dataset in hand has other rows than its file; compare it with one job, or save it to a file"
            job.record_failure(text)
            raise SettingsError(text)
        job.run(train, num_workers)
    except VemError as error:
        say(f"{job.name}: failed: {error}")
        return False
    say(f"{job.name}: done")
    return True


@contextmanager
def watching(run: Run, every: float | None) -> Iterator[list[Callback]]:
    """The callbacks that judge a run's policies on the way: in the environment of its data, or by estimates."""
    if every is None or own_environment(run.facts.info) is not None:
        with evaluating(run, every) as callbacks:
            yield callbacks
        return
    yield [estimating(run, every)]


# The progress of all open jobs in one view: a live table on a terminal, lines elsewhere.


SECONDS_PER_LOOK = 2.0
SECONDS_PER_LINE = 30.0
SECONDS_PER_PULL = 10.0
BAR = 20
"""Letters of a bar."""


class JobProgress(NamedTuple):
    """How far a run is."""

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


def read_progress(job: Job) -> JobProgress | None:
    """How far the job is, or None if its run was not begun."""
    files = job.files
    with suppress(VemError):  # another process may be writing
        if files.is_run:
            line, evaluation = files.newest_metrics(), read_evaluation(files)
            spread = evaluation and (evaluation.score or evaluation.returns)
            return JobProgress(line.steps if line else 0, files.config.steps, spread.mean if spread else None)
    return None


class View:
    """What is shown while jobs run. Without a stream, nothing is."""

    def __init__(self, stream: TextIO | None, total: int, remote: Remote | None = None) -> None:
        self.stream, self.total, self.remote = stream, total, remote
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

    def refresh(self, job: Job) -> None:
        """Bring all records of a job that ended, if its run is at an address."""
        if self.remote is not None:
            try:
                self.remote.pull_records(job)
            except VemError as error:
                self.say(str(error))

    def update(self, jobs: Sequence[Job]) -> None:
        """Show how far the open jobs are, if it is time to look again."""
        now = time.monotonic()
        if self.stream is None or now - self._looked < SECONDS_PER_LOOK:
            return
        self._looked = now
        if self._live is None and now - self._lined < SECONDS_PER_LINE:
            return
        if self.remote is not None and now - self._pulled >= SECONDS_PER_PULL:
            self._pulled = now
            for job in jobs:
                with suppress(VemError):
                    self.remote.pull_progress(job)
        found = {job.name: read_progress(job) for job in jobs}
        if self._live is not None:
            self._live.update(self._table(found))
            return
        self._lined = now
        for name, progress in found.items():
            if progress is not None and self._shown.get(name) != progress.text:
                self._shown[name] = progress.text
                self.say(f"{name}: {progress.text}")

    def _table(self, found: dict[str, JobProgress | None]) -> Any:
        """A line about all jobs, then a row for each that was begun: what does not fit on the terminal is cut off."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        begun = {name: progress for name, progress in found.items() if progress is not None}
        table = Table(box=None, padding=(0, 1), show_header=False)
        for name, progress in begun.items():
            table.add_row(*map(Text, (printable(name), progress.bar, progress.text)))
        waiting = len(found) - len(begun)
        return Group(Text(f"{len(found)} of {self.total} runs are open, {waiting} of them not begun"), table)


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


# Jobs in processes of their own on this machine, each with a share of the cores.


POLL_SECONDS = 0.2


class _Running(NamedTuple):
    job: Job
    process: RunProcess
    started: float


def run_jobs(jobs: Sequence[Job], view: View, num_jobs: int) -> bool:
    """Do the jobs, ``num_jobs`` at a time; True if a signal stopped them (after saving).

    A job that fails leaves its failure beside its run, and the others go on.
    """
    waiting, total = deque(jobs), len(jobs)
    slots: list[_Running | None] = [None] * min(num_jobs, total)
    cores = share_cores(available_cores(), len(slots))
    variables = {**os.environ, **one_thread_variables()}
    with stop_requests() as requests:
        try:
            while any(slots) or (waiting and not requests):
                for index, running in enumerate(slots):
                    if running is not None and (code := running.process.process.poll()) is not None:
                        running.process.close()
                        finish(running.job, code, time.monotonic() - running.started, bool(requests), view)
                        slots[index] = running = None
                    if running is None and waiting and not requests:
                        job = waiting.popleft()
                        view.say(f"{job.name}: started ({total - len(waiting)} of {total}); log: {job.log_path}")
                        process = start_process(job.to_json(), job.log_path, variables, cores[index])
                        slots[index] = _Running(job, process, time.monotonic())
                    elif running is not None and requests:
                        running.process.ask_to_stop()
                view.update([running.job for running in slots if running is not None])
                time.sleep(POLL_SECONDS)
        finally:
            for running in filter(None, slots):
                running.process.kill()
    return bool(requests)


def finish(job: Job, code: int, seconds: float, is_stopping: bool, view: View, why: str | None = None) -> None:
    """Say how a job's process ended, and record a failure that it could not record itself; ``why`` says more."""
    view.refresh(job)
    if code == 0:
        view.say(f"{job.name}: done in {seconds:.0f} s")
    elif code == STOPPED or is_stopping:
        view.say(f"{job.name}: stopped and saved")
    else:
        if job.failure() is None:
            job.record_failure(why or f"{explain_end(code, 'its process')}; see {job.log_path}")
        view.say(f"{job.name}: failed after {seconds:.0f} s: {job.failure()}")


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
