"""The paper's table 1 beside what was measured here."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vem.collect.benchmark import CLONED_TASKS, RANDOM_TASKS, write_cloned, write_random
from vem.collect.recorder import Report
from vem.comparison.job import matching_evaluation
from vem.comparison.remote import is_address
from vem.data.load import dataset_files, matches, search_directories
from vem.data.mazes import write_maze
from vem.errors import DataError, RunError, SettingsError, VemError
from vem.evaluation.statistics import SIGNS, Mark, OverTasks, Spread, Table, mark_best, over_tasks
from vem.tasks import TASKS, d4rl_file, find_task
from vem.training.files import RunFiles

# The data of the paper's table: which is on this machine, which can be made here, and where the rest comes from.


OWN_TASK = "pointmaze-large"
"""A line of our own below the paper's: its data needs no foreign file."""
PAPER_TASKS = (*(name for name, task in TASKS.items() if task.paper_scores), OWN_TASK)
HANDS = ("door", "hammer", "relocate", "pen")


class PaperData(NamedTuple):
    """A dataset of the table."""

    name: str
    files: list[str]
    """Where it is on this machine, the file that is used first."""
    command: str | None
    """What makes it here, if anything does."""
    advice: str
    """How to get it otherwise; empty where nothing else is needed."""
    origin: str | None = None
    """The file that it is made from, if any."""
    source: str = ""
    """What ``vem.load`` takes for it, if it is here: its name where that is enough."""

    @property
    def state(self) -> Literal["here", "to make", "absent"]:
        """Whether it is here, can be made here, or has to be brought."""
        return "here" if self.files else "to make" if self.command else "absent"

    @property
    def text(self) -> str:
        """How to get what is not here."""
        return f"make it: {self.command}" if self.command else self.advice


def made_place(out: str | Path, data_dir: str | None = None) -> Path:
    """Where made data goes: the data directory if one is given, else ``data`` below ``out``."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if is_address(out):
        raise SettingsError(f"data cannot be made at {out}; give a folder for it with --data-dir DIR")
    return Path(out) / "data"


def paper_data(out: str | Path, data_dir: str | None = None) -> list[PaperData]:
    """The datasets of the table, in the paper's order."""
    place = None if is_address(out) and data_dir is None else made_place(out, data_dir)
    files = dataset_files(data_dir)
    if place is not None and place not in search_directories(data_dir):
        files += dataset_files(place)
    files = list(dict.fromkeys(files))
    found = {name: [str(path) for path in files if matches(name, path)] for name in TASKS}
    named = set(search_directories(data_dir))
    entries = []
    for name in PAPER_TASKS:
        is_named = name != OWN_TASK and any(Path(file).parent in named for file in found[name])
        source = name if is_named else next(iter(found[name]), "")
        entries.append(_entry(name, found, place or Path())._replace(source=source))
    return entries


def _entry(name: str, found: dict[str, list[str]], place: Path) -> PaperData:
    out = shlex.quote(str(place / f"{name}.hdf5"))
    file = d4rl_file(name)
    if name in RANDOM_TASKS or name == OWN_TASK:
        return PaperData(name, found[name], f"vem data make {name} --out {out}", "")
    if name in CLONED_TASKS:
        human = name.replace("-cloned", "-human")
        if found[human]:
            origin = found[human][0]
            command = f"vem data make {name} --from {shlex.quote(origin)} --out {out}"
            return PaperData(name, found[name], command, "", origin)
        return PaperData(name, found[name], None, f"D4RL's {file}; or make it from {human}, once that is here")
    if name.startswith("antmaze-"):
        walking = f"vem data make {name} --walker FILE --out {out}, with a policy that walks"
        return PaperData(name, found[name], None, f"D4RL's {file}; or {walking}")
    advice = f"D4RL's {file}"
    if (hand := name.split("-")[0]) in HANDS:
        kind = name.removeprefix(f"{hand}-")
        advice += f"; Minari has D4RL/{hand}/{kind}-v2 with other rewards: vem compare minari:… --task {name}"
    return PaperData(name, found[name], None, advice)


