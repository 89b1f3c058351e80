"""Cells in processes of their own on this machine, each with a share of the cores.

Small networks do not fill two threads: two single-threaded processes get more done than one with two threads.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from vem.compare.cells import Cell, read_failure, record_failure
from vem.compare.process import STOPPED, CellProcess, explain_end, start_process
from vem.compare.view import View
from vem.compare.work import Job, one_thread_variables
from vem.runs.progress import stop_requests

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
