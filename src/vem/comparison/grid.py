"""One method, with one choice of settings, on one dataset: a run directory, trained and evaluated once.

OUT/<dataset>/<label>/              the run (``vem.training.run``), with its evaluation
OUT/<dataset>/<label>.failed.json   why the cell's newest attempt failed
OUT/<dataset>/<label>.log           what the cell's own process printed, if it had one

The label is the method's name in a comparison, and the swept values in a sweep.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vem.algorithms.base import build, convert, find_method, find_preset, split_label, type_hints
from vem.data.dataset import Dataset
from vem.data.load import BUILT_IN, READERS, dataset_files, matches
from vem.errors import RunError, SettingsError, VemError
from vem.evaluation.environments import find_environment, own_environment
from vem.evaluation.evaluate import evaluate, how_acting
from vem.evaluation.results import Evaluation, read_evaluation
from vem.policy import load_policy
from vem.storage import write_json
from vem.tasks import Task, find_task, task_of
from vem.training.request import Request, check_rules, make_request, repeated
from vem.training.run import Run

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
    """Arguments of ``make_request`` that were asked for; the task is the data's."""
    swept: dict[str, Any] = field(default_factory=dict)
    """Settings that differ between the cells of a sweep → their values here."""
    data: Dataset | None = field(default=None, repr=False, compare=False)
    """The dataset, if it was given and not named."""

    @property
    def name(self) -> str:
        """For messages: dataset and label."""
        return f"{self.dataset} {self.label}"

    @property
    def files(self) -> Run:
        """The run's files."""
        return Run(self.directory)

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

    def config(self, task: Task | None = None) -> Request:
        """The request on data of this task; some presets have settings for a task's family."""
        return make_request(**self.request).for_task(task)

    def load(self) -> Dataset:
        """The dataset, read by the rules of the request."""
        config = self.config()
        if self.data is not None:
            return repeated(self.data, config.rules.get("repeat_terminals", False))
        return config.load()


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


def matching_evaluation(files: Run, num_episodes: int | None = None) -> Evaluation | None:
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
        return Run.create(cell.directory, make_request(**cell.request), dataset)
    return Run.open(cell.directory, dataset).begin()


def _is_at_hand(cell: Cell) -> bool:
    """Whether the dataset can be expected to load; cheap, so False is not a verdict."""
    source = cell.request["data"]
    if cell.data is not None or source in BUILT_IN or Path(source).is_file():
        return True
    return any(matches(source, path) for path in dataset_files(cell.request["data_dir"]))


def _check_same_length(cell: Cell, stored: Request, wanted: Request) -> None:
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


# The cells of a comparison (datasets × methods) and of a sweep (datasets × combinations of settings).


DEFAULT_STEPS = 100_000
RULES = ("split", "time_limit", "teleports", "task", "discrete", "action_bounds", "mapping", "repeat_terminals")
"""The reading rules by which a dataset in hand is read again from its file."""
MOST_CELLS = 10_000
LONGEST_LABEL = 200
"""Letters of a label, which is a directory's name."""


class Choice(NamedTuple):
    """A method and its settings: what a cell does with its dataset."""

    label: str
    algorithm: str
    preset: str
    settings: dict[str, Any]
    steps: int
    swept: dict[str, Any]
    minutes: float | None = None
    """In place of steps: minutes of one core for all seeds together."""


def make_cells(
    datasets: Sequence[str | Dataset],
    algorithms: Sequence[str],
    out: str | Path,
    *,
    seeds: int | Sequence[int] = 3,
    steps: int | Mapping[str, int] | None = None,
    minutes: float | None = None,
    preset: str = "default",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    rules: Mapping[str, Any] | None = None,
    data_dir: str | None = None,
    hold_out: float = 0.0,
) -> list[Cell]:
    """The cells of a comparison, checked, dataset by dataset; nothing is read or written.

    ``steps`` is given for all methods or by name, or else ``minutes`` of one core; ``settings`` are given by name. A
    method may be named with its preset, as in ``vem-paper``; of the others, those that lack ``preset`` take their
    default. ``rules`` say how named datasets are read; those in hand must have been loaded by the presets' rules.
    """
    _check_unique(algorithms, "algorithm")
    if steps is not None and minutes is not None:
        raise SettingsError("--steps and --minutes are both given; steps follow from minutes: leave one out")
    named = {label: split_label(label) for label in algorithms}
    if preset != "default" and not any(preset in find_method(name).presets for name, _ in named.values()):
        raise SettingsError(f"none of {', '.join(algorithms)} has a preset {preset!r}")
    steps = DEFAULT_STEPS if steps is None else steps
    for label in (*(settings or {}), *([] if isinstance(steps, int) else steps)):
        split_label(label)  # a misspelled name would set nothing
    choices = [
        Choice(
            label,
            name,
            own or _preset_of(name, preset),
            dict((settings or {}).get(label, {})),
            steps if isinstance(steps, int) else steps.get(label, DEFAULT_STEPS),
            {},
            minutes,
        )
        for label, (name, own) in named.items()
    ]
    return _lay_out(datasets, choices, out, seeds, rules, data_dir, hold_out)


