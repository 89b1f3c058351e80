"""The process of one cell, started by ``vem.compare.jobs``: ``python -m vem.compare.job``.

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

STOPPED = 130


def main() -> int:
    """Run the cell and return the exit code: 0 done, 1 failed, 130 stopped."""
    message = json.loads(_first_line())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, message["cores"])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        return 0 if _run(message) else 1
    except KeyboardInterrupt as stopped:
        print(stopped or "interrupted", flush=True)
        return STOPPED


def _run(message: dict[str, Any]) -> bool:
    from vem.compare.cells import Cell, record_failure
    from vem.compare.comparison import run_here

    cell = Cell(message["dataset"], message["algorithm"], Path(message["directory"]), message["request"])
    if message["sha256"] is not None and cell.load().fingerprint() != message["sha256"]:
        text = "the dataset in hand has other rows than its file; compare it with one job, or save it to a file"
        record_failure(cell, text)
        print(text, flush=True)
        return False
    return run_here(cell, message["num_episodes"], message["evaluate_every"], sys.stdout, num_workers=1)


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
