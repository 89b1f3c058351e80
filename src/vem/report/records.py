"""What a run directory holds, read without trusting it: damaged lines are counted and left out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vem.data import Dataset
from vem.errors import RunError, VemError
from vem.evaluation.evaluate import References
from vem.evaluation.rollout import EpisodeRecord
from vem.policy import Policy, load_policy
from vem.runs.loop import Member
from vem.runs.run import Config, load_data, read_config
from vem.tasks import Task, task_of

Line = TypeVar("Line")


@dataclass(frozen=True)
class Series:
    """The members of a run that differ by their seed alone: one line in a figure, one row in the table."""

    run: RunRecord
    swept: dict[str, float]
    members: tuple[Member, ...]

    @property
    def names(self) -> list[str]:
        """Names of the members."""
        return [member.name for member in self.members]

    @property
    def settings(self) -> dict[str, Any]:
        """The complete settings of these members."""
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
        """The policies that are there, in the members' order."""
        return [self.run.policies[name] for name in self.names if name in self.run.policies]

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Updates, and the metric with one line a seed; both empty if it was never recorded."""
        lines = [
            line for line in self.run.metrics if all(metric in line["members"].get(name, {}) for name in self.names)
        ]
        steps = np.array([line["steps"] for line in lines], float)
        values = [[line["members"][name][metric] for line in lines] for name in self.names]
        return steps, np.array(values, float).reshape(len(self.names), len(lines))

    @property
    def evaluated_at(self) -> list[int]:
        """Numbers of steps after which these members were evaluated."""
        wanted = set(self.names)
        return sorted({e.steps for e in self.run.episodes if e.member in wanted and e.steps is not None})

    def episodes(self, steps: int | None = None) -> list[EpisodeRecord]:
        """Evaluated episodes of these members after that many steps; None: the newest."""
        wanted, times = set(self.names), self.evaluated_at
        if steps is None and times:
            steps = times[-1]
        return [episode for episode in self.run.episodes if episode.member in wanted and episode.steps == steps]


@dataclass
class RunRecord:
    """One run directory."""

    directory: Path
    config: Config
    facts: dict[str, Any]
    metrics: list[dict[str, Any]]
    episodes: list[EpisodeRecord]
    references: References | None
    """The returns that score 0 and 100, where known."""
    policies: dict[str, Policy]
    label: str = ""
    notes: list[str] = field(default_factory=list)
    """One sentence for each thing that is missing or damaged, and what to do about it."""

    @property
    def data_name(self) -> str:
        """Name of the dataset."""
        return str(self.facts["data"].get("name", self.config.dataset))

    @property
    def environment(self) -> str | None:
        """Gymnasium id of the evaluation environment, where known."""
        return self.facts["data"].get("environment")

    @property
    def task(self) -> Task | None:
        """The benchmark task, whose references scores are normalized by."""
        return task_of(self.facts["data"])

    @property
    def updates_done(self) -> int:
        """Updates that the metrics know of."""
        return int(self.metrics[-1]["steps"]) if self.metrics else 0

    @property
    def is_finished(self) -> bool:
        """Whether every member has a policy."""
        return all(member.name in self.policies for member in self.config.members)

    @property
    def series(self) -> list[Series]:
        """One for each combination of swept settings, in the order of the sweep."""
        groups: dict[tuple[tuple[str, float], ...], list[Member]] = {}
        for member in self.config.members:
            groups.setdefault(tuple(member.swept.items()), []).append(member)
        return [Series(self, dict(swept), tuple(members)) for swept, members in groups.items()]

    @cached_property
    def dataset(self) -> Dataset | None:
        """The recorded data, read again; None, with a note, where that is not possible."""
        if self.facts["data"].get("source") == "arrays":
            self.notes.append("It was trained on arrays from Python, so figures that need the data are left out.")
            return None
        try:
            dataset = load_data(self.config)
        except VemError as error:
            self.notes.append(
                f"The dataset cannot be read again ({str(error).rstrip('.')}), so figures that need it are left out; "
                "put the file back and make the report again."
            )
            return None
        if dataset.fingerprint() != self.facts["data"].get("sha256"):
            self.notes.append(
                "The dataset has changed since training, so figures that need it are left out; restore the old file."
            )
            return None
        return dataset


def read_run(directory: str | Path) -> RunRecord:
    """The record of a run directory; RunError if it is not one."""
    directory = Path(directory)
    if not directory.is_dir():
        found = "is a file" if directory.exists() else "does not exist"
        raise RunError(f"{directory} {found}; give the directory of a run, as vem train --out made it")
    config, facts = read_config(directory)
    if not isinstance(facts.get("data"), dict):
        raise RunError(f"{directory / 'config.json'} says nothing about the data; it was edited or is damaged")
    notes: list[str] = []
    metrics = _read_lines(directory / "metrics.jsonl", _metric_line, notes)
    episodes = _read_lines(directory / "evaluations.jsonl", _episode, notes)
    references = _references(directory, facts["data"])
    record = RunRecord(directory, config, facts, metrics, episodes, references, {}, config.algorithm, notes)
    for member in config.members:
        path = directory / "policies" / f"{member.name}.safetensors"
        if path.exists():
            try:
                record.policies[member.name] = load_policy(path)
            except RunError as error:
                notes.append(f"{error}.")
    notes.extend(_state_notes(record))
    return record


def label_runs(runs: list[RunRecord]) -> None:
    """Give runs of one dataset the shortest labels that tell them apart: algorithm, preset, directory."""
    for describe in (
        lambda run: run.config.algorithm,
        lambda run: f"{run.config.algorithm} ({run.config.preset})",
        lambda run: run.directory.resolve().name,
        lambda run: str(run.directory),
    ):
        for run in runs:
            run.label = describe(run)
        if len({run.label for run in runs}) == len(runs):
            return


def setting_symbol(name: str) -> str:
    """A swept setting as figures name it."""
    return {"expectile": "τ", "effective_sample": "effective sample"}.get(name, name.replace("_", " "))


def _state_notes(record: RunRecord) -> list[str]:
    directory, config = record.directory, record.config
    notes = []
    missing = [member.name for member in config.members if member.name not in record.policies]
    if missing and record.updates_done >= config.steps:
        notes.append(
            f"{len(missing)} of its {len(config.members)} policies are missing or damaged ({', '.join(missing[:4])}); "
            f"write them again with: vem train --resume {directory}"
        )
    elif missing:
        notes.append(
            f"It is not finished: {record.updates_done:,} of {config.steps:,} steps are done and there is no "
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


def _read_lines(path: Path, parse: Callable[[Any], Line | None], notes: list[str]) -> list[Line]:
    """The lines that ``parse`` accepts; a note says how many it did not."""
    if not path.exists():
        return []
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        notes.append(f"{path.name} cannot be read ({error.strerror}).")
        return []
    good = []
    for line in lines:
        try:
            record = parse(json.loads(line))
        except ValueError:
            record = None
        if record is not None:
            good.append(record)
    if len(good) < len(lines):
        count = len(lines) - len(good)
        notes.append(
            f"{count} of {len(lines)} lines of {path.name} {'is' if count == 1 else 'are'} damaged and left out."
        )
    return good


def _metric_line(record: Any) -> dict[str, Any] | None:
    if not isinstance(record, dict) or not _is_number(record.get("steps")):
        return None
    members = record.get("members")
    is_good = isinstance(members, dict) and all(
        isinstance(metrics, dict) and all(map(_is_number, metrics.values())) for metrics in members.values()
    )
    return record if is_good else None


def _episode(record: Any) -> EpisodeRecord | None:
    try:
        episode = EpisodeRecord(**record)
    except TypeError:
        return None
    numbers = (episode.steps, episode.episode_return, episode.length, episode.value_start, episode.target_start)
    is_good = isinstance(episode.member, str) and all(number is None or _is_number(number) for number in numbers)
    return episode if is_good else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _references(directory: Path, data: dict[str, Any]) -> References | None:
    """Those that the newest evaluation used, else those of the benchmark task."""
    try:
        stored = json.loads((directory / "evaluation.json").read_text(encoding="utf-8"))["references"]
        return None if stored is None else References(stored["minimum"], stored["maximum"], stored["source"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    task = task_of(data)
    return References(task.minimum, task.maximum, task.references) if task else None


def config_rows(config: Config) -> dict[str, Any]:
    """Every setting of a run under one flat name, swept ones as lists."""
    facts = dataclasses.asdict(config)
    settings = {**facts.pop("settings"), **facts.pop("sweep")}
    rules = {f"rules.{name}": value for name, value in facts.pop("rules").items()}
    return {**facts, **rules, **settings}
