"""What the cells of a comparison gave, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from vem.comparison.grid import Cell, matching_evaluation, read_failure
from vem.evaluation.results import Evaluation
from vem.evaluation.statistics import SIGNS, Mark, OverTasks, Spread, Table, mark_best, over_tasks


@dataclass(frozen=True)
class Result:
    """What a cell gave."""

    dataset: str
    label: str
    """The cell's: the method in a comparison, the swept values in a sweep."""
    algorithm: str
    directory: Path
    """The run directory."""
    swept: dict[str, Any] = field(default_factory=dict)
    """Setting → value, in a sweep."""
    evaluation: Evaluation | None = None
    error: str | None = None
    """Why the newest attempt failed, if it did."""
    steps: int | None = None
    """Of each policy; None before the run is made."""
    core_seconds: float | None = None
    """Time that training took on all cores together, all seeds; None where it is not recorded."""
    mark: Mark = ""
    """``best``: the highest mean of the dataset; ``close``: a mean within the best one's interval."""

    @property
    def quantity(self) -> str:
        """``score`` where the environment has reference scores, else ``return``."""
        return "score" if self.evaluation is None or self.evaluation.references else "return"

    @property
    def spread(self) -> Spread | None:
        """The quantity over seeds; None without an evaluation, or if every episode failed."""
        if self.evaluation is None:
            return None
        return self.evaluation.score if self.quantity == "score" else self.evaluation.returns

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        references = self.evaluation.references if self.evaluation else None
        return {
            "dataset": self.dataset,
            "algorithm": self.algorithm,
            **({"swept": self.swept} if self.swept else {}),
            "run": str(self.directory),
            "quantity": self.quantity,
            "references": references.source if references else None,
            **(self.spread._asdict() if self.spread else {}),
            "steps": self.steps,
            "core_seconds": self.core_seconds,
            "mark": self.mark,
            "error": self.error,
        }


@dataclass(frozen=True)
class Comparison:
    """The results of all cells, dataset by dataset; printing it gives a table."""

    results: tuple[Result, ...]
    episodes: int
    """Evaluation episodes of each policy."""
    columns: Literal["label", "dataset"] = "label"
    """What the table's columns are; its rows are the other."""

    @property
    def evaluated(self) -> list[Path]:
        """The run directories that have a result, for ``vem.report.write_report``."""
        return [result.directory for result in self.results if result.spread is not None]

    @property
    def failures(self) -> dict[str, str]:
        """Dataset and label of each cell that failed → why."""
        return {f"{r.dataset} {r.label}": r.error for r in self.results if r.error is not None}

    def result(self, dataset: str, label: str) -> Result:
        """The result of one cell: that of a method, or of swept values such as ``expectile=0.3``."""
        return next(r for r in self.results if (r.dataset, r.label) == (dataset, label))

    @property
    def table(self) -> Table:
        """The table that is printed: rows datasets and columns methods, or rows swept values and columns datasets."""
        corner = "dataset" if self.columns == "label" else "settings"
        columns = list(dict.fromkeys(getattr(result, self.columns) for result in self.results))
        rows: dict[str, dict[str, str]] = {}
        for result in self.results:
            row, column = (result.dataset, result.label)[:: 1 if self.columns == "label" else -1]
            rows.setdefault(row, {})[column] = _text(result)
        found = [result.evaluation for result in self.results if result.evaluation is not None]
        references = sorted({one.references.source for one in found if one.references})
        quantity = f"score (references: {'; '.join(references)})" if references else "return"
        counts = sorted({len(one.groups[0].trials) for one in found})
        seeds = f"{counts[0]} seed{'s' if counts != [1] else ''}" if len(counts) == 1 else "seeds"
        title = f"{quantity}, mean ± std over {seeds} [95 %], {self.episodes} episodes a seed"
        cells = [[name, *(row.get(column, "-") for column in columns)] for name, row in rows.items()]
        notes = []
        if any(result.mark for result in self.results):
            notes.append(
                "* best   ≈ within the best one's interval, which says how exactly the policies were measured, not the "
                "seeds"
            )
        if len({result.quantity for result in self.results if result.spread}) > 1:
            notes.append("datasets without reference scores show returns")
        return Table(title, [corner, *columns], cells, notes)

    @cached_property
    def over_datasets(self) -> OverTasks | None:
        """Statistics over the datasets with reference scores; None unless two datasets and two methods have scores."""
        scores: dict[str, dict[str, list[float]]] = {result.label: {} for result in self.results}
        unscored = list(dict.fromkeys(r.dataset for r in self.results if r.spread and r.quantity == "return"))
        for result in self.results:
            if result.evaluation is not None and result.dataset not in unscored:
                scores[result.label][result.dataset] = result.evaluation.seed_scores
        notes = [f"Datasets left out, without reference scores: {', '.join(unscored)}."] if unscored else []
        over = over_tasks(scores, notes)
        return over if over.is_enough else None

    @property
    def tables(self) -> list[Table]:
        """The table, and that over all datasets if there are several."""
        return [self.table, *([self.over_datasets.table] if self.over_datasets else [])]

    def __str__(self) -> str:
        """The tables as text."""
        return "\n\n".join(map(str, self.tables))

    def _repr_html_(self) -> str:
        """The tables in a notebook."""
        return "".join(table._repr_html_() for table in self.tables)


def read_comparison(cells: Sequence[Cell], episodes: int, columns: Literal["label", "dataset"] = "label") -> Comparison:
    """The results of the cells, in order; the best of each dataset marked, and those within its interval."""
    results = [_read_result(cell, episodes) for cell in cells]
    by_dataset: dict[str, list[int]] = {}
    for index, result in enumerate(results):
        if result.spread is not None:
            by_dataset.setdefault(result.dataset, []).append(index)
    for indices in by_dataset.values():
        marks = mark_best([spread for index in indices if (spread := results[index].spread) is not None])
        for index, mark in zip(indices, marks, strict=True):
            results[index] = dataclasses.replace(results[index], mark=mark)
    return Comparison(tuple(results), episodes, columns)


def _read_result(cell: Cell, episodes: int) -> Result:
    files, error = cell.files, read_failure(cell)
    result = Result(cell.dataset, cell.label, cell.algorithm, cell.directory, cell.swept, error=error)
    if files.is_run:
        result = dataclasses.replace(result, steps=files.config.steps, core_seconds=files.core_seconds)
    if not files.is_run or (evaluation := matching_evaluation(files, episodes)) is None:
        return result
    result = dataclasses.replace(result, evaluation=evaluation)
    if result.spread is None and error is None:
        return dataclasses.replace(result, error=f"every episode failed, first: {evaluation.first_error}")
    return result


def _text(result: Result) -> str:
    if result.spread is None:
        return "failed  " if result.error else "-  "
    mean, std, _, interval = result.spread
    spread = "" if std is None else f" ± {std:.1f}"
    ends = "" if interval is None else f" [{interval[0]:.1f}, {interval[1]:.1f}]"
    return f"{mean:.1f}{spread}{ends}{SIGNS[result.mark]}"
