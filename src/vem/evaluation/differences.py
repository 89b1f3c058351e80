"""What a run's policies do otherwise than its log, column by column, and the states where they differ most."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.actions import ActionColumn
from vem.data.dataset import Dataset, sample_episodes
from vem.errors import DataError, RunError
from vem.policy import Policy
from vem.policy.support import SupportModel, measure_support
from vem.training.run import Run, open_run

NUM_ROWS = 5000
"""Recorded steps that are compared."""
NUM_STATES = 10
SAME = 0.05
"""Numbers within this share of the column's recorded deviation are called the same."""
LEAST_CORRELATION = 0.2


@dataclass(frozen=True)
class ColumnDifference:
    """One action column: the policy's value minus the recorded one, over recorded steps; mean over the policies."""

    name: str
    kind: str
    mean: float | None
    """Mean difference, in the column's unit; None for choices."""
    spread: float | None
    """Standard deviation of the differences; None for choices."""
    share_other: float
    """Share of the steps with another value; of choices, another label."""
    share_higher: float | None
    share_lower: float | None
    recorded_spread: float | None
    """Standard deviation of the recorded values."""
    changes: tuple[tuple[str, str, float], ...] = ()
    """The most frequent other choices: recorded label, the policy's, share of the steps."""
    varies_with: tuple[tuple[str, float], ...] = ()
    """Observation columns that the difference goes with, with the correlation; of choices, whether it differs."""

    @property
    def direction(self) -> str:
        """The difference in a few words."""
        if self.kind == "discrete":
            changed = ", ".join(f"{before} → {after} {share:.0%}" for before, after, share in self.changes)
            return changed or "as recorded"
        mean = self.mean or 0.0
        if abs(mean) <= SAME * (self.recorded_spread or 0.0):
            return "about the same on average"
        return "higher" if mean > 0 else "lower"


@dataclass(frozen=True)
class DifferentState:
    """A recorded step in whose state a policy acts otherwise than the log usually does."""

    row: int
    """Number of the step's row among those compared."""
    episode: int
    observation: dict[str, Any]
    recorded: dict[str, Any]
    usual: dict[str, Any]
    """What the log did in states like this: mean of numbers, the most frequent choice."""
    policy: dict[str, Any]
    distance: float
    """Between the policy's action and the usual one, in recorded deviations; 1 for each other choice."""
    support: float
    """Score of the policy's action among those recorded in such states (``vem.policy.support``)."""


@dataclass(frozen=True)
class Differences:
    """What policies do otherwise than the recorded data."""

    num_steps: int
    """Recorded steps that were compared."""
    num_policies: int
    columns: tuple[ColumnDifference, ...]
    states: tuple[DifferentState, ...]
    """Where the first policy differs most, one of an episode, the farthest first."""

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """One line for each column, and the states in which the difference is largest."""
        lines = [f"policy against log, {self.num_steps:,} recorded steps"]
        for column in self.columns:
            numbers = "" if column.mean is None else f"  mean {column.mean:+.3g}, spread {column.spread:.3g}"
            lines.append(f"  {column.name}: {column.share_other:.0%} other{numbers}  {column.direction}")
        for state in self.states[:3]:
            values = ", ".join(f"{name} {_text(value)}" for name, value in list(state.observation.items())[:8])
            acts = ", ".join(f"{n} {_text(state.usual[n])} → {_text(v)}" for n, v in state.policy.items())
            lines.append(f"  at {values}: {acts}")
        return "\n".join(lines)


def differences(run: Run | str | Path, dataset: Dataset | None = None) -> Differences:
    """What the policies of a run, given as such or by its directory, do otherwise than the log it was trained on.

    ``dataset`` is needed if the run was trained on arrays, and may be other trajectories of the same columns.
    """
    run = run if isinstance(run, Run) else open_run(run)
    if not run.is_finished:
        raise RunError(f"{run.directory} is not finished; go on with: vem train --resume {run.directory}")
    return compare_with_log(run.policies, run.dataset if dataset is None else dataset)


def compare_with_log(policies: Sequence[Policy], dataset: Dataset, support: SupportModel | None = None) -> Differences:
    """What these policies do otherwise than the recorded data; ``support``: theirs, made of the data if not given."""
    policy = policies[0]
    sizes = (dataset.observation_size, dataset.action_size)
    if sizes != (policy.observation_size, policy.action_size):
        raise DataError(
            f"the data has observations of {sizes[0]} numbers and actions of {sizes[1]}; the policy takes "
            f"{policy.observation_size} and {policy.action_size}: give trajectories of the same columns"
        )
    sample = sample_episodes(dataset)
    rows = np.flatnonzero(sample.valid)
    rows = np.sort(np.random.default_rng(0).permutation(rows)[:NUM_ROWS])
    states, recorded = sample.observations[rows], sample.actions[rows]
    taken = [each.act(states).reshape(len(rows), -1).astype(np.float64) for each in policies]
    names = observation_names(dataset)
    columns = tuple(
        _choice_difference(column, recorded[:, index], [found[:, index] for found in taken], states, names)
        if column.kind == "discrete"
        else _number_difference(column, recorded[:, index], [found[:, index] for found in taken], states, names)
        for index, column in enumerate(policy.action_columns)
    )
    if support is None:
        support = policy.support_model if policy.has_support else measure_support(dataset)
    found = () if support is None else _states(policy, sample, rows, taken[0], support)
    return Differences(len(rows), len(policies), columns, found)