def make_missing(
    entries: Iterable[PaperData],
    place: Path,
    say: Callable[[str], None],
    report: Report = lambda what, done, total: None,
    num_rows: int | None = None,
) -> dict[str, str]:
    """Make what can be made into ``place``; name → why, for what failed. An interrupted trajectory goes on."""
    failures = {}
    for entry in entries:
        if entry.state != "to make":
            continue
        path = place / f"{entry.name}.hdf5"
        say(f"{entry.name}: making {path}")
        try:
            _make(entry, path, report, {} if num_rows is None else {"num_rows": num_rows})
        except VemError as error:
            failures[entry.name] = str(error)
            say(f"{entry.name}: failed: {error}")
    return failures


def _make(entry: PaperData, path: Path, report: Report, given: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path.parent} cannot be made ({error.strerror or error}); give another --data-dir") from None
    if entry.name in RANDOM_TASKS:
        write_random(path, entry.name, **given, report=report)
    elif entry.origin is not None:
        write_cloned(path, entry.name, entry.origin, **given, report=report)
    else:
        write_maze(path, entry.name, **given)


COLUMNS = ("vem", "bail", "bcq", "cql", "awr")
"""The methods in the paper's table."""
METHODS = ("vem", "vem-paper", "bc", "awr", "bail", "bcq", "bcq-em", "cql", "iql", "td3bc")
"""What is run by default: ours, the paper's reading of VEM, and the baselines."""
MINUTES = 20.0
"""Training time of a run by default, in minutes of one core for all seeds together."""

DIFFERENCE = """paper: D4RL's own files and simulator; BCQ, CQL and AWR as others published them.
ours: the files found on this machine, in vem's environments on today's MuJoCo. The data differ, unless the files are
D4RL's own, and the simulator does: read the columns side by side, not as a replication."""


class Measured(NamedTuple):
    """The score of a run, and what its training took."""

    score: Spread
    seeds: Sequence[float]
    """The score of each seed."""
    steps: int
    minutes: float | None
    """Minutes of one core that were asked for, if they were."""
    core_seconds: float | None
    """What it took on all cores together, if that is recorded."""

    def to_json(self) -> dict[str, Any]:
        """The score over seeds and the other fields as JSON values."""
        return {**self.score._asdict(), **{name: getattr(self, name) for name in self._fields if name != "score"}}


