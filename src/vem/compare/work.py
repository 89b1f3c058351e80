"""What is to be done with a cell, and doing it in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from vem.compare.cells import Cell, record_failure, run_cell
from vem.compare.mirror import Mirror, working_copy
from vem.errors import VemError
from vem.evaluation.training import evaluating
from vem.evaluation.workers import ONE_THREAD
from vem.runs.programs import keep_programs
from vem.runs.run import Callback, Run


class Job(NamedTuple):
    """A cell, and how it is trained and evaluated."""

    cell: Cell
    num_episodes: int
    evaluate_every: float | None = None
    checkpoint_seconds: float = 60.0
    mirror: str | None = None
    """The address that holds the run, if its directory is a copy (``vem.compare.mirror``)."""

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
