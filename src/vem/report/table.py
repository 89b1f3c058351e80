"""The table of scores: each run and swept setting over its seeds, the recorded behavior, and the paper."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from vem.data import Dataset
from vem.errors import VemError
from vem.evaluation.environments import References
from vem.evaluation.quantities import QUANTITIES, member_values
from vem.evaluation.statistics import Spread, over_seeds
from vem.report.records import RunRecord, Series
from vem.runs.reading import load_data
from vem.runs.records import EpisodeRecord
from vem.tasks import normalized_score

SCORE = "normalized score"
ONE_STEP_LIMIT = 0.2
"""Recorded episodes are cut differently for comparison if more than this share has a single step."""


@dataclass(frozen=True)
class ScoreRow:
    """One line of the table; a quantity that is not known is absent."""

    label: str
    kind: str
    """``policy``, ``behavior`` or ``paper``."""
    num_seeds: int = 0
    num_episodes: int = 0
    num_failed: int = 0
    steps: int | None = None
    quantities: dict[str, Spread] = field(default_factory=dict)
    """``score``, ``return``, ``success`` (0 to 1), ``value_error`` … → its spread over seeds."""
    effective_share: float | None = None
    remark: str = ""


def score_row(one: Series, steps: int | None = None) -> ScoreRow:
    """The row of a series after that many steps; None: its newest evaluation."""
    episodes = one.episodes(steps)
    spreads = _spreads(episodes, one.run.references)
    failed = sum(episode.error is not None for episode in episodes)
    at = episodes[0].steps if episodes else None
    evaluated = len({episode.member for episode in episodes})
    remark = "" if episodes else "not evaluated"
    if at is not None and at < one.run.config.steps:
        remark = f"evaluated after {at:,} of {one.run.config.steps:,} steps"
    if failed:
        remark = "; ".join(filter(None, (remark, f"{failed} episodes failed and are left out")))
    return ScoreRow(one.label, "policy", evaluated, len(episodes) - failed, failed, at, spreads, None, remark)


def behavior_row(run: RunRecord, recordings: Dataset) -> ScoreRow:
    """The recorded episodes as a row."""
    returns = recordings.episode_returns
    quantities = {"return": _single(float(returns.mean()))}
    if run.references is not None:
        quantities["score"] = _single(float(normalized_score(run.references, returns).mean()))
        if (run.references.minimum, run.references.maximum) == (0.0, 1.0):
            quantities["success"] = _single(float((returns > 0).mean()))
    quantities["length"] = _single(float(recordings.episode_lengths.mean()))
    cut = " to the first success," if recordings.info.rules.get("split") == "first-success" else ","
    remark = f"as recorded{cut} from other starts"
    return ScoreRow("data", "behavior", 0, len(returns), quantities=quantities, remark=remark)


def recordings_of(run: RunRecord, dataset: Dataset) -> Dataset:
    """The data in episodes whose returns can be compared with evaluated ones.

    Where an agent stays at its goal, every step there is a terminal and ends an episode of one step. Such data is read
    again, each recording cut at its first success, as an evaluation would.
    """
    if one_step_share(dataset) <= ONE_STEP_LIMIT or dataset.info.rules.get("split") != "terminals":
        return dataset
    try:
        return load_data(dataclasses.replace(run.config, rules={**run.config.rules, "split": "first-success"}))
    except VemError:
        return dataset


def paper_rows(run: RunRecord) -> list[ScoreRow]:
    """What the paper reports on the task, if it is one of its tasks and scored by the same references."""
    task = run.task
    if task is None or run.references is None or run.references.source != task.references:
        return []
    rows = []
    for method, score in task.paper_scores.items():
        spread = Spread(score.mean, score.std, score.mean, None)
        rows.append(ScoreRow(f"paper: {method}", "paper", quantities={"score": spread}))
    return rows


def member_means(one: Series, quantity: str, steps: int | None = None) -> np.ndarray:
    """The mean of a quantity for each evaluated seed of a series."""
    found = member_values(one.episodes(steps), quantity, one.run.references)
    return np.array([values.mean() for values in found.values()], float)


def score_quantity(series: list[Series]) -> tuple[str, str]:
    """The quantity that these series are compared by, and its name with its unit."""
    if series and all(one.run.references is not None for one in series):
        references = series[0].run.references
        assert references is not None
        return "score", f"{SCORE} ({references.source})"
    return "return", "return of an episode (unit of the reward)"


def one_step_share(dataset: Dataset) -> float:
    """Share of the recorded episodes that have one step."""
    return float(np.mean(dataset.episode_lengths == 1))


def _spreads(episodes: list[EpisodeRecord], references: References | None) -> dict[str, Spread]:
    found = {name: member_values(episodes, name, references) for name in QUANTITIES}
    return {name: over_seeds(list(values.values())) for name, values in found.items() if values}


def _single(value: float) -> Spread:
    return Spread(value, None, value, None)
