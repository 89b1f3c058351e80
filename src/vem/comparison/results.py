"""What the runs of a comparison gave, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import stdev
from typing import Any, Literal

from vem.comparison.job import Job
from vem.estimation.estimate import Estimate
from vem.evaluation.results import Evaluation
from vem.evaluation.statistics import SIGNS, Mark, OverTasks, Spread, Table, mark_best, over_tasks


@dataclass(frozen=True)
class Result:
    """What a run gave."""

    dataset: str
    label: str
    """The job's: the method in a comparison, the swept values in a sweep."""
    algorithm: str
    directory: Path
    """The run directory."""
    swept: dict[str, Any] = field(default_factory=dict)
    """Setting → value, in a sweep."""
    evaluation: Evaluation | None = None
    estimate: Estimate | None = None
    """In place of the evaluation, of data without an environment."""
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
        """``score`` where the environment has reference scores, else ``return``; ``estimate`` without one."""
        if self.estimate is not None:
            return "estimate"
        return "score" if self.evaluation is None or self.evaluation.references else "return"

    @property
    def spread(self) -> Spread | None:
        """The quantity over seeds; None without a result, or if every episode failed."""
        if self.estimate is not None:
            return _spread_of(self.estimate)
        if self.evaluation is None:
            return None
        return self.evaluation.score if self.quantity == "score" else self.evaluation.returns

    @property
    def text(self) -> str:
        """Mean, deviation over seeds and interval, as the table shows them."""
        if self.spread is None:
            return "failed  " if self.error else "-  "
        mean, std, _, interval = self.spread
        form = ".4g" if self.estimate else ".1f"
        spread = "" if std is None else f" ± {std:{form}}"
        ends = "" if interval is None else f" [{interval[0]:{form}}, {interval[1]:{form}}]"
        return f"{mean:{form}}{spread}{ends}{SIGNS[self.mark]}"

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        references, estimate = self.evaluation.references if self.evaluation else None, self.estimate
        log = {"log": estimate.log._asdict(), "discount": estimate.discount} if estimate else {}
        return {
            "dataset": self.dataset,
            "algorithm": self.algorithm,
            **({"swept": self.swept} if self.swept else {}),
            "run": str(self.directory),
            "quantity": self.quantity,
            "references": references.source if references else None,
            **(self.spread._asdict() if self.spread else {}),
            **log,
            "steps": self.steps,
            "core_seconds": self.core_seconds,
            "mark": self.mark,
            "error": self.error,
        }


