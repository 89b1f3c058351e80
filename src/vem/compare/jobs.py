"""Cells of a comparison in processes of their own (``vem.compare.job``), each with a share of the cores.

Small networks do not fill two threads: two single-threaded processes get more done than one with two threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

from vem.compare.cells import Cell, read_failure, record_failure
from vem.evaluation.workers import ONE_THREAD
from vem.runs.progress import stop_requests

POLL_SECONDS = 0.2
STOPPED = 130


class Job(NamedTuple):
    """A cell, and how it is evaluated."""

    cell: Cell
    num_episodes: int
    evaluate_every: int | None

    def to_line(self, cores: Sequence[int]) -> bytes:
        """What the job's process is told: one line of JSON."""
        data = self.cell.data
        message = {
            "dataset": self.cell.dataset,
            "algorithm": self.cell.algorithm,
            "directory": str(self.cell.directory),
            "request": self.cell.request,
            "sha256": None if data is None else data.fingerprint(),
            "num_episodes": self.num_episodes,
            "evaluate_every": self.evaluate_every,
            "cores": list(cores),
        }
        return json.dumps(message).encode() + b"\n"


class _Running(NamedTuple):
    cell: Cell
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    started: float


def run_jobs(jobs: Sequence[Job], num_jobs: int, say: Callable[[str], None]) -> bool:
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
                    if running is not None and running.process.poll() is not None:
                        _finish(running, bool(requests), say)
                        slots[index] = running = None
                    if running is None and waiting and not requests:
                        job = waiting.popleft()
                        cell = job.cell
                        say(f"{cell.name}: started ({total - len(waiting)} of {total}); log: {cell.log_path}")
                        slots[index] = _start(job, cores[index])
                    elif running is not None and requests and running.process.stdin:
                        running.process.stdin.close()  # asks it to save and end
                time.sleep(POLL_SECONDS)
        finally:
            for running in filter(None, slots):
                running.process.kill()
                running.process.wait()
                running.log.close()
    return bool(requests)


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
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    surroundings = {**os.environ, **ONE_THREAD, "XLA_FLAGS": flags}
    cell = job.cell
    cell.log_path.parent.mkdir(parents=True, exist_ok=True)
    log = cell.log_path.open("ab")
    # A session of its own: Ctrl-C reaches the parent alone, which asks each job once.
    process = subprocess.Popen(
        [sys.executable, "-m", "vem.compare.job"],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=surroundings,
        start_new_session=True,
    )
    assert process.stdin is not None
    with suppress(OSError):  # one that died already is found by its exit code
        process.stdin.write(job.to_line(cores))
        process.stdin.flush()
    return _Running(cell, process, log, time.monotonic())


def _finish(job: _Running, is_stopping: bool, say: Callable[[str], None]) -> None:
    """Close a finished job's files, say how it ended, and record a failure that it could not record itself."""
    job.log.close()
    if job.process.stdin:
        job.process.stdin.close()
    code, seconds = job.process.returncode, time.monotonic() - job.started
    if code == 0:
        say(f"{job.cell.name}: done in {seconds:.0f} s")
    elif code == STOPPED or is_stopping:
        say(f"{job.cell.name}: stopped and saved")
    else:
        if read_failure(job.cell) is None:
            record_failure(job.cell, f"its process ended with exit code {code}; see {job.cell.log_path}")
        say(f"{job.cell.name}: failed after {seconds:.0f} s: {read_failure(job.cell)}")
