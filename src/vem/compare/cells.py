"""One method, with one choice of settings, on one dataset: a run directory, trained and evaluated once.

OUT/<dataset>/<label>/              the run (``vem.runs.directory``), with its evaluation
OUT/<dataset>/<label>.failed.json   why the cell's newest attempt failed
OUT/<dataset>/<label>.log           what the cell's own process printed, if it had one

The label is the method's name in a comparison, and the swept values in a sweep.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vem.data import Dataset, sources
from vem.errors import RunError, VemError
from vem.evaluation.environments import find_environment, own_environment
from vem.evaluation.evaluate import evaluate, how_acting
from vem.evaluation.summary import Evaluation, read_evaluation
from vem.policy import load_policy
from vem.runs.config import Config, make_config
from vem.runs.directory import RunDirectory
from vem.runs.opening import create_run, resume_run
from vem.runs.reading import read_data, repeated
from vem.runs.run import Run
from vem.storage import write_json
from vem.tasks import Task, task_of

UNDECIDED = (None, "auto")
"""Settings that the data decide when a run is created; what was decided then stays."""
State = Literal["absent", "unfinished", "trained", "done"]


@dataclass(frozen=True)
class Cell:
    """One method, with one choice of settings, on one dataset."""

    dataset: str
    """The dataset's name in directories and tables."""
    label: str
    """What tells the cell from others of its dataset, in directories and tables."""
    algorithm: str
    directory: Path
    """The run directory."""
    request: dict[str, Any]
    """Arguments of ``make_config`` that were asked for; the task is the data's."""
    swept: dict[str, Any] = field(default_factory=dict)
    """Settings that differ between the cells of a sweep → their values here."""
    data: Dataset | None = field(default=None, repr=False, compare=False)
    """The dataset, if it was given and not named."""

    @property
    def name(self) -> str:
        """For messages: dataset and label."""
        return f"{self.dataset} {self.label}"

    @property
    def files(self) -> RunDirectory:
        """The run's files."""
        return RunDirectory(self.directory)

    @property
    def failure_path(self) -> Path:
        """Where a failed attempt is recorded; beside the run, which may not exist."""
        return self.directory.with_name(f"{self.directory.name}.failed.json")

    @property
    def log_path(self) -> Path:
        """What the cell's own process printed, if it had one."""
        return self.directory.with_name(f"{self.directory.name}.log")

    def at(self, directory: Path) -> Cell:
        """The same cell with its run in another directory."""
        return dataclasses.replace(self, directory=directory)

    def config(self, task: Task | None = None) -> Config:
        """The complete Config on data of this task; some presets have settings for a task's family."""
        return make_config(**self.request, task=task)

    def load(self) -> Dataset:
        """The dataset, read by the rules of the request."""
        config = self.config()
        if self.data is not None:
            return repeated(self.data, config.rules.get("repeat_terminals", False))
        return read_data(config.dataset, config.rules, config.data_dir)


def check_cells(cells: Sequence[Cell], num_episodes: int) -> dict[str, State]:
    """The state of every cell by name; an error, before any work, for what cannot be started or gone on with."""
    states: dict[str, State] = {cell.name: cell_state(cell, num_episodes) for cell in cells}
    for cell in {cell.dataset: cell for cell in cells if states[cell.name] in ("absent", "unfinished")}.values():
        if not _is_at_hand(cell):
            cell.load()  # says what was looked for, and where
    return states


def check_place(out: str | Path) -> None:
    """RunError if nothing can be written below ``out``."""
    directory = Path(out)
    probe = directory / ".probe"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunError(f"cannot write to {out} ({error.strerror}); choose another --out") from None


def cell_state(cell: Cell, num_episodes: int) -> State:
    """How far a cell is; RunError if its directory was started with other settings."""
    files = cell.files
    if not files.is_run:
        return "absent"
    stored, wanted = files.config, cell.config(task_of(files.facts.info))
    for name in ("algorithm", "preset", "seeds", "sweep", "rules", "hold_out"):
        _check_same(cell, name, getattr(stored, name), getattr(wanted, name))
    _check_same_length(cell, stored, wanted)
    for name, value in wanted.settings.items():
        if value not in UNDECIDED:
            _check_same(cell, name, stored.settings.get(name), value)
    if not files.is_finished:
        return "unfinished"
    return "trained" if matching_evaluation(files, num_episodes) is None else "done"


