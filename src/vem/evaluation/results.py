"""The result of an evaluation: means of each policy, and statistics over the seeds of each swept setting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vem.evaluation.environments import References
from vem.evaluation.statistics import Spread, Table, over_seeds
from vem.storage import misfit
from vem.tasks import normalized_score
from vem.training.files import RunFiles
from vem.training.records import Actions, EpisodeRecord, EvaluationSummary

# What is measured of an episode: one table of quantities, by the names of summaries and reports.


class Quantity(NamedTuple):
    """A number that an episode gives."""

    heading: str
    """Its name above a column."""
    of: Callable[[EpisodeRecord, References | None], float | None]
    """Its value in an episode; None where it is not known."""
    digits: int | None = None
    """Digits after the point; None: as many as the number needs."""
    factor: float = 1.0
    """What the number is multiplied by to be shown."""

    def text(self, value: float | None) -> str:
        """The value as tables show it."""
        if value is None:
            return "-"
        shown = self.factor * value
        digits = 1 if abs(shown) >= 100 else self.digits
        return f"{shown:.3g}" if digits is None else f"{shown:.{digits}f}"


def _score(episode: EpisodeRecord, references: References | None) -> float | None:
    if references is None or episode.episode_return is None:
        return None
    return normalized_score(references, episode.episode_return)


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


QUANTITIES: dict[str, Quantity] = {
    "return": Quantity("return", lambda episode, _: episode.episode_return),
    "score": Quantity("score", _score, 1),
    "success": Quantity("success %", lambda episode, _: episode.success, 1, 100.0),
    "length": Quantity("length", lambda episode, _: episode.length, 1),
    "discounted_return": Quantity("discounted return", lambda episode, _: episode.discounted_return),
    "value_start": Quantity("V(s0)", lambda episode, _: episode.value_start),
    "value_error_start": Quantity(
        "V − G at s0", lambda episode, _: _difference(episode.value_start, episode.target_start)
    ),
    "value_error": Quantity("V − G", lambda episode, _: _difference(episode.value_mean, episode.target_mean)),
}


def trial_values(
    episodes: Iterable[EpisodeRecord], quantity: str, references: References | None
) -> dict[str, np.ndarray]:
    """Trial → the quantity in each of its episodes that did not fail; trials that have none are left out."""
    found: dict[str, list[float]] = {}
    of = QUANTITIES[quantity].of
    for episode in episodes:
        value = None if episode.error is not None else of(episode, references)
        if value is not None:
            found.setdefault(episode.trial, []).append(float(value))
    return {trial: np.array(values, np.float64) for trial, values in found.items()}


SUMMARY_VERSION = 1
WIDE = ("return", "score", "success")
"""The quantities whose intervals the table shows; with those of all it would grow too wide."""


@dataclass(frozen=True)
class MemberResult:
    """The episodes of one policy."""

    means: dict[str, float | None]
    """Quantity → its mean over the episodes that did not fail; None where no episode has it."""
    num_failed: int = 0
    first_error: str | None = None


@dataclass(frozen=True)
class GroupResult:
    """The policies that differ by their seed alone."""

    settings: dict[str, float]
    """Their values of the swept settings."""
    trials: tuple[str, ...]
    quantities: dict[str, Spread]
    """Quantity → mean, standard deviation, inter-quartile mean and interval over seeds; absent where unknown."""


@dataclass(frozen=True)
class Evaluation:
    """What evaluating one or more policies gave; printing it gives a table."""

    environment: str
    references: References | None
    """The returns that score 0 and 100, where known."""
    episodes: int
    """Episodes of each policy."""
    seed: int
    actions: Actions
    """How the policies acted: by their mean or by samples."""
    steps: int | None
    """Training steps behind the policies."""
    trials: dict[str, MemberResult]
    groups: tuple[GroupResult, ...]

    @property
    def seed_scores(self) -> list[float]:
        """The score of each seed of the first setting, where it has one."""
        found = (self.trials[name].means.get("score") for name in self.groups[0].trials)
        return [score for score in found if score is not None]

    @property
    def score(self) -> Spread | None:
        """The normalized score of the first group; None without reference scores."""
        return self.groups[0].quantities.get("score")

    @property
    def returns(self) -> Spread | None:
        """The return of the first group; None if every episode failed."""
        return self.groups[0].quantities.get("return")

    @property
    def success(self) -> Spread | None:
        """The success rate (0 to 1) of the first group; None where the environment reports none."""
        return self.groups[0].quantities.get("success")

    @property
    def length(self) -> Spread | None:
        """The length of an episode of the first group."""
        return self.groups[0].quantities.get("length")

    @property
    def value_error(self) -> Spread | None:
        """V − G of the first group; None for policies without values."""
        return self.groups[0].quantities.get("value_error")

    @property
    def first_error(self) -> str | None:
        """Why the first failed episode failed, if any did."""
        return next((trial.first_error for trial in self.trials.values() if trial.first_error), None)

    @property
    def table(self) -> Table:
        """The table that ``vem evaluate`` prints."""
        names = [
            name
            for name in QUANTITIES
            if name != "discounted_return" and any(row.means.get(name) is not None for row in self.trials.values())
        ]
        rows = [
            [name, *(QUANTITIES[column].text(row.means.get(column)) for column in names)]
            for name, row in self.trials.items()
        ]
        for group in self.groups:
            label = " ".join(f"{name} {value:g}" for name, value in group.settings.items())
            if len(group.trials) > 1:
                title = f"{label} mean ± std, {len(group.trials)} seeds".strip()
                rows.append([title, *(_mean_std(group.quantities.get(name), name) for name in names)])
            rows.append([f"{label} IQM [95 %]".strip(), *(_interval(group.quantities.get(n), n) for n in names)])
        actions = "mean or sampled actions" if self.actions == "both" else f"{self.actions} actions"
        after = "" if self.steps is None else f", after {self.steps:,} steps"
        title = f"{self.environment}: {self.episodes} episodes a policy, {actions}{after}"
        header = ["policy", *(QUANTITIES[name].heading for name in names)]
        return Table(title, header, rows, self._notes("value_error" in names))

    def _notes(self, has_values: bool) -> list[str]:
        notes = ["score: no reference scores are known for this environment"]
        if self.references is not None:
            minimum, maximum, source = self.references
            notes = [f"score: 0 at return {minimum:g}, 100 at {maximum:g} ({source})"]
        if has_values:
            notes.append("V − G: value minus the discounted return that followed, at the start and over all steps")
        notes += [
            f"{name}: {row.num_failed} episodes failed and are left out, first: {row.first_error}"
            for name, row in self.trials.items()
            if row.num_failed
        ]
        return notes

    def __str__(self) -> str:
        """The table as text."""
        return str(self.table)

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        return self.table._repr_html_()

    def to_json(self) -> EvaluationSummary:
        """The evaluation as JSON values, as a run directory keeps it."""
        return {
            "version": SUMMARY_VERSION,
            "steps": self.steps,
            "environment": self.environment,
            "references": self.references._asdict() if self.references else None,
            "num_episodes": self.episodes,
            "seed": self.seed,
            "actions": self.actions,
            "trials": {
                name: {**row.means, "num_failed": row.num_failed, "first_error": row.first_error}
                for name, row in self.trials.items()
            },
            "groups": [
                {
                    "settings": group.settings,
                    "trials": list(group.trials),
                    **{n: s._asdict() if (s := group.quantities.get(n)) else None for n in QUANTITIES},
                }
                for group in self.groups
            ],
        }

    @classmethod
    def from_json(cls, stored: EvaluationSummary) -> Evaluation | None:
        """The evaluation that ``to_json`` gave, or None if it is damaged."""
        try:
            references = stored["references"]
            trials = {
                name: MemberResult(
                    {quantity: row.get(quantity) for quantity in QUANTITIES}, row["num_failed"], row["first_error"]
                )
                for name, row in stored["trials"].items()
            }
            groups = tuple(
                GroupResult(
                    group["settings"],
                    tuple(group["trials"]),
                    {name: _spread(group[name]) for name in QUANTITIES if group.get(name)},
                )
                for group in stored["groups"]
            )
            found = cls(
                stored["environment"],
                References(**references) if references else None,
                stored["num_episodes"],
                stored["seed"],
                stored["actions"],
                stored["steps"],
                trials,
                groups,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        is_whole = groups and all(group.trials for group in groups) and misfit(found, cls) is None
        return found if is_whole else None


def read_evaluation(files: RunFiles, environment: str | None = None) -> Evaluation | None:
    """The newest evaluation of a run in ``environment`` (None: that of its data), or None."""
    stored = files.summary(environment)
    return None if stored is None else Evaluation.from_json(stored)


def summarize(
    records: Sequence[EpisodeRecord], trials: Mapping[str, Mapping[str, float]], references: References | None
) -> tuple[dict[str, MemberResult], tuple[GroupResult, ...]]:
    """Means of every trial's episodes, and statistics over the seeds of each combination of swept settings.

    ``trials``: name → values of the swept settings. Failed episodes are counted and left out.
    """
    values = {quantity: trial_values(records, quantity, references) for quantity in QUANTITIES}
    results = {}
    for name in trials:
        errors = [record.error for record in records if record.trial == name and record.error]
        means = {q: float(found[name].mean()) if name in found else None for q, found in values.items()}
        results[name] = MemberResult(means, len(errors), errors[0] if errors else None)
    combinations: dict[str, list[str]] = {}
    for name, swept in trials.items():
        combinations.setdefault(json.dumps(swept), []).append(name)
    groups = []
    for text, names in combinations.items():
        spreads = {}
        for quantity, found in values.items():
            if known := [found[name] for name in names if name in found]:
                spreads[quantity] = over_seeds(known)
        groups.append(GroupResult(json.loads(text), tuple(names), spreads))
    return results, tuple(groups)


def _spread(stored: dict[str, Any]) -> Spread:
    interval = stored["interval"]
    return Spread(**{**stored, "interval": None if interval is None else tuple(interval)})


def _mean_std(spread: Spread | None, name: str) -> str:
    if spread is None:
        return "-"
    text = QUANTITIES[name].text
    return f"{text(spread.mean)} ± {text(spread.std)}"


def _interval(spread: Spread | None, name: str) -> str:
    if spread is None or name not in WIDE:
        return ""
    text = QUANTITIES[name].text
    middle = text(spread.interquartile_mean)
    return middle if spread.interval is None else f"{middle} [{', '.join(map(text, spread.interval))}]"
