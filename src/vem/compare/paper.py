"""The paper's table 1 beside what was measured here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from vem.compare.cells import matching_evaluation
from vem.compare.paper_data import PAPER_TASKS, PaperData, paper_data
from vem.data.sources import search_directories
from vem.errors import DataError, RunError
from vem.evaluation.over_tasks import OverTasks, over_tasks
from vem.evaluation.statistics import SIGNS, Mark, Spread, mark_best
from vem.evaluation.table import Table
from vem.runs.directory import RunDirectory
from vem.tasks import TASKS, find_task

COLUMNS = ("vem", "bail", "bcq", "cql", "awr")
"""The methods in the paper's table."""
METHODS = ("vem", "vem-paper", "bc", "awr", "bail", "bcq", "bcq-em", "cql", "iql", "td3bc")
"""The cells that are run by default: ours, the paper's reading of VEM, and the baselines."""
MINUTES = 20.0
"""Training time of a cell by default, in minutes of one core for all seeds together."""

DIFFERENCE = """paper: D4RL's own files and simulator; BCQ, CQL and AWR as others published them.
ours: the files found on this machine, in vem's environments on today's MuJoCo. The data differ, unless the files are
D4RL's own, and the simulator does: read the columns side by side, not as a replication."""


class Measured(NamedTuple):
    """The score of a cell, and what its training took."""

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
        return [f"training took {min(taken):.1f} to {max(taken):.1f} core-minutes a cell, all seeds together{equal}"]

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
    """The paper's table beside the cells below ``out`` that were evaluated with the task's own references."""
    ours: dict[str, dict[str, Measured]] = {}
    recipes = {}
    for task, files in _runs_below(Path(out)):
        evaluation = matching_evaluation(files)
        references = evaluation.references if evaluation else None
        if evaluation and evaluation.score and references and references.source == TASKS[task].references:
            took = (files.config.steps, files.config.minutes, files.core_seconds)
            ours.setdefault(task, {})[files.path.name] = Measured(evaluation.score, evaluation.seed_scores, *took)
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


def _runs_below(out: Path) -> Iterator[tuple[str, RunDirectory]]:
    """The table's task and the run of each cell below ``out``; what is no run is left out."""
    for directory in sorted(out.glob("*/*/")):
        task, files = find_task(directory.parent.name), RunDirectory(directory)
        try:
            if task is not None and task.name in PAPER_TASKS and files.config:
                yield task.name, files
        except RunError:
            continue


def _text(mean: float, std: float | None) -> str:
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"
