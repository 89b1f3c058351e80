"""The process of one cell, started by ``vem.compare.process``: ``python -m vem.compare.job``.

Its standard input holds one line of JSON that says what to do. The end of the input asks it to save and end, so it
also ends when the process that started it is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from vem.compare.process import STOPPED


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
    from vem.compare.work import Job, run_here
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
