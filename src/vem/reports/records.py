"""What a report knows of a run: its directory, read without trusting it, and what is missing in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.dataset import Dataset
from vem.errors import RunError, VemError
from vem.estimation.estimate import read_estimate
from vem.evaluation.environments import References
from vem.evaluation.results import read_evaluation
from vem.policy import Policy, load_policy
from vem.tasks import Task, task_of
from vem.training.records import DataFacts, EpisodeRecord, MetricLine
from vem.training.request import Request, Trial
from vem.training.run import Run


@dataclass(frozen=True)
class Series:
    """The trials of a run that differ by their seed alone: one line in a figure, one row in the table."""

    run: RunRecord
    swept: dict[str, float]
    trials: tuple[Trial, ...]

    @property
    def names(self) -> list[str]:
        """Names of the trials."""
        return [trial.name for trial in self.trials]

    @property
    def settings(self) -> dict[str, Any]:
        """The complete settings of these trials."""
        return {**self.run.config.settings, **self.swept}

    @property
    def setting_label(self) -> str:
        """The swept settings, e.g. ``τ = 0.3``; empty without a sweep."""
        return ", ".join(f"{setting_symbol(name)} = {value:g}" for name, value in self.swept.items())

    @property
    def label(self) -> str:
        """The name of this line in figures and tables."""
        return f"{self.run.label}, {self.setting_label}" if self.swept else self.run.label

    def policies(self) -> list[Policy]:
        """The policies that are there, in the trials' order."""
        return [self.run.policies[name] for name in self.names if name in self.run.policies]

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps, and the metric with one line a seed; both empty if it was never recorded."""
        lines = [line for line in self.run.metrics if all(metric in line.trials.get(name, {}) for name in self.names)]
        steps = np.array([line.steps for line in lines], float)
        values = [[line.trials[name][metric] for line in lines] for name in self.names]
        return steps, np.array(values, float).reshape(len(self.names), len(lines))

    @property
    def evaluated_at(self) -> list[int]:
        """Numbers of steps after which these trials were evaluated."""
        wanted = set(self.names)
        return sorted({e.steps for e in self.run.episodes if e.trial in wanted and e.steps is not None})

    def episodes(self, steps: int | None = None) -> list[EpisodeRecord]:
        """Evaluated episodes of these trials after that many steps; None: the newest."""
        wanted, times = set(self.names), self.evaluated_at
        if steps is None and times:
            steps = times[-1]
        return [episode for episode in self.run.episodes if episode.trial in wanted and episode.steps == steps]


@dataclass
class RunRecord:
    """One run directory."""

    files: Run
    config: Request
    data: DataFacts
    metrics: list[MetricLine]
    episodes: list[EpisodeRecord]
    """Those in the data's own environment."""
    references: References | None
    """The returns that score 0 and 100, where known."""
    policies: dict[str, Policy]
    label: str = ""
    notes: list[str] = field(default_factory=list)
    """One sentence for each thing that is missing or damaged, and what to do about it."""

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.files.directory

    @property
    def stored(self) -> dict[str, Any]:
        """All that config.json holds."""
        return {
            "config": self.config.to_json(),
            "data": self.data.to_json(),
            "packages": self.files.packages,
        }

    @property
    def data_name(self) -> str:
        """Name of the dataset."""
        return self.data.info.name

    @property
    def environment(self) -> str | None:
        """Gymnasium id of the evaluation environment, where known."""
        return self.data.info.environment

    @property
    def task(self) -> Task | None:
        """The benchmark task, whose references scores are normalized by."""
        return task_of(self.data.info)

    @property
    def steps_done(self) -> int:
        """Steps that the metrics know of."""
        return self.metrics[-1].steps if self.metrics else 0

    @property
    def series(self) -> list[Series]:
        """One for each combination of swept settings, in the order of the sweep."""
        groups: dict[tuple[tuple[str, float], ...], list[Trial]] = {}
        for trial in self.config.trials:
            groups.setdefault(tuple(trial.swept.items()), []).append(trial)
        return [Series(self, dict(swept), tuple(trials)) for swept, trials in groups.items()]

    @cached_property
    def dataset(self) -> Dataset | None:
        """The recorded data, read again; None, with a note, where that is not possible."""
        if self.data.info.source == "arrays":
            self.notes.append("It was trained on arrays from Python, so figures that need the data are left out.")
            return None
        try:
            dataset = self.config.load()
        except VemError as error:
            self.notes.append(
                f"The dataset cannot be read again ({str(error).rstrip('.')}), so figures that need it are left out; "
                "put the file back and make the report again."
            )
            return None
        if dataset.fingerprint() != self.data.sha256:
            self.notes.append(
                "The dataset has changed since training, so figures that need it are left out; restore the old file."
            )
            return None
        return dataset


