"""What a report knows of a run: its directory, read without trusting it, and what is missing in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.dataset import Dataset, sample_episodes
from vem.errors import RunError, VemError
from vem.estimation.estimate import read_estimate
from vem.evaluation.environments import References
from vem.evaluation.results import read_evaluation, trial_values
from vem.policy import Policy, load_policy
from vem.reports.style import Style, distinct_styles, ordered_styles
from vem.tasks import Task, task_of
from vem.training.records import EpisodeRecord, MetricLine, RowWeights
from vem.training.request import Trial
from vem.training.run import Run


@dataclass
class RunRecord:
    """One run: what its files hold, and a note about each thing that they lack."""

    run: Run
    metrics: list[MetricLine]
    episodes: list[EpisodeRecord]
    """Those in the data's own environment."""
    references: References | None
    """The returns that score 0 and 100, where known."""
    policies: dict[str, Policy] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """One sentence for each thing that is missing or damaged, and what to do about it."""

    def __post_init__(self) -> None:
        self.config, self.data, self.directory = self.run.config, self.run.facts, self.run.directory

    @property
    def task(self) -> Task | None:
        """The benchmark task, whose references scores are normalized by."""
        return task_of(self.data.info)

    @cached_property
    def dataset(self) -> Dataset | None:
        """The recorded data; None, with a note, where they cannot be read again."""
        try:
            return self.run.dataset
        except VemError as error:
            self.notes.append(f"Figures that need the data are left out: {str(error).rstrip('.')}.")
            return None

    @cached_property
    def sample(self) -> Dataset | None:
        """Some whole episodes of the data."""
        return None if self.dataset is None else sample_episodes(self.dataset)

    @cached_property
    def weights(self) -> dict[str, RowWeights]:
        """How much the rows counted, by trial."""
        return self.run.weights()


def read_run(source: Run | str | Path) -> RunRecord:
    """The record of a run or of its directory; RunError if it is none."""
    run = source if isinstance(source, Run) else Run.open(source)
    metrics, episodes = run.metric_lines(), run.episodes()
    notes = [lines.problem for lines in (metrics, episodes) if lines.problem is not None]
    own = [episode for episode in episodes.records if episode.environment is None]
    evaluation, task = read_evaluation(run), task_of(run.facts.info)
    if evaluation is not None:
        references = evaluation.references
    else:
        references = References(task.minimum, task.maximum, task.references) if task else None
    record = RunRecord(run, metrics.records, own, references, notes=notes)
    for trial, path in zip(record.config.trials, run.policy_paths, strict=True):
        if path.exists():
            try:
                record.policies[trial.name] = load_policy(path)
            except RunError as error:
                notes.append(f"{error}.")
    notes.extend(_damage_notes(run))
    notes.extend(_what_is_missing(record))
    return record


def _damage_notes(run: Run) -> list[str]:
    """One sentence for each summary of the run that cannot be used."""
    readers = {
        "evaluation.json": (read_evaluation, f"evaluate again with: vem evaluate {run.directory}"),
        "estimate.json": (read_estimate, f"estimate again with: vem estimate {run.directory}"),
        "warnings.json": (Run.checks, "training writes it when it ends"),
    }
    return [
        f"{name} is damaged, or of another version of vem, and left out; {remedy}"
        for name, (read, remedy) in readers.items()
        if (run.directory / name).exists() and read(run) is None
    ]


def _what_is_missing(record: RunRecord) -> list[str]:
    directory, config, notes = record.directory, record.config, []
    missing = [trial.name for trial in config.trials if trial.name not in record.policies]
    steps_done = record.metrics[-1].steps if record.metrics else 0
    if missing and steps_done >= config.steps:
        notes.append(
            f"{len(missing)} of its {len(config.trials)} policies are missing or damaged ({', '.join(missing[:4])}); "
            f"write them again with: vem train --resume {directory}"
        )
    elif missing:
        notes.append(
            f"It is not finished: {steps_done:,} of {config.steps:,} steps are done and there is no "
            f"policy to look at yet; go on with: vem train --resume {directory}"
        )
    elif not record.episodes and record.data.info.environment:
        notes.append(f"It has not been evaluated, so there are no scores; get them with: vem evaluate {directory}")
    elif not record.episodes and record.run.estimate() is None:
        notes.append(
            "Its data names no simulator, so there are no scores; value its policies by the data with: "
            f"vem estimate {directory}"
        )
    if not record.metrics:
        notes.append("It has no training metrics, so there are no learning curves.")
    return notes


# Series: what is one line in a figure and one row in a table.


