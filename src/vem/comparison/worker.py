"""The process of one cell, started by ``vem.comparison.worker``: ``python -m vem.comparison.worker``.

Its standard input holds one line of JSON that says what to do. The end of the input asks it to save and end, so it
also ends when the process that started it is gone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import vem
from vem.errors import RunError

# The process of a cell (``vem.comparison.worker``) on this machine: started, asked to save and end.


STOPPED = 130
"""The exit code of a process that saved and ended because it was asked to."""


class CellProcess(NamedTuple):
    """A cell's process and its log."""

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


def explain_end(code: int, place: str) -> str:
    """What to say of a process that ended with ``code`` and did not say why itself; ``place`` names it."""
    if code >= 0:
        return f"{place} ended with exit code {code}"
    return (
        f"{place} was killed by signal {-code}, as a machine does that runs out of memory; "
        "the same command goes on from its newest checkpoint"
    )


def start_process(
    message: Mapping[str, Any], log_path: Path, environment: Mapping[str, str], folder: str | None = None
) -> CellProcess:
    """A new process that does what ``message`` says (``Job.to_message``), in ``folder``, printing to a log."""
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
    return CellProcess(process, log)


def main() -> int:
    """Run the cell and return the exit code: 0 done, 1 failed, 130 stopped."""
    message = json.loads(_first_line())
    if message["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, message["cores"])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        return 0 if _run(message) else 1
    except KeyboardInterrupt as stopped:
        print(stopped or "interrupted", flush=True)
        return STOPPED


def _run(message: dict[str, Any]) -> bool:
    from vem.comparison.launch import Job, run_here
    from vem.errors import VemError

    job = Job.from_message(message)
    try:
        if job.mirror is None:
            job.cell.files.wait_for_lock(message["lock_seconds"])
        return run_here(job, sys.stdout, num_workers=1, sha256=message["sha256"], log=Path(message["log"]))
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


# What a node of a cluster does: it starts a cell's process and waits for it.


POLL_SECONDS = 0.2
LOOK_SECONDS = 10.0
"""How long a file server may take to show a new file."""


class Order(NamedTuple):
    """What a node needs to know to run a cell."""

    version: str
    """Of vem, on the machine that gave the order."""
    folder: str
    """Where that machine runs: relative paths to data begin there."""
    marker: str | None
    """A file that every node must see; None if runs are at an address."""
    environment: dict[str, str]
    message: dict[str, Any]
    """What the cell's process is told; empty for a check alone."""


class Outcome(NamedTuple):
    """How a cell's process ended."""

    code: int
    host: str
    last_line: str
    """Of the cell's log."""


def check_node(order: Order) -> None:
    """RunError if this node cannot run cells of the order."""
    host = socket.gethostname()
    if vem.__version__ != order.version:
        raise RunError(f"the node {host} has vem {vem.__version__}, not {order.version}; install the same everywhere")
    if order.marker is None:
        return
    marker, end = Path(order.marker), time.monotonic() + LOOK_SECONDS
    while not marker.exists():
        if time.monotonic() > end:
            raise RunError(
                f"the node {host} does not see {marker.parent}: give an --out that all nodes share, or an address such "
                "as s3://bucket/study"
            )
        time.sleep(POLL_SECONDS)


def run_order(order: Order) -> Outcome:
    """Run a cell to its end, or until the cluster cancels it: then it saves first.

    A process that was killed, as a machine does that runs out of memory, is started again once.
    """
    check_node(order)
    environment = {**os.environ, **order.environment}
    folder = order.folder if Path(order.folder).is_dir() else None
    with tempfile.TemporaryDirectory(prefix="vem-log-") as place:
        log = Path(order.message["log"] or Path(place) / "cell.log")
        for is_last in (False, True):
            process = start_process({**order.message, "log": str(log)}, log, environment, folder)
            try:
                code = _wait(process)
            except BaseException:
                process.kill()
                raise
            was_asked = process.is_asked
            process.close()
            if code >= 0 or was_asked or is_last:
                break
        return Outcome(code, socket.gethostname(), _last_line(log))


def only_needed(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that change what a cell computes or where it finds its data."""
    return {name: value for name, value in variables.items() if name.startswith(("JAX_", "XLA_", "VEM_", "MUJOCO_"))}


def _wait(process: CellProcess) -> int:
    while True:
        try:
            while (code := process.process.poll()) is None:
                time.sleep(POLL_SECONDS)
            return code
        except KeyboardInterrupt:  # how Ray cancels a task
            process.ask_to_stop()


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