def read_run(directory: str | Path) -> RunRecord:
    """The record of a run directory; RunError if it is not one."""
    files = Run(directory)
    config, data = files.config, files.facts
    metrics, episodes = files.metric_lines(), files.episodes()
    notes = [lines.problem for lines in (metrics, episodes) if lines.problem is not None]
    own = [episode for episode in episodes.records if episode.environment is None]
    record = RunRecord(files, config, data, metrics.records, own, _references(files), {}, config.algorithm, notes)
    for trial, path in zip(config.trials, files.policy_paths, strict=True):
        if path.exists():
            try:
                record.policies[trial.name] = load_policy(path)
            except RunError as error:
                notes.append(f"{error}.")
    notes.extend(_damage_notes(files))
    notes.extend(_state_notes(record))
    return record


LABELS: tuple[Callable[[RunRecord], str], ...] = (
    lambda run: run.config.algorithm,
    lambda run: f"{run.config.algorithm} ({run.config.preset})",
    lambda run: run.directory.resolve().name,
    lambda run: str(run.directory),
)
"""What a run may be called, the shortest first."""


def label_runs(runs: list[RunRecord]) -> None:
    """Give runs of one dataset the shortest labels that tell them apart: algorithm, preset, directory."""
    for run, label in zip(runs, common_labels([runs])[0], strict=True):
        run.label = label


def common_labels(groups: Sequence[list[RunRecord]]) -> list[list[str]]:
    """The shortest labels that tell the runs of each dataset apart, made in the same way for all datasets."""
    labels: list[list[str]] = []
    for describe in LABELS:
        labels = [[describe(run) for run in runs] for runs in groups]
        if all(len(set(own)) == len(own) for own in labels):
            break
    return labels


def setting_symbol(name: str) -> str:
    """A swept setting as figures name it."""
    return {"expectile": "τ", "effective_sample": "effective sample"}.get(name, name.replace("_", " "))


def _damage_notes(files: Run) -> list[str]:
    """One sentence for each summary of the run that cannot be used."""
    readers = {
        "evaluation.json": (read_evaluation, f"evaluate again with: vem evaluate {files.directory}"),
        "estimate.json": (read_estimate, f"estimate again with: vem estimate {files.directory}"),
        "warnings.json": (Run.checks, "training writes it when it ends"),
    }
    return [
        f"{name} is damaged, or of another version of vem, and left out; {remedy}"
        for name, (read, remedy) in readers.items()
        if (files.directory / name).exists() and read(files) is None
    ]


def _state_notes(record: RunRecord) -> list[str]:
    directory, config = record.directory, record.config
    notes = []
    missing = [trial.name for trial in config.trials if trial.name not in record.policies]
    if missing and record.steps_done >= config.steps:
        notes.append(
            f"{len(missing)} of its {len(config.trials)} policies are missing or damaged ({', '.join(missing[:4])}); "
            f"write them again with: vem train --resume {directory}"
        )
    elif missing:
        notes.append(
            f"It is not finished: {record.steps_done:,} of {config.steps:,} steps are done and there is no "
            f"policy to look at yet; go on with: vem train --resume {directory}"
        )
    if not record.episodes and not missing:
        if record.environment:
            notes.append(
                "It has not been evaluated, so there are no scores, returns or value errors; get them with: "
                f"vem evaluate {directory}"
            )
        else:
            notes.append(
                "Its data names no environment, so there are no scores, returns or value errors; if you have one, "
                f"see: vem evaluate --help    (run directory {directory})"
            )
    if not record.metrics:
        notes.append("It has no training metrics, so there are no learning curves.")
    return notes


def _references(files: Run) -> References | None:
    """Those that the newest evaluation used, else those of the benchmark task."""
    evaluation = read_evaluation(files)
    if evaluation is not None:
        return evaluation.references
    task = task_of(files.facts.info)
    return References(task.minimum, task.maximum, task.references) if task else None


def config_rows(config: Request) -> dict[str, Any]:
    """Every setting of a run under one flat name, swept ones as lists."""
    facts = config.to_json()
    settings = {**facts.pop("settings"), **facts.pop("sweep")}
    rules = facts.pop("rules")
    mapping = {f"mapping.{name}": value for name, value in rules.pop("mapping", {}).items()}
    return {**facts, **{f"rules.{name}": value for name, value in rules.items()}, **mapping, **settings}