@dataclass(frozen=True)
class Series:
    """The trials of a run that differ by their seed alone."""

    index: int
    """Its number on the page, by which its parts of the figures are hidden."""
    run: RunRecord
    name: str
    """Of the run, as short as tells the runs apart."""
    swept: dict[str, float]
    trials: tuple[Trial, ...]
    style: Style

    @property
    def setting_label(self) -> str:
        """The swept settings, e.g. ``τ = 0.3``; empty without a sweep."""
        return ", ".join(f"{setting_symbol(name)} = {value:g}" for name, value in self.swept.items())

    @property
    def label(self) -> str:
        """The name of this line in figures and tables."""
        return f"{self.name}, {self.setting_label}" if self.swept else self.name

    @property
    def settings(self) -> dict[str, Any]:
        """The complete settings of these trials."""
        return {**self.run.config.settings, **self.swept}

    @property
    def names(self) -> list[str]:
        """Names of the trials."""
        return [trial.name for trial in self.trials]

    @property
    def policies(self) -> list[Policy]:
        """The policies that are there, in the trials' order."""
        return [self.run.policies[name] for name in self.names if name in self.run.policies]

    @property
    def has_values(self) -> bool:
        """Whether there are policies and all have state values."""
        return bool(self.policies) and all(policy.has_value for policy in self.policies)

    @property
    def weights(self) -> list[RowWeights]:
        """How much the rows counted for each trial, as far as training wrote it."""
        return [self.run.weights[name] for name in self.names if name in self.run.weights]

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps, and the metric with one line a seed; both empty if it was never recorded."""
        lines = [line for line in self.run.metrics if all(metric in line.trials.get(name, {}) for name in self.names)]
        steps = np.array([line.steps for line in lines], float)
        values = [[line.trials[name][metric] for line in lines] for name in self.names]
        return steps, np.array(values, float).reshape(len(self.names), len(lines))

    @property
    def evaluated_at(self) -> list[int]:
        """Numbers of steps after which these trials were evaluated."""
        return sorted({e.steps for e in self.run.episodes if e.trial in self.names and e.steps is not None})

    def episodes(self, steps: int | None = None) -> list[EpisodeRecord]:
        """Evaluated episodes of these trials after that many steps; None: the newest."""
        wanted, times = set(self.names), self.evaluated_at
        steps = times[-1] if steps is None and times else steps
        return [episode for episode in self.run.episodes if episode.trial in wanted and episode.steps == steps]

    def means(self, quantity: str, steps: int | None = None) -> np.ndarray:
        """The mean of an evaluated quantity for each seed."""
        values = trial_values(self.episodes(steps), quantity, self.run.references)
        return np.array([of_trial.mean() for of_trial in values.values()], float)


def list_series(runs: Sequence[RunRecord]) -> list[Series]:
    """One for each run and combination of swept settings: ordered colors for the sweep of a single run."""
    groups: list[tuple[RunRecord, str, dict[str, float], list[Trial]]] = []
    for run, name in zip(runs, common_labels([runs])[0], strict=True):
        by_setting: dict[tuple[tuple[str, float], ...], list[Trial]] = {}
        for trial in run.config.trials:
            by_setting.setdefault(tuple(trial.swept.items()), []).append(trial)
        groups += [(run, name, dict(swept), trials) for swept, trials in by_setting.items()]
    swept_values = [next(iter(swept.values())) for _, _, swept, _ in groups if len(swept) == 1]
    is_sweep = len(runs) == 1 and len(groups) > 1 and len(swept_values) == len(groups)
    styles = ordered_styles(swept_values) if is_sweep else distinct_styles(len(groups))
    return [
        Series(index, run, name, swept, tuple(trials), style)
        for index, ((run, name, swept, trials), style) in enumerate(zip(groups, styles, strict=True))
    ]


def named_runs(series: Sequence[Series]) -> list[tuple[RunRecord, str]]:
    """The runs of the series in their order, each with its name."""
    return list({id(one.run): (one.run, one.name) for one in series}.values())


LABELS: tuple[Callable[[RunRecord], str], ...] = (
    lambda run: run.config.algorithm,
    lambda run: f"{run.config.algorithm} ({run.config.preset})",
    lambda run: run.directory.resolve().name,
    lambda run: str(run.directory),
)
"""What a run may be called, the shortest first."""


def common_labels(groups: Sequence[Sequence[RunRecord]]) -> list[list[str]]:
    """The shortest labels that tell the runs of each dataset apart, made in the same way for all datasets."""
    labels: list[list[str]] = []
    for describe in LABELS:
        labels = [[describe(run) for run in runs] for runs in groups]
        if all(len(set(of_group)) == len(of_group) for of_group in labels):
            break
    return labels


def setting_symbol(name: str) -> str:
    """A swept setting as figures name it."""
    return {"expectile": "τ", "effective_sample": "effective sample"}.get(name, name.replace("_", " "))
