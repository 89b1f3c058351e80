"""Cells of a comparison in processes of their own, each with one thread and a share of the cores.

Small networks do not fill two threads: two single-threaded processes get more done than one with two threads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

from vem.compare.cells import Cell, read_failure, record_failure
from vem.evaluation.workers import ONE_THREAD
from vem.runs.progress import stop_requests

POLL_SECONDS = 0.2
STOPPED = 130


class _Job(NamedTuple):
    cell: Cell
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    started: float


def run_jobs(
    cells: Sequence[Cell], num_jobs: int, command: Callable[[Cell, str], list[str]], say: Callable[[str], None]
) -> bool:
    """Run ``command(cell, cores)`` for every cell, ``num_jobs`` at a time; True if a signal stopped it (after saving).

    A job that fails leaves its failure beside its run, and the others go on.
    """
    waiting, total = deque(cells), len(cells)
    slots: list[_Job | None] = [None] * min(num_jobs, total)
    cores = share_cores(available_cores(), len(slots))
    with stop_requests() as requests:
        try:
            while any(slots) or (waiting and not requests):
                for index, job in enumerate(slots):
                    if job is not None and job.process.poll() is not None:
                        _finish(job, bool(requests), say)
                        slots[index] = job = None
                    if job is None and waiting and not requests:
                        cell = waiting.popleft()
                        say(f"{cell.name}: started ({total - len(waiting)} of {total}); log: {cell.log_path}")
                        slots[index] = _start(cell, command(cell, ",".join(map(str, cores[index]))))
                    elif job is not None and requests and job.process.stdin:
                        job.process.stdin.close()  # asks it to save and end
                time.sleep(POLL_SECONDS)
        finally:
            for job in filter(None, slots):
                job.process.kill()
                job.process.wait()
                job.log.close()
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


def enter_job(cores: str) -> None:
    """Make this process a job: on its cores, and ended like by a signal when its parent closes the pipe or dies."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _start(cell: Cell, arguments: list[str]) -> _Job:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    surroundings = {**os.environ, **ONE_THREAD, "XLA_FLAGS": flags}
    cell.log_path.parent.mkdir(parents=True, exist_ok=True)
    log = cell.log_path.open("ab")
    # A session of its own: Ctrl-C reaches the parent alone, which asks each job once.
    process = subprocess.Popen(
        [sys.executable, "-m", "vem", *arguments],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=surroundings,
        start_new_session=True,
    )
    return _Job(cell, process, log, time.monotonic())


def _finish(job: _Job, is_stopping: bool, say: Callable[[str], None]) -> None:
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