def matching_evaluation(files: RunDirectory, num_episodes: int | None = None) -> Evaluation | None:
    """The evaluation of a run that a comparison takes, or None.

    It is one of the final policies in the data's own environment, with seed 0, each policy's own way of acting and
    that many episodes; None: any number.
    """
    found = read_evaluation(files)
    if found is None or found.seed != 0 or found.steps != files.config.steps:
        return None
    if num_episodes not in (None, found.episodes) or found.environment != own_environment(files.facts.to_json()):
        return None
    try:
        own = how_acting(map(load_policy, files.policy_paths))
    except RunError:
        return None
    return found if found.actions == own else None


def run_cell(
    cell: Cell, num_episodes: int, num_workers: int | None = None, train: Callable[[Run], Any] = Run.train
) -> None:
    """Do what is left of a cell.

    ``train(run)`` trains it to its end. A failure is recorded beside the run and raised as a VemError; the next
    attempt goes on from the newest checkpoint.
    """
    cell.failure_path.unlink(missing_ok=True)
    try:
        state = cell_state(cell, num_episodes)
        if state in ("absent", "unfinished"):
            train(_open_run(cell, state))
        # Training may have evaluated its last policies itself.
        if cell_state(cell, num_episodes) != "done":
            evaluate(cell.directory, episodes=num_episodes, workers=num_workers, progress=False)
    except Exception as error:
        # Whatever it is, it must not cost the cells that come after it.
        text = str(error) if isinstance(error, VemError) else f"{type(error).__name__}: {error}"
        record_failure(cell, text)
        if isinstance(error, VemError):
            raise
        raise RunError(text) from error


def record_failure(cell: Cell, text: str) -> None:
    """Write why the cell failed."""
    record = {"dataset": cell.dataset, "algorithm": cell.algorithm, **cell.swept, "error": " ".join(text.split())}
    write_json(cell.failure_path, record)


def read_failure(cell: Cell) -> str | None:
    """Why the newest attempt failed, or None."""
    try:
        return str(json.loads(cell.failure_path.read_text(encoding="utf-8"))["error"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return f"{cell.failure_path} cannot be read"


def _open_run(cell: Cell, state: State) -> Run:
    dataset = cell.load()
    find_environment(dataclasses.asdict(dataset.info))  # hours of training without a place to evaluate are in vain
    if state == "absent":
        return create_run(cell.directory, cell.config(task_of(dataset.info)), dataset)
    return resume_run(cell.directory, dataset)


def _is_at_hand(cell: Cell) -> bool:
    """Whether the dataset can be expected to load; cheap, so False is not a verdict."""
    source = cell.request["dataset"]
    if cell.data is not None or source in sources.BUILT_IN or Path(source).is_file():
        return True
    return any(sources.matches(source, path) for path in sources.dataset_files(cell.request["data_dir"]))


def _check_same_length(cell: Cell, stored: Config, wanted: Config) -> None:
    """RunError if training was to take other steps, or other minutes."""
    first, second = (f"steps {c.steps}" if c.minutes is None else f"minutes {c.minutes:g}" for c in (stored, wanted))
    if first != second:
        is_same_kind = (stored.minutes is None) == (wanted.minutes is None)
        raise _started_otherwise(cell, first, second.rpartition(" ")[2] if is_same_kind else second)


def _check_same(cell: Cell, name: str, stored: Any, wanted: Any) -> None:
    if stored != wanted:
        raise _started_otherwise(cell, f"{name.replace('_', '-')} {_plain(stored)}", _plain(wanted))


def _started_otherwise(cell: Cell, stored: str, wanted: str) -> RunError:
    return RunError(
        f"{cell.directory} was started with {stored}, not {wanted}; "
        "give the old settings to go on with it, or another --out"
    )


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