def make_sweep_cells(
    datasets: Sequence[str | Dataset],
    algorithm: str,
    values: Mapping[str, Sequence[Any]],
    out: str | Path,
    *,
    seeds: int | Sequence[int] = 3,
    steps: int = DEFAULT_STEPS,
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
    data_dir: str | None = None,
    hold_out: float = 0.0,
) -> list[Cell]:
    """The cells of a sweep, checked: one for each dataset and each combination of ``values``, by setting.

    ``settings`` are the same in all of them.
    """
    swept = {name: _distinct(algorithm, name, several) for name, several in values.items()}
    if not any(len(several) > 1 for several in swept.values()):
        raise SettingsError("nothing is swept; give at least one setting several values, such as --discount 0.99,0.997")
    both = [name for name in swept if name in (settings or {})]
    if both:
        raise SettingsError(f"--{both[0].replace('_', '-')} is given both as a setting and as values to sweep")
    choices = []
    for combination in product(*swept.values()):
        chosen = dict(zip(swept, combination, strict=True))
        label = ",".join(f"{name.replace('_', '-')}={label_text(value)}" for name, value in chosen.items())
        if len(label) > LONGEST_LABEL:
            raise SettingsError(f"{label[:60]}… is too long for a directory's name; sweep fewer settings at once")
        choices.append(Choice(label, algorithm, preset, {**(settings or {}), **chosen}, steps, chosen))
    if len(choices) * len(datasets) > MOST_CELLS:
        raise SettingsError(f"the sweep has {len(choices) * len(datasets):,} cells; run at most {MOST_CELLS:,} at once")
    return _lay_out(datasets, choices, out, seeds, rules, data_dir, hold_out)


def split_values(algorithm: str, name: str, text: str) -> list[str]:
    """The values in the text of a flag: between commas, or between slashes if the setting is a list itself."""
    return text.split("/" if _is_list(algorithm, name) else ",")


def label_text(value: Any) -> str:
    """A value as a directory's name has it, e.g. ``0.3``, ``256x256`` or ``none``."""
    if isinstance(value, tuple | list):
        return "x".join(map(label_text, value))
    text = f"{value:.10g}" if isinstance(value, float) else str(value).lower()
    return "".join(letter if letter.isalnum() or letter in "-.+" else "-" for letter in text)


def _lay_out(
    datasets: Sequence[str | Dataset],
    choices: Sequence[Choice],
    out: str | Path,
    seeds: int | Sequence[int],
    rules: Mapping[str, Any] | None,
    data_dir: str | None,
    hold_out: float,
) -> list[Cell]:
    """A cell for every dataset and choice, in the directory ``out/DATASET/LABEL``."""
    names = [dataset_name(dataset) for dataset in datasets]
    _check_unique([d if isinstance(d, str) else name for d, name in zip(datasets, names, strict=True)], "dataset")
    _check_unique(names, "dataset directory")
    cells = []
    for dataset, name in zip(datasets, names, strict=True):
        for choice in choices:
            own = dict(rules or {})
            if not isinstance(dataset, str):
                own = dict(find_preset(choice.algorithm, choice.preset).rules)
                check_rules(dataset, own)
                own = {**_rules(dataset), **own}
            request = {
                "data": dataset if isinstance(dataset, str) else _source(dataset),
                "algorithm": choice.algorithm,
                "preset": choice.preset,
                "settings": choice.settings,
                "seeds": seeds if isinstance(seeds, int) else list(seeds),
                "steps": choice.steps if choice.minutes is None else None,
                "rules": own,
                "data_dir": data_dir,
                "hold_out": hold_out,
                "minutes": choice.minutes,
            }
            data = None if isinstance(dataset, str) else dataset
            directory = Path(out) / name / choice.label
            cells.append(Cell(name, choice.label, choice.algorithm, directory, request, choice.swept, data))
            cells[-1].config(find_task(name))  # settings that cannot be are found before any work
    return cells


def _distinct(algorithm: str, name: str, values: Sequence[Any]) -> list[Any]:
    """The values of a setting, converted to its type and different from each other."""
    config = find_method(algorithm).config
    hint = type_hints(config).get(name)
    if hint is None:
        build(config, {name: None})  # says which settings there are
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise SettingsError(f"--{name.replace('_', '-')} is {values!r}; give a list of values to sweep")
    converted = [convert(value, hint, name) for value in values]
    if not converted or len({label_text(value) for value in converted}) != len(converted):
        raise SettingsError(f"--{name.replace('_', '-')} lists {converted}; give different values")
    return converted


def _is_list(algorithm: str, name: str) -> bool:
    return typing.get_origin(type_hints(find_method(algorithm).config)[name]) is tuple


def dataset_name(dataset: str | Dataset) -> str:
    """The name of a dataset's directory: a file's stem, or a name with its slashes replaced."""
    text = dataset if isinstance(dataset, str) else dataset.info.name
    if text.startswith("minari:"):
        return text.removeprefix("minari:").replace("/", "-")
    path = Path(text)
    return path.stem if path.suffix.lower() in READERS else path.name


def _preset_of(algorithm: str, preset: str) -> str:
    return preset if preset in find_method(algorithm).presets else "default"


def _source(dataset: Dataset) -> str:
    return dataset.info.name if dataset.info.source == "arrays" else dataset.info.source


def _rules(dataset: Dataset) -> dict[str, Any]:
    return {name: dataset.info.rules[name] for name in RULES if name in dataset.info.rules}


def _check_unique(names: Sequence[str], what: str) -> None:
    if not names or "" in names:
        raise SettingsError(f"give at least one {what}, by name")
    repeated = {name for name in names if list(names).count(name) > 1}
    if repeated:
        raise SettingsError(f"the {what} {', '.join(sorted(repeated))} is given twice; each makes one cell")
