"""Several methods, or several settings of one, on several datasets: what is left to do is done and put side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from vem.compare.execution import Execution, run_cells
from vem.compare.grid import DEFAULT_STEPS, make_cells, make_sweep_cells
from vem.compare.results import Comparison, read_comparison
from vem.data import Dataset


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
    ``hold_out`` is the share of the recordings that no cell is trained on, for ``vem.select``.
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