@dataclass(frozen=True)
class Comparison:
    """The results of all runs, dataset by dataset; printing it gives a table."""

    results: tuple[Result, ...]
    episodes: int
    """Evaluation episodes of each policy, where there is an environment."""
    columns: Literal["label", "dataset"] = "label"
    """What the table's columns are; its rows are the other."""

    @property
    def evaluated(self) -> list[Path]:
        """The run directories that have a result, for ``vem.report.write_report``."""
        return [result.directory for result in self.results if result.spread is not None]

    @property
    def failures(self) -> dict[str, str]:
        """Dataset and label of each run that failed → why."""
        return {f"{r.dataset} {r.label}": r.error for r in self.results if r.error is not None}

    def result(self, dataset: str, label: str) -> Result:
        """The result of one run: that of a method, or of swept values such as ``expectile=0.3``."""
        return next(r for r in self.results if (r.dataset, r.label) == (dataset, label))

    @property
    def table(self) -> Table:
        """The table that is printed: rows datasets and columns methods, or rows swept values and columns datasets."""
        labels = "settings" if any(result.swept for result in self.results) else "method"
        corner = "dataset" if self.columns == "label" else labels
        columns = list(dict.fromkeys(getattr(result, self.columns) for result in self.results))
        rows: dict[str, dict[str, str]] = {}
        for result in self.results:
            row, column = (result.dataset, result.label)[:: 1 if self.columns == "label" else -1]
            rows.setdefault(row, {})[column] = result.text
        cells = [[name, *(row.get(column, "-") for column in columns)] for name, row in rows.items()]
        return Table(self._title, [corner, *columns], cells, self._notes)

    @property
    def _title(self) -> str:
        evaluations = [result.evaluation for result in self.results if result.evaluation is not None]
        estimates = [result.estimate for result in self.results if result.estimate is not None]
        trials = {len(one.groups[0].trials) for one in (*evaluations, *estimates)}
        seeds = f"{max(trials)} seed{'s' if trials != {1} else ''}" if len(trials) == 1 else "seeds"
        references = sorted({one.references.source for one in evaluations if one.references})
        quantity = f"score (references: {'; '.join(references)})" if references else "return"
        if estimates and not evaluations:
            discounts = ", ".join(sorted({f"{one.discount:g}" for one in estimates}))
            return f"estimated discounted return (γ = {discounts}), no score: mean ± std over {seeds} [95 %]"
        return f"{quantity}, mean ± std over {seeds} [95 %], {self.episodes} episodes a seed"

    @property
    def _notes(self) -> list[str]:
        notes = []
        if any(result.mark for result in self.results):
            notes.append(
                "* best   ≈ within the best one's interval, which says how exactly the policies were measured, not the "
                "seeds"
            )
        if len({result.quantity for result in self.results if result.evaluation}) > 1:
            notes.append("datasets without reference scores show returns")
        by_dataset = {result.dataset: result for result in self.results if result.estimate is not None}
        return [*notes, *(_estimate_note(result) for result in by_dataset.values())]

    @cached_property
    def over_datasets(self) -> OverTasks | None:
        """Statistics over the datasets with reference scores; None unless two datasets and two methods have scores."""
        scores: dict[str, dict[str, list[float]]] = {result.label: {} for result in self.results}
        unscored = list(dict.fromkeys(r.dataset for r in self.results if r.spread and r.quantity != "score"))
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


def read_comparison(jobs: Sequence[Job], columns: Literal["label", "dataset"] = "label") -> Comparison:
    """The results of the jobs, in order; the best of each dataset marked, and those within its interval."""
    results = [_read_result(job) for job in jobs]
    by_dataset: dict[str, list[int]] = {}
    for index, result in enumerate(results):
        if result.spread is not None:
            by_dataset.setdefault(result.dataset, []).append(index)
    for indices in by_dataset.values():
        marks = mark_best([spread for index in indices if (spread := results[index].spread) is not None])
        for index, mark in zip(indices, marks, strict=True):
            results[index] = dataclasses.replace(results[index], mark=mark)
    return Comparison(tuple(results), jobs[0].episodes if jobs else 0, columns)


def _read_result(job: Job) -> Result:
    files, error = job.files, job.failure()
    result = Result(job.dataset, job.label, job.request.algorithm, job.directory, job.swept, error=error)
    if not files.is_run:
        return result
    result = dataclasses.replace(result, steps=files.config.steps, core_seconds=files.core_seconds)
    found = job.result(files) if files.is_finished else None
    if found is None:
        return result
    result = dataclasses.replace(result, **{"estimate" if isinstance(found, Estimate) else "evaluation": found})
    if isinstance(found, Evaluation) and result.spread is None and error is None:
        return dataclasses.replace(result, error=f"every episode failed, first: {found.first_error}")
    return result


def _spread_of(estimate: Estimate) -> Spread | None:
    """The values of the policies that differ by their seed alone; the interval is that of their mean."""
    group = estimate.groups[0]
    values = [value for name in group.trials if (value := estimate.policies[name].value.value) is not None]
    if group.value.value is None:
        return None
    mean, std = group.value.value, stdev(values) if len(values) > 1 else None
    return Spread(mean, std, mean, group.value.interval)


def _estimate_note(result: Result) -> str:
    """What the numbers of a dataset without an environment are."""
    estimate = result.estimate
    assert estimate is not None
    return (
        f"{result.dataset} names no environment: its numbers are estimates on the {100 * estimate.hold_out:.3g} % of "
        f"trajectories that were held out ({estimate.num_trajectories}), no scores; the log itself has "
        f"{estimate.log.text}. Choose with: vem select {result.directory.parent}"
    )
