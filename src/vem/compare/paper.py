"""The paper's table 1 beside what was measured here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vem.compare.cells import matching_evaluation
from vem.data.sources import available, search_directories
from vem.errors import DataError, RunError
from vem.evaluation.statistics import Spread
from vem.evaluation.table import Table
from vem.runs.directory import RunDirectory
from vem.tasks import D4RL_REFERENCES, TASKS, find_task

METHODS = ("vem", "bail", "bcq", "cql", "awr")
"""The columns of the paper's table, and the methods that are run by default."""

DIFFERENCE = """paper: D4RL's own files and simulator; BCQ, CQL and AWR as others published them.
ours: the files found on this machine, in vem's environments on today's MuJoCo. The data differ, unless the files are
D4RL's own, and the simulator does: read the columns side by side, not as a replication."""


@dataclass(frozen=True)
class PaperComparison:
    """The paper's scores, the data on this machine, and the scores measured on it; printing it gives a table."""

    files: dict[str, list[str]]
    """Task → its files on this machine."""
    ours: dict[str, dict[str, Spread]]
    """Task → method → the score over seeds."""
    recipes: dict[str, str]
    """Task → how its file says that it was made, where it says so."""

    @property
    def table(self) -> Table:
        """Rows tasks; columns the paper's methods, then ours."""
        found = {method for row in self.ours.values() for method in row}
        columns = [*(method for method in METHODS if method in found), *sorted(found - set(METHODS))]
        rows = []
        for name, files in self.files.items():
            paper, ours = TASKS[name].paper_scores, self.ours.get(name, {})
            theirs = [_text(s.mean, s.std) if (s := paper.get(method)) else "-" for method in METHODS]
            own = [_text(s.mean, s.std) if (s := ours.get(method)) else "" for method in columns]
            rows.append([name, "here" if files else "absent", *theirs, *own])
        header = ["dataset", "data", *(f"paper {m}" for m in METHODS), *(f"ours {m}" for m in columns)]
        notes = [DIFFERENCE, *(f"  {name}: {recipe}" for name, recipe in self.recipes.items())]
        return Table("the paper's table 1: normalized score, mean ± std over seeds", header, rows, notes)

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
                "name": name,
                "files": files,
                "paper": {m: {"mean": s.mean, "std": s.std} for m, s in TASKS[name].paper_scores.items()},
                "ours": {method: spread._asdict() for method, spread in self.ours.get(name, {}).items()},
            }
            for name, files in self.files.items()
        ]
        return {"tasks": tasks, "difference": DIFFERENCE}


def read_paper_comparison(out: str | Path, data_dir: str | None = None) -> PaperComparison:
    """The paper's table beside the cells below ``out`` that were evaluated and have D4RL's references."""
    ours: dict[str, dict[str, Spread]] = {}
    recipes = {}
    for task, files in _runs_below(Path(out)):
        evaluation = matching_evaluation(files)
        references = evaluation.references if evaluation else None
        if evaluation and evaluation.score and references and references.source == D4RL_REFERENCES:
            ours.setdefault(task, {})[files.path.name] = evaluation.score
        if recipe := files.facts.info.metadata.get("recipe"):
            recipes[task] = str(recipe)
    return PaperComparison(paper_files(data_dir), ours, recipes)


def paper_files(data_dir: str | None = None) -> dict[str, list[str]]:
    """The paper's 23 tasks, each with its files on this machine."""
    return {entry.name: entry.files for entry in available(data_dir) if entry.kind == "benchmark"}


def paper_datasets(data_dir: str | None = None) -> list[str]:
    """The paper's tasks whose data is on this machine; DataError if there are none."""
    names = [name for name, files in paper_files(data_dir).items() if files]
    if not names:
        places = ", ".join(map(str, search_directories(data_dir)))
        raise DataError(f"none of the paper's 23 datasets is in {places}; put the files there, or give --data-dir DIR")
    return names


def _runs_below(out: Path) -> Iterator[tuple[str, RunDirectory]]:
    """The paper's task and the run of each cell below ``out``; what is no run is left out."""
    for directory in sorted(out.glob("*/*/")):
        task, files = find_task(directory.parent.name), RunDirectory(directory)
        try:
            if task is not None and task.paper_scores and files.config:
                yield task.name, files
        except RunError:
            continue


def _text(mean: float, std: float | None) -> str:
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"
