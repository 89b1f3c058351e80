"""Several methods on several datasets: what is left to do is done, and the results are put side by side."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from vem.compare.cells import DEFAULT_STEPS, Cell, check_cells, check_place, make_cells, run_cell
from vem.compare.jobs import Job, run_jobs
from vem.compare.results import Comparison, read_comparison
from vem.data import Dataset
from vem.errors import SettingsError, Stopped, VemError
from vem.evaluation.training import evaluating

SAME_COMMAND = "the same command goes on from here"


def compare(
    datasets: str | Dataset | Sequence[str | Dataset],
    algorithms: str | Sequence[str] = ("vem", "bc", "iql"),
    *,
    out: str | Path = "runs/compare",
    seeds: int | Sequence[int] = 3,
    steps: int | Mapping[str, int] = DEFAULT_STEPS,
    episodes: int = 100,
    preset: str = "default",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    rules: Mapping[str, Any] | None = None,
    data_dir: str | None = None,
    jobs: int = 1,
    evaluate_every: int | None = None,
    progress: bool | TextIO = True,
) -> Comparison:
    """Train and evaluate every method on every dataset, each in the run directory ``out/DATASET/ALGORITHM``.

    Cells that are finished are not run again, and unfinished ones go on from their newest checkpoint, so the same call
    goes on after a stop or a failure. A cell that fails does not stop the others; ``Comparison.failures`` says why.

    ``datasets`` are names as ``vem.load`` takes them, read by ``rules`` (``task``, ``teleports`` …), or Datasets.
    ``steps`` is one number or one for each method by name; ``settings`` are given by method. A method that lacks
    ``preset`` takes its default. ``jobs`` cells run at a time, each in a process of its own; datasets made from arrays
    can run in this process alone, with ``jobs=1``. ``evaluate_every`` also evaluates 20 episodes after every that many
    steps. ``progress`` shows what happens on the standard output, or on another stream.
    """
    for name, value in (("jobs", jobs), ("episodes", episodes), ("evaluate_every", evaluate_every)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise SettingsError(f"--{name.replace('_', '-')} is {value}; it must be a whole number, 1 or more")
    cells = make_cells(
        [datasets] if isinstance(datasets, str | Dataset) else list(datasets),
        algorithms.split(",") if isinstance(algorithms, str) else list(algorithms),
        out,
        seeds=seeds,
        steps=steps,
        preset=preset,
        settings=settings,
        rules=rules,
        data_dir=data_dir,
    )
    if jobs > 1:
        _check_for_jobs(cells)
    states = check_cells(cells, episodes)
    left = [cell for cell in cells if states[cell.name] != "done"]
    if left:
        check_place(out)
    stream = sys.stdout if progress is True else progress or None
    _say(stream, f"{len(left)} of {len(cells)} cells in {out} are left to do")
    try:
        if jobs > 1 and left:
            work = [Job(cell, episodes, evaluate_every) for cell in left]
            is_stopped = run_jobs(work, jobs, lambda text: _say(stream, text))
        else:
            is_stopped = False
            for cell in left:
                run_here(cell, episodes, evaluate_every, stream)
    except KeyboardInterrupt:
        is_stopped = True
    if is_stopped:
        raise Stopped(f"stopped and saved; {SAME_COMMAND}")
    return read_comparison(cells, episodes)


def run_here(
    cell: Cell, episodes: int, evaluate_every: int | None, stream: TextIO | None, num_workers: int | None = None
) -> bool:
    """Do what is left of a cell in this process and return whether it succeeded; a failure is recorded, not raised."""

    def train(run: Any) -> None:
        with evaluating(run, evaluate_every) as callbacks:
            run.train(callbacks, progress=False if stream is None else stream)
        _say(stream, f"{cell.name}: evaluating {episodes} episodes of each policy")

    try:
        run_cell(cell, episodes, num_workers, train)
    except VemError as error:
        _say(stream, f"{cell.name}: failed: {error}")
        return False
    _say(stream, f"{cell.name}: done")
    return True


def _check_for_jobs(cells: Sequence[Cell]) -> None:
    arrays = {cell.dataset for cell in cells if cell.data is not None and cell.data.info.source == "arrays"}
    if arrays:
        raise SettingsError(
            f"the dataset {', '.join(sorted(arrays))} was made from arrays, which other processes cannot read: "
            "give jobs=1, or save it to a file"
        )


def _say(stream: TextIO | None, text: str) -> None:
    if stream is not None:
        print(text, file=stream, flush=True)
