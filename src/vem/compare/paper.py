"""The paper's table 1 beside what was measured here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from vem.compare.cells import matching_evaluation
from vem.compare.paper_data import PAPER_TASKS, PaperData, paper_data
from vem.data.sources import search_directories
from vem.errors import DataError, RunError
from vem.evaluation.statistics import Spread
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


class Training(NamedTuple):
    """What a cell's training took."""

    steps: int
    minutes: float | None
    """Minutes of one core that were asked for, if they were."""
    core_seconds: float | None
    """What it took on all cores together, if that is recorded."""


@dataclass(frozen=True)
class PaperComparison:
    """The paper's scores, the data on this machine, and the scores measured on it; printing it gives a table."""

    data: list[PaperData]
    """The table's datasets: those of the paper, then one of our own."""
    ours: dict[str, dict[str, Spread]]
    """Task → method → the score over seeds."""
    recipes: dict[str, str]
    """Task → how its file says that it was made, where it says so."""
    training: dict[str, dict[str, Training]] = field(default_factory=dict)
    """Task → method → what training took."""

    @property
    def table(self) -> Table:
        """Rows tasks; columns the paper's methods, then ours."""
        found = {method for row in self.ours.values() for method in row}
        columns = [*(method for method in METHODS if method in found), *sorted(found - set(METHODS))]
        rows = []
        for entry in self.data:
            paper, ours = TASKS[entry.name].paper_scores, self.ours.get(entry.name, {})
            theirs = [_text(s.mean, s.std) if (s := paper.get(method)) else "-" for method in COLUMNS]
            own = [_text(s.mean, s.std) if (s := ours.get(method)) else "" for method in columns]
            rows.append([entry.name, entry.state, *theirs, *own])
        header = ["dataset", "data", *(f"paper {m}" for m in COLUMNS), *(f"ours {m}" for m in columns)]
        notes = [DIFFERENCE, *(f"  {name}: {recipe}" for name, recipe in self.recipes.items()), *self._time_notes]
        missing = [f"  {entry.name}: {entry.text}" for entry in self.data if entry.state != "here"]
        if missing:
            notes += ["data that is not here, and how to get it:", *missing]
        return Table("the paper's table 1: normalized score, mean ± std over seeds", header, rows, notes)

    @property
    def _time_notes(self) -> list[str]:
        """One line on what training took, if it is known."""
        taken = [one.core_seconds / 60 for row in self.training.values() for one in row.values() if one.core_seconds]
        if not taken:
            return []
        asked = {one.minutes for row in self.training.values() for one in row.values()}
        equal = f", {asked.pop():g} asked for" if len(asked) == 1 and None not in asked else ""
        return [f"training took {min(taken):.1f} to {max(taken):.1f} core-minutes a cell, all seeds together{equal}"]

    def __str__(self) -> str:
        """The table as text."""
        return str(self.table)

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        return self.table._repr_html_()

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
                    method: {**spread._asdict(), **self.training[entry.name][method]._asdict()}
                    for method, spread in self.ours.get(entry.name, {}).items()
                },
            }
            for entry in self.data
        ]
        return {"tasks": tasks, "difference": DIFFERENCE}


def read_paper_comparison(out: str | Path, data_dir: str | None = None) -> PaperComparison:
    """The paper's table beside the cells below ``out`` that were evaluated with the task's own references."""
    ours: dict[str, dict[str, Spread]] = {}
    training: dict[str, dict[str, Training]] = {}
    recipes = {}
    for task, files in _runs_below(Path(out)):
        evaluation = matching_evaluation(files)
        references = evaluation.references if evaluation else None
        if evaluation and evaluation.score and references and references.source == TASKS[task].references:
            ours.setdefault(task, {})[files.path.name] = evaluation.score
            taken = Training(files.config.steps, files.config.minutes, files.core_seconds)
            training.setdefault(task, {})[files.path.name] = taken
        if recipe := files.facts.info.metadata.get("recipe"):
            recipes[task] = str(recipe)
    return PaperComparison(paper_data(out, data_dir), ours, recipes, training)


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
