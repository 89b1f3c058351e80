"""The process of a cell (``vem.compare.job``) on this machine: started, asked to save and end.

Nothing but the standard library is imported: a node of a cluster needs no more to start a cell.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

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
        [sys.executable, "-m", "vem.compare.job"],
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
