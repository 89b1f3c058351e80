"""The result of an evaluation: means of each policy, and statistics over the seeds of each swept setting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vem.evaluation.environments import References
from vem.evaluation.statistics import Spread, Table, Tabled, over_seeds
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

    def mean_std(self, spread: Spread | None) -> str:
        """Mean and standard deviation over seeds."""
        return "-" if spread is None else f"{self.text(spread.mean)} ± {self.text(spread.std)}"

    def middle(self, spread: Spread | None) -> str:
        """The inter-quartile mean and its interval."""
        if spread is None:
            return ""
        ends = "" if spread.interval is None else f" [{', '.join(map(self.text, spread.interval))}]"
        return self.text(spread.interquartile_mean) + ends


def _score(episode: EpisodeRecord, references: References | None) -> float | None:
    if references is None or episode.episode_return is None:
        return None
    return normalized_score(references, episode.episode_return)


def _error(value: float | None, target: float | None) -> float | None:
    return None if value is None or target is None else value - target


QUANTITIES: dict[str, Quantity] = {
    "return": Quantity("return", lambda episode, _: episode.episode_return),
    "score": Quantity("score", _score, 1),
    "success": Quantity("success %", lambda episode, _: episode.success, 1, 100.0),
    "length": Quantity("length", lambda episode, _: episode.length, 1),
    "discounted_return": Quantity("discounted return", lambda episode, _: episode.discounted_return),
    "value_start": Quantity("V(s0)", lambda episode, _: episode.value_start),
    "value_error_start": Quantity("V − G at s0", lambda episode, _: _error(episode.value_start, episode.target_start)),
    "value_error": Quantity("V − G", lambda episode, _: _error(episode.value_mean, episode.target_mean)),
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
class TrialResult:
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


@dataclass(frozen=True, repr=False)
class Evaluation(Tabled):
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
    trials: dict[str, TrialResult]
    groups: tuple[GroupResult, ...]

    def _first(self, quantity: str) -> Spread | None:
        return self.groups[0].quantities.get(quantity)

    @property
    def seed_scores(self) -> list[float]:
        """The score of each seed of the first setting, where it has one."""
        scores = (self.trials[name].means.get("score") for name in self.groups[0].trials)
        return [score for score in scores if score is not None]

    @property
    def score(self) -> Spread | None:
        """The normalized score of the first group; None without reference scores."""
        return self._first("score")

    @property
    def returns(self) -> Spread | None:
        """The return of the first group; None if every episode failed."""
        return self._first("return")

    @property
    def success(self) -> Spread | None:
        """The success rate (0 to 1) of the first group; None where the environment reports none."""
        return self._first("success")

    @property
    def first_error(self) -> str | None:
        """Why the first failed episode failed, if any did."""
        return next((trial.first_error for trial in self.trials.values() if trial.first_error), None)

    @property
    def table(self) -> Table:
        """The table that ``vem evaluate`` prints."""
        shown = {
            name: quantity
            for name, quantity in QUANTITIES.items()
            if name != "discounted_return" and any(row.means.get(name) is not None for row in self.trials.values())
        }
        rows = [
            [trial, *(quantity.text(row.means.get(name)) for name, quantity in shown.items())]
            for trial, row in self.trials.items()
        ]
        for group in self.groups:
            label, spreads = settings_text(group.settings), group.quantities
            if len(group.trials) > 1:
                title = f"{label} mean ± std, {len(group.trials)} seeds".strip()
                rows.append([title, *(quantity.mean_std(spreads.get(name)) for name, quantity in shown.items())])
            intervals = [quantity.middle(spreads.get(name)) if name in WIDE else "" for name, quantity in shown.items()]
            rows.append([f"{label} IQM [95 %]".strip(), *intervals])
        actions = "mean or sampled actions" if self.actions == "both" else f"{self.actions} actions"
        after = "" if self.steps is None else f", after {self.steps:,} steps"
        title = f"{self.environment}: {self.episodes} episodes a policy, {actions}{after}"
        notes = ["score: no reference scores are known for this environment"]
        if self.references is not None:
            minimum, maximum, source = self.references
            notes = [f"score: 0 at return {minimum:g}, 100 at {maximum:g} ({source})"]
        if "value_error" in shown:
            notes.append("V − G: value minus the discounted return that followed, at the start and over all steps")
        notes += [
            f"{trial}: {row.num_failed} episodes failed and are left out, first: {row.first_error}"
            for trial, row in self.trials.items()
            if row.num_failed
        ]
        return Table(title, ["policy", *(quantity.heading for quantity in shown.values())], rows, notes)

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
                name: TrialResult(
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
) -> tuple[dict[str, TrialResult], tuple[GroupResult, ...]]:
    """Means of every trial's episodes, and statistics over the seeds of each combination of swept settings.

    ``trials``: name → values of the swept settings. Failed episodes are counted and left out.
    """
    values = {quantity: trial_values(records, quantity, references) for quantity in QUANTITIES}
    results = {}
    for name in trials:
        errors = [record.error for record in records if record.trial == name and record.error]
        means = {q: float(found[name].mean()) if name in found else None for q, found in values.items()}
        results[name] = TrialResult(means, len(errors), errors[0] if errors else None)
    groups = []
    for settings, names in same_settings(trials):
        spreads = {}
        for quantity, found in values.items():
            if known := [found[name] for name in names if name in found]:
                spreads[quantity] = over_seeds(known)
        groups.append(GroupResult(settings, names, spreads))
    return results, tuple(groups)


def same_settings(swept: Mapping[str, Mapping[str, float]]) -> list[tuple[dict[str, float], tuple[str, ...]]]:
    """Each combination of swept settings, and the trials that have it and differ by their seed alone."""
    names: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for name, settings in swept.items():
        names.setdefault(tuple(settings.items()), []).append(name)
    return [(dict(settings), tuple(trials)) for settings, trials in names.items()]


def settings_text(settings: Mapping[str, float]) -> str:
    """Swept settings as tables name them."""
    return " ".join(f"{name} {value:g}" for name, value in settings.items())


def _spread(stored: dict[str, Any]) -> Spread:
    interval = stored["interval"]
    return Spread(**{**stored, "interval": None if interval is None else tuple(interval)})
