"""Several methods on several datasets: one run directory a cell, trained and evaluated once.

OUT/<dataset>/<algorithm>/              the run (``vem.runs.run``) and its evaluation (``vem.evaluation.evaluate``)
OUT/<dataset>/<algorithm>.failed.json   why the cell's newest attempt failed
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vem.algorithms import find_method
from vem.data import sources
from vem.errors import RunError, SettingsError, VemError
from vem.evaluation.environments import find_environment
from vem.evaluation.evaluate import evaluate_run
from vem.evaluation.statistics import Spread
from vem.runs.run import Config, Run, create_run, load_data, make_config, read_config, resume_run
from vem.storage import write_json

State = Literal["absent", "unfinished", "trained", "done"]
DEFAULT_STEPS = 100_000


@dataclass(frozen=True)
class Cell:
    """One method on one dataset."""

    dataset: str
    """The dataset's name in directories and tables."""
    algorithm: str
    directory: Path
    """The run directory."""
    config: Config

    @property
    def name(self) -> str:
        """For messages: dataset and method."""
        return f"{self.dataset} {self.algorithm}"

    @property
    def failure_path(self) -> Path:
        """Where a failed attempt is recorded; beside the run, which may not exist."""
        return self.directory.with_name(f"{self.algorithm}.failed.json")

    @property
    def log_path(self) -> Path:
        """What the cell's own process printed, if it had one."""
        return self.directory.with_name(f"{self.algorithm}.log")


def make_cells(
    datasets: Sequence[str],
    algorithms: Sequence[str],
    out: str | Path,
    *,
    seeds: int | Sequence[int] = 3,
    steps: int | Mapping[str, int] = DEFAULT_STEPS,
    preset: str = "default",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    data_dir: str | None = None,
) -> list[Cell]:
    """The cells of a comparison, complete and checked, dataset by dataset; nothing is written.

    ``steps`` and ``settings`` are given for all methods or by name. A method that lacks ``preset`` takes its default.
    """
    _check_unique(datasets, "dataset")
    _check_unique(algorithms, "algorithm")
    names = [dataset_name(dataset) for dataset in datasets]
    _check_unique(names, "dataset directory")
    chosen = {name: _preset_of(name, preset) for name in algorithms}
    if preset not in chosen.values():
        raise SettingsError(f"none of {', '.join(algorithms)} has a preset {preset!r}")
    cells = []
    for dataset, name in zip(datasets, names, strict=True):
        for algorithm in algorithms:
            config = make_config(
                dataset,
                algorithm,
                chosen[algorithm],
                dict((settings or {}).get(algorithm, {})),
                seeds,
                steps if isinstance(steps, int) else steps.get(algorithm, DEFAULT_STEPS),
                data_dir=data_dir,
            )
            cells.append(Cell(name, algorithm, Path(out) / name / algorithm, config))
    return cells


def dataset_name(dataset: str) -> str:
    """The name of a dataset's directory: a file's stem, or a name with its slashes replaced."""
    if dataset.startswith("minari:"):
        return dataset.removeprefix("minari:").replace("/", "-")
    path = Path(dataset)
    return path.stem if path.suffix.lower() in sources.READERS else path.name


def check_cells(cells: Sequence[Cell], num_episodes: int) -> dict[str, State]:
    """The state of every cell by name; an error, before any work, for what cannot be started or gone on with."""
    states: dict[str, State] = {cell.name: cell_state(cell, num_episodes) for cell in cells}
    for cell in {cell.dataset: cell for cell in cells if states[cell.name] in ("absent", "unfinished")}.values():
        if not _is_at_hand(cell.config):
            load_data(cell.config)  # says what was looked for, and where
    return states


def cell_state(cell: Cell, num_episodes: int) -> State:
    """How far a cell is; RunError if its directory was started with other settings."""
    if not (cell.directory / "config.json").exists():
        return "absent"
    stored, _ = read_config(cell.directory)
    for field in ("algorithm", "preset", "seeds", "steps", "sweep", "rules"):
        _check_same(cell, field, getattr(stored, field), getattr(cell.config, field))
    for name, value in cell.config.settings.items():
        _check_same(cell, name, stored.settings.get(name), value)
    if not all((cell.directory / "policies" / f"{m.name}.safetensors").exists() for m in stored.members):
        return "unfinished"
    summary = read_summary(cell)
    wanted = {"num_episodes": num_episodes, "steps": stored.steps, "actions": "mean", "seed": 0}
    is_evaluated = summary is not None and all(summary.get(name) == value for name, value in wanted.items())
    return "done" if is_evaluated else "trained"