def observation_names(dataset: Dataset) -> tuple[str, ...]:
    """What each number of an observation is called."""
    return dataset.observation_names or tuple(f"observation {index}" for index in range(dataset.observation_size))


def _number_difference(
    column: ActionColumn, recorded: np.ndarray, taken: list[np.ndarray], states: np.ndarray, names: Sequence[str]
) -> ColumnDifference:
    recorded = recorded.astype(np.float64)
    moved = np.stack([found - recorded for found in taken])
    spread = float(recorded.std())
    tolerance = max(SAME * spread, 1e-9)
    higher, lower = float(np.mean(moved > tolerance)), float(np.mean(moved < -tolerance))
    return ColumnDifference(
        column.name,
        "box",
        float(moved.mean()),
        float(np.mean(moved.std(axis=1))),
        higher + lower,
        higher,
        lower,
        spread,
        varies_with=_correlated(moved.mean(axis=0), states, names),
    )


def _choice_difference(
    column: ActionColumn, recorded: np.ndarray, taken: list[np.ndarray], states: np.ndarray, names: Sequence[str]
) -> ColumnDifference:
    codes = recorded.astype(np.int64)
    size = len(column.labels)
    counts = np.mean(
        [np.bincount(codes * size + found.astype(np.int64), minlength=size**2) for found in taken], axis=0
    ).reshape(size, size)
    np.fill_diagonal(counts, 0)
    largest = np.argsort(-counts, axis=None, kind="stable")[:3]
    pairs = [(int(place) // size, int(place) % size) for place in largest]
    changes = tuple(
        (column.labels[before], column.labels[after], float(counts[before, after] / len(codes)))
        for before, after in pairs
        if counts[before, after] > 0
    )
    differs = np.mean([found != recorded for found in taken], axis=0)
    other, correlated = float(differs.mean()), _correlated(differs, states, names)
    return ColumnDifference(column.name, "discrete", None, None, other, None, None, None, changes, correlated)


def _correlated(values: np.ndarray, states: np.ndarray, names: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """The observation columns with the largest correlations, two at most."""
    centered, columns = values - values.mean(), states.astype(np.float64) - states.mean(axis=0, dtype=np.float64)
    deviation = columns.std(axis=0) * values.std()
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(deviation > 1e-12, (columns * centered[:, None]).mean(axis=0) / deviation, 0)
    order = np.argsort(-np.abs(found), kind="stable")[:2]
    largest = [(names[int(index)], float(found[index])) for index in order]
    return tuple((name, value) for name, value in largest if abs(value) >= LEAST_CORRELATION)


def _states(
    policy: Policy, sample: Dataset, rows: np.ndarray, taken: np.ndarray, support: SupportModel
) -> tuple[DifferentState, ...]:
    states = sample.observations[rows]
    usual = support.usual(states).actions
    columns = policy.action_columns
    distance = np.zeros(len(rows))
    for index, column in enumerate(columns):
        if column.kind == "discrete":
            distance += taken[:, index] != usual[:, index]
        else:
            spread = max(float(sample.actions[rows, index].std()), 1e-9)
            distance += np.square((taken[:, index] - usual[:, index]) / spread)
            usual[:, index] = np.clip(usual[:, index], column.low, column.high)
    distance = np.sqrt(distance)
    scores = support.scores(states, taken.astype(np.float32))
    episodes = np.searchsorted(sample.episode_ends, rows)
    order = np.argsort(-distance, kind="stable")
    _, first = np.unique(episodes[order], return_index=True)
    chosen = order[np.sort(first)][:NUM_STATES]
    return tuple(
        DifferentState(
            int(rows[place]),
            int(episodes[place]),
            _observed(policy, sample, states[place]),
            _named(columns, sample.actions[rows[place]]),
            _named(columns, usual[place]),
            _named(columns, taken[place]),
            float(distance[place]),
            float(np.asarray(scores.action)[place]),
        )
        for place in chosen
        if distance[place] > 0
    )


def _named(columns: Sequence[ActionColumn], action: np.ndarray) -> dict[str, Any]:
    return {
        column.name: column.labels[round(float(value))] if column.kind == "discrete" else float(value)
        for column, value in zip(columns, action, strict=True)
    }


def _observed(policy: Policy, sample: Dataset, state: np.ndarray) -> dict[str, Any]:
    """The observation by column; labels where a table's encoder knows them."""
    if policy.encoder is None:
        return dict(zip(observation_names(sample), map(float, state), strict=True))
    found: dict[str, Any] = {}
    start = 0
    for column in policy.encoder.inputs:
        part = state[start : start + len(column.feature_names)]
        start += len(column.feature_names)
        is_absent = column.missing == "indicator" and part[-1] == 1
        if is_absent:
            found[column.name] = None
        elif column.kind == "categorical":
            found[column.name] = column.labels[int(np.argmax(part[: len(column.labels)]))]
        else:
            found[column.name] = bool(part[0]) if column.kind == "boolean" else float(part[0])
    return found


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
