"""The process of one run, ``python -m vem.comparison.worker``: started, asked to save and end, and what it does.

Its standard input holds one line of JSON, the job and how it shares the machine. The end of the input asks it to save
and end, so it also ends when the process that started it is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from vem.errors import VemError
from vem.evaluation.workers import ONE_THREAD

STOPPED = 130
"""The exit code of a process that saved and ended because it was asked to."""


class RunProcess(NamedTuple):
    """A run's process and its log."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]

    @property
    def is_asked(self) -> bool:
        """Whether it was asked to save and end."""
        return self.process.stdin is None or self.process.stdin.closed

    def ask_to_stop(self) -> None:
        """Ask it to save and end; a process that is gone is not asked."""
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()

    def close(self) -> None:
        """Close the files of a process that ended."""
        self.ask_to_stop()
        self.log.close()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self.close()


def start_process(
    job: Mapping[str, Any],
    log_path: Path,
    environment: Mapping[str, str],
    cores: Sequence[int] = (),
    lock_seconds: float = 0.0,
    folder: str | None = None,
) -> RunProcess:
    """A new process that does a job (``Job.to_json``) in ``folder``, on some of the cores, printing to a log.

    ``lock_seconds`` is how long it waits for the lock of a process that was lost with its machine.
    """
    message = {"job": job, "cores": list(cores), "log": str(log_path), "lock_seconds": lock_seconds}
    log_path.parent.mkdir(parents=True, exist_ok=True)
    log = log_path.open("ab")
    # A session of its own: Ctrl-C reaches the parent alone, which asks each process once.
    process = subprocess.Popen(
        [sys.executable, "-m", "vem.comparison.worker"],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**environment, "PYTHONIOENCODING": "utf-8:backslashreplace"},  # as the log is read
        cwd=folder,
        start_new_session=True,
    )
    assert process.stdin is not None
    with suppress(OSError):  # one that died already is found by its exit code
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
    return RunProcess(process, log)


def one_thread_variables() -> dict[str, str]:
    """Environment variables for a process with one thread, whose numbers do not depend on the machine's cores."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    return {**ONE_THREAD, "XLA_FLAGS": flags}


def explain_end(code: int, place: str) -> str:
    """What to say of a process that ended with ``code`` and did not say why itself; ``place`` names it."""
    if code >= 0:
        return f"{place} ended with exit code {code}"
    return (
        f"{place} was killed by signal {-code}, as a machine does that runs out of memory; "
        "the same command goes on from its newest checkpoint"
    )


def main() -> int:
    """Do the job and return the exit code: 0 done, 1 failed, 130 stopped."""
    message = json.loads(_first_line())
    if message["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, message["cores"])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        return 0 if _do(message) else 1
    except KeyboardInterrupt as stopped:
        print(stopped or "interrupted", flush=True)
        return STOPPED


def _do(message: Mapping[str, Any]) -> bool:
    from vem.comparison.job import Job
    from vem.comparison.launch import run_here

    try:
        job = Job.from_json(message["job"])
        if job.remote is None:
            job.files.wait_for_lock(message["lock_seconds"])
        return run_here(job, sys.stdout, num_workers=1, log=Path(message["log"]))
    except VemError as error:  # of the place where the run is; those of the run itself are recorded there
        print(error, flush=True)
        return False


def _first_line() -> bytes:
    """The first line of the standard input, with nothing after it taken away."""
    line = b""
    while not line.endswith(b"\n") and (letter := os.read(0, 1)):
        line += letter
    return line


def _end_with_parent() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