def run_cell(
    cell: Cell,
    num_episodes: int,
    num_workers: int | None = None,
    train: Callable[[Run], bool] | None = None,
    show: Callable[[int, int], None] = lambda done, total: None,
) -> bool:
    """Do what is left of a cell and return True, or False if ``train`` was stopped on the way.

    ``train(run)`` trains and returns whether it was stopped (after saving). A failure is recorded beside the run and
    raised as a VemError; the next attempt goes on from the newest checkpoint.
    """
    cell.failure_path.unlink(missing_ok=True)
    try:
        state = cell_state(cell, num_episodes)
        if state in ("absent", "unfinished") and (train or _train_to_end)(_open_run(cell, state)):
            return False
        # Training may have evaluated its last policies itself.
        if cell_state(cell, num_episodes) != "done":
            evaluate_run(cell.directory, num_episodes, num_workers=num_workers, show=show)
    except Exception as error:
        # Whatever it is, it must not cost the cells that come after it.
        text = str(error) if isinstance(error, VemError) else f"{type(error).__name__}: {error}"
        record_failure(cell, text)
        if isinstance(error, VemError):
            raise
        raise RunError(text) from error
    return True


def record_failure(cell: Cell, text: str) -> None:
    """Write why the cell failed."""
    record = {"dataset": cell.dataset, "algorithm": cell.algorithm, "error": " ".join(text.split())}
    write_json(cell.failure_path, record)


def read_failure(cell: Cell) -> str | None:
    """Why the newest attempt failed, or None."""
    try:
        return str(json.loads(cell.failure_path.read_text(encoding="utf-8"))["error"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return f"{cell.failure_path} cannot be read"


def read_summary(cell: Cell) -> dict[str, Any] | None:
    """The evaluation's summary, or None before it."""
    try:
        summary = json.loads((cell.directory / "evaluation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) and summary.get("groups") else None


@dataclass(frozen=True)
class Result:
    """What a cell gave."""

    cell: Cell
    quantity: str
    """``score`` where the environment has reference scores, else ``return``."""
    spread: Spread | None
    """Over seeds; None without an evaluation."""
    references: str | None = None
    """Where the scores 0 and 100 come from."""
    error: str | None = None
    mark: Literal["", "best", "close"] = ""
    """``close``: its mean lies within the best one's interval."""


def read_results(cells: Sequence[Cell]) -> list[Result]:
    """The results of the cells, in order, the best of each dataset marked, and those within its interval."""
    results = [_read_result(cell) for cell in cells]
    by_dataset: dict[str, list[int]] = {}
    for index, result in enumerate(results):
        if result.spread is not None:
            by_dataset.setdefault(result.cell.dataset, []).append(index)
    for indices in by_dataset.values():
        marks = mark_best([spread for index in indices if (spread := results[index].spread) is not None])
        for index, mark in zip(indices, marks, strict=True):
            results[index] = dataclasses.replace(results[index], mark=mark)
    return results


def mark_best(spreads: Sequence[Spread]) -> list[Literal["", "best", "close"]]:
    """``best`` for the highest mean, ``close`` for means that its interval contains; nothing to mark for one alone."""
    if len(spreads) < 2:
        return [""] * len(spreads)
    best = max(range(len(spreads)), key=lambda index: spreads[index].mean)
    low = spreads[best].mean if (interval := spreads[best].interval) is None else interval[0]
    return ["best" if i == best else "close" if spread.mean >= low else "" for i, spread in enumerate(spreads)]


def _read_result(cell: Cell) -> Result:
    summary, error = read_summary(cell), read_failure(cell)
    if summary is None:
        return Result(cell, "score", None, None, error)
    group, references = summary["groups"][0], summary.get("references")
    quantity = "score" if group.get("score") else "return"
    spread = Spread(**group[quantity]) if group.get(quantity) else None
    if spread is None:
        failed = next((row["first_error"] for row in summary["members"].values() if row["first_error"]), None)
        error = error or f"every episode failed, first: {failed}"
    return Result(cell, quantity, spread, references["source"] if references else None, error)


def _open_run(cell: Cell, state: State) -> Run:
    dataset = load_data(cell.config)
    find_environment(dataclasses.asdict(dataset.info))  # hours of training without a place to evaluate are in vain
    if state == "absent":
        return create_run(cell.directory, cell.config, dataset)
    return resume_run(cell.directory, dataset)


def _train_to_end(run: Run) -> bool:
    run.train()
    return False


def _preset_of(algorithm: str, preset: str) -> str:
    return preset if preset in find_method(algorithm).presets else "default"


def _is_at_hand(config: Config) -> bool:
    """Whether the dataset can be expected to load; cheap, so False is not a verdict."""
    if config.dataset in sources.BUILT_IN or Path(config.dataset).is_file():
        return True
    return any(sources.matches(config.dataset, path) for path in sources.dataset_files(config.data_dir))


def _check_same(cell: Cell, name: str, stored: Any, wanted: Any) -> None:
    if stored != wanted:
        flag = name.replace("_", "-")
        raise RunError(
            f"{cell.directory} was started with {flag} {_plain(stored)}, not {_plain(wanted)}; "
            "give the old settings to go on with it, or another --out"
        )


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _check_unique(names: Sequence[str], what: str) -> None:
    if not names or "" in names:
        raise SettingsError(f"give at least one {what}, by name")
    repeated = {name for name in names if list(names).count(name) > 1}
    if repeated:
        raise SettingsError(f"the {what} {', '.join(sorted(repeated))} is given twice; each makes one cell")
