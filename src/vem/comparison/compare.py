"""Several methods, or several settings of one, on several datasets: what is left to do is done and put side by side."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from vem.comparison.cluster import find_ray, run_on_ray
from vem.comparison.grid import (
    DEFAULT_STEPS,
    Cell,
    check_cells,
    check_place,
    make_cells,
    make_sweep_cells,
    record_failure,
)
from vem.comparison.launch import Job, View, run_here, run_jobs, showing
from vem.comparison.remote import Mirror, copy_place, is_address
from vem.comparison.results import Comparison, read_comparison
from vem.data.dataset import Dataset
from vem.errors import SettingsError, Stopped, VemError
from vem.training.request import check_period

# How the cells of a comparison or a sweep are run: in this process, in jobs on this machine, or on a Ray cluster.


SAME_COMMAND = "the same command goes on from here"
ENGINES = ("local", "ray")

Engine = Callable[[Sequence[Job], View], bool]
"""Runs jobs, each to its end or its failure, and returns whether a signal stopped them (after saving)."""


@dataclass(frozen=True)
class Execution:
    """How cells are run; it changes no result."""

    episodes: int = 100
    jobs: int = 1
    evaluate_every: float | None = None
    checkpoint_seconds: float = 60.0
    engine: str = "local"
    address: str | None = None
    """Of the Ray cluster."""
    progress: bool | TextIO = True

    def __post_init__(self) -> None:
        for name in ("jobs", "episodes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingsError(f"--{name.replace('_', '-')} is {value}; it must be a whole number, 1 or more")
        check_period(self.evaluate_every)
        if not (math.isfinite(self.checkpoint_seconds) and self.checkpoint_seconds >= 0):
            raise SettingsError(f"--checkpoint-seconds is {self.checkpoint_seconds}; it must be 0 or more")
        if self.engine not in ENGINES:
            raise SettingsError(f"--engine is {self.engine!r}; choose from {', '.join(ENGINES)}")
        if self.engine == "ray" and self.jobs != 1:
            raise SettingsError("--jobs is for this machine; a Ray cluster runs as many cells as it has cores")
        if self.engine != "ray" and self.address is not None:
            raise SettingsError(f"--address {self.address} is that of a Ray cluster; add --engine ray")

    @property
    def run(self) -> Engine:
        """The engine."""
        if self.engine == "ray":
            return partial(run_on_ray, address=self.address)
        return partial(run_jobs, num_jobs=self.jobs) if self.jobs > 1 else run_in_turn

    @property
    def stream(self) -> TextIO | None:
        """Where progress is shown."""
        return sys.stdout if self.progress is True else self.progress or None


def run_cells(cells: Sequence[Cell], out: str | Path, how: Execution) -> list[Cell]:
    """Do what is left of the cells and return them, with their records in their directories.

    If ``out`` is an address, the directories returned are copies. Raises Stopped if a signal stopped it, after saving.
    """
    engine = how.run
    if engine is not run_in_turn:
        _check_for_processes(cells)
    if how.engine == "ray":
        find_ray()
    mirror = Mirror(str(out)) if is_address(out) else None
    if mirror is not None:
        place = copy_place(str(out))
        cells = [cell.at(place / cell.dataset / cell.label) for cell in cells]
        for cell in cells:
            mirror.pull_records(cell)
    states = check_cells(cells, how.episodes)
    left = [cell for cell in cells if states[cell.name] != "done"]
    if left:
        mirror.check() if mirror else check_place(out)
    view = View(how.stream, len(left), mirror)
    view.say(f"{len(left)} of {len(cells)} cells in {out} are left to do")
    address = str(out) if mirror else None
    jobs = [Job(cell, how.episodes, how.evaluate_every, how.checkpoint_seconds, address) for cell in left]
    try:
        with showing(view):
            is_stopped = bool(jobs) and engine(jobs, view)
    except KeyboardInterrupt:
        is_stopped = True
    if is_stopped:
        raise Stopped(f"stopped and saved; {SAME_COMMAND}")
    return list(cells)


def run_in_turn(jobs: Sequence[Job], view: View) -> bool:
    """Run the jobs in this process, one after another; a signal raises KeyboardInterrupt (after saving)."""
    for job in jobs:
        try:
            run_here(job, view.stream)
            view.refresh(job.cell)
        except VemError as error:  # of the place where the run is: it must not cost the cells that come after it
            record_failure(job.cell, str(error))
            view.say(f"{job.cell.name}: failed: {error}")
    return False


def _check_for_processes(cells: Sequence[Cell]) -> None:
    arrays = {cell.dataset for cell in cells if cell.data is not None and cell.data.info.source == "arrays"}
    if arrays:
        raise SettingsError(
            f"the dataset {', '.join(sorted(arrays))} was made from arrays, which other processes cannot read: "
            "give jobs=1, or save it to a file"
        )


def compare(
    datasets: str | Dataset | Sequence[str | Dataset],
    algorithms: str | Sequence[str] = ("vem", "bc", "iql"),
    *,
    out: str | Path = "runs/compare",
    seeds: int | Sequence[int] = 3,
    steps: int | Mapping[str, int] | None = None,
    minutes: float | None = None,
    episodes: int = 100,
    preset: str = "default",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    rules: Mapping[str, Any] | None = None,
    data_dir: str | None = None,
    hold_out: float = 0.0,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    evaluate_every: float | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool | TextIO = True,
) -> Comparison:
    """Train and evaluate every method on every dataset, each in the run directory ``out/DATASET/ALGORITHM``.

    Cells that are finished are not run again, and unfinished ones go on from their newest checkpoint, so the same call
    goes on after a stop or a failure. A cell that fails does not stop the others; ``Comparison.failures`` says why.

    ``datasets`` are names as ``vem.load`` takes them, read by ``rules`` (``task``, ``teleports`` …), or Datasets.
    ``steps`` is one number or one for each method by name (100,000); ``minutes`` instead are those of one core that
    training may take, all seeds together, and the steps of each cell follow from what its steps cost here.
    ``settings`` are given by method. A method that lacks ``preset`` takes its default. ``jobs`` cells run at a time,
    each in a process of its own; datasets made from arrays can run in this process alone, with ``jobs=1``.
    ``engine="ray"`` puts the cells on the Ray cluster at ``address`` (None: that of RAY_ADDRESS, or of this machine);
    ``out`` is then a folder that all nodes see, or an fsspec address.
    ``hold_out`` is the share of the trajectories that no cell is trained on, for ``vem.select``.
    ``evaluate_every`` also evaluates 20 episodes after every that many steps, or that share of them (0.2).
    ``progress`` shows what happens on the standard output, or on another stream.
    """
    how = Execution(episodes, jobs, evaluate_every, checkpoint_seconds, engine, address, progress)
    cells = make_cells(
        _several(datasets),
        algorithms.split(",") if isinstance(algorithms, str) else list(algorithms),
        out,
        seeds=seeds,
        steps=steps,
        minutes=minutes,
        preset=preset,
        settings=settings,
        rules=rules,
        data_dir=data_dir,
        hold_out=hold_out,
    )
    return read_comparison(run_cells(cells, out, how), episodes)


def sweep(
    datasets: str | Dataset | Sequence[str | Dataset],
    values: Mapping[str, Sequence[Any]],
    algorithm: str = "vem",
    *,
    out: str | Path = "runs/sweep",
    seeds: int | Sequence[int] = 3,
    steps: int = DEFAULT_STEPS,
    episodes: int = 100,
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
    data_dir: str | None = None,
    hold_out: float = 0.0,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    evaluate_every: float | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool | TextIO = True,
) -> Comparison:
    """Train and evaluate every combination of ``values`` (setting → its values), in ``out/DATASET/NAME=VALUE,…``.

    Any setting of the method can be swept, and ``settings`` are the same in all cells; the rest is as in ``compare``.
    """
    how = Execution(episodes, jobs, evaluate_every, checkpoint_seconds, engine, address, progress)
    cells = make_sweep_cells(
        _several(datasets),
        algorithm,
        values,
        out,
        seeds=seeds,
        steps=steps,
        preset=preset,
        settings=settings,
        rules=rules,
        data_dir=data_dir,
        hold_out=hold_out,
    )
    return read_comparison(run_cells(cells, out, how), episodes, columns="dataset")


def _several(datasets: str | Dataset | Sequence[str | Dataset]) -> list[str | Dataset]:
    return [datasets] if isinstance(datasets, str | Dataset) else list(datasets)