@dataclass(frozen=True)
class PaperComparison:
    """The paper's scores, the data on this machine, and the scores measured on it; printing it gives a table."""

    data: list[PaperData]
    """The table's datasets: those of the paper, then one of our own."""
    ours: dict[str, dict[str, Measured]]
    """Task → method → what was measured."""
    recipes: dict[str, str]
    """Task → how its file says that it was made, where it says so."""

    @property
    def methods(self) -> list[str]:
        """Those that were measured, ours first."""
        found = {method for row in self.ours.values() for method in row}
        return [*(method for method in METHODS if method in found), *sorted(found - set(METHODS))]

    @cached_property
    def over_datasets(self) -> OverTasks | None:
        """Statistics over the tasks that all methods were measured on; None unless there is enough."""
        over = over_tasks(
            {
                method: {task: row[method].seeds for task, row in self.ours.items() if method in row}
                for method in self.methods
            }
        )
        return over if over.is_enough else None

    @property
    def tables(self) -> list[Table]:
        """The table, and that over all tasks if there is enough."""
        return [self.table, *([self.over_datasets.table] if self.over_datasets else [])]

    @property
    def table(self) -> Table:
        """Rows tasks; columns the paper's methods, then ours, the best of ours marked."""
        columns = self.methods
        rows = []
        for entry in self.data:
            paper, ours = TASKS[entry.name].paper_scores, self.ours.get(entry.name, {})
            theirs = [_text(s.mean, s.std) if (s := paper.get(method)) else "-" for method in COLUMNS]
            marks = self._marks(entry.name)
            own = [
                _text(s.score.mean, s.score.std) + SIGNS[marks[method]] if (s := ours.get(method)) else ""
                for method in columns
            ]
            rows.append([entry.name, entry.state, *theirs, *own])
        header = ["dataset", "data", *(f"paper {m}" for m in COLUMNS), *(f"ours {m}" for m in columns)]
        marked = "* best of ours   ≈ within the best one's interval, which says how exactly the policies were measured"
        notes = [*([marked] if self.ours else []), DIFFERENCE]
        notes += [*(f"  {name}: {recipe}" for name, recipe in self.recipes.items()), *self._time_notes]
        missing = [f"  {entry.name}: {entry.text}" for entry in self.data if entry.state != "here"]
        if missing:
            notes += ["data that is not here, and how to get it:", *missing]
        return Table("the paper's table 1: normalized score, mean ± std over seeds", header, rows, notes)

    @property
    def _time_notes(self) -> list[str]:
        """One line on what training took, if it is known."""
        cells = [one for row in self.ours.values() for one in row.values()]
        taken = [one.core_seconds / 60 for one in cells if one.core_seconds]
        if not taken:
            return []
        asked = {one.minutes for one in cells}
        equal = f", {asked.pop():g} asked for" if len(asked) == 1 and None not in asked else ""
        return [f"training took {min(taken):.1f} to {max(taken):.1f} core-minutes a run, all seeds together{equal}"]

    def __str__(self) -> str:
        """The tables as text."""
        return "\n\n".join(map(str, self.tables))

    def _repr_html_(self) -> str:
        """The tables in a notebook."""
        return "".join(table._repr_html_() for table in self.tables)

    def _marks(self, task: str) -> dict[str, Mark]:
        """Method → whether it is the best of ours on a task, or within the interval of the best."""
        row = self.ours.get(task, {})
        return dict(zip(row, mark_best([one.score for one in row.values()]), strict=True))

    def to_json(self) -> dict[str, Any]:
        """The tasks as JSON values."""
        tasks = [
            {
                "name": entry.name,
                "data": entry.state,
                "files": entry.files,
                "make": entry.command,
                "get": entry.advice or None,
                "paper": {m: {"mean": s.mean, "std": s.std} for m, s in TASKS[entry.name].paper_scores.items()},
                "ours": {
                    method: {**one.to_json(), "mark": self._marks(entry.name)[method]}
                    for method, one in self.ours.get(entry.name, {}).items()
                },
            }
            for entry in self.data
        ]
        over = self.over_datasets
        return {"tasks": tasks, "over_datasets": over and over.to_json(), "difference": DIFFERENCE}


def read_paper_comparison(out: str | Path, data_dir: str | None = None) -> PaperComparison:
    """The paper's table beside the runs below ``out`` that were evaluated with the task's own references."""
    ours: dict[str, dict[str, Measured]] = {}
    recipes = {}
    for task, files in _runs_below(Path(out)):
        evaluation = matching_evaluation(files)
        references = evaluation.references if evaluation else None
        if evaluation and evaluation.score and references and references.source == TASKS[task].references:
            took = (files.config.steps, files.config.minutes, files.core_seconds)
            ours.setdefault(task, {})[files.directory.name] = Measured(evaluation.score, evaluation.seed_scores, *took)
        if recipe := files.facts.info.metadata.get("recipe"):
            recipes[task] = str(recipe)
    return PaperComparison(paper_data(out, data_dir), ours, recipes)


def paper_sources(out: str | Path, data_dir: str | None = None) -> list[str]:
    """What ``vem.compare`` takes for the table's datasets that are on this machine; DataError if there are none."""
    found = [entry.source for entry in paper_data(out, data_dir) if entry.state == "here"]
    if not found:
        places = ", ".join(map(str, search_directories(data_dir)))
        raise DataError(
            f"none of the paper's datasets is in {places}; put the files there, give --data-dir DIR, or have what can "
            "be made here made with --run"
        )
    return found


def _runs_below(out: Path) -> Iterator[tuple[str, RunFiles]]:
    """The table's task and the run of each method below ``out``; what is no run is left out."""
    for directory in sorted(out.glob("*/*/")):
        task, files = find_task(directory.parent.name), RunFiles(directory)
        try:
            if task is not None and task.name in PAPER_TASKS and files.config:
                yield task.name, files
        except RunError:
            continue


def _text(mean: float, std: float | None) -> str:
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"
