"""What a run's policies do otherwise than its log, column by column, and the states where they differ most."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.actions import ActionColumn, choices_of
from vem.data.dataset import Dataset, sample_episodes
from vem.errors import DataError, RunError
from vem.evaluation.rollout import SpaceSizes
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
    share_other: float
    """Share of the steps with another value; of discrete columns, another label."""
    varies_with: tuple[tuple[str, float], ...] = ()
    """Observation columns that the difference goes with, with the correlation; discrete: whether it differs."""
    mean: float | None = None
    """Mean difference, in the column's unit; None for discrete columns, as are the next four."""
    spread: float | None = None
    """Standard deviation of the differences."""
    share_higher: float | None = None
    share_lower: float | None = None
    recorded_spread: float | None = None
    """Standard deviation of the recorded values."""
    changes: tuple[tuple[str, str, float], ...] = ()
    """The most frequent other labels: the recorded one, the policy's, share of the steps."""

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
    first = policies[0]
    sizes = SpaceSizes(
        dataset.observation_size, dataset.action_size, "the data", choices_of(dataset.info.action_columns)
    )
    if problem := sizes.misfit(first):
        raise DataError(f"the policy {problem}: give trajectories of the same columns")
    sample = sample_episodes(dataset)
    rows = np.flatnonzero(sample.valid)
    rows = np.sort(np.random.default_rng(0).permutation(rows)[:NUM_ROWS])
    states, recorded = sample.observations[rows], sample.actions[rows]
    taken = np.stack([policy.act(states).reshape(len(rows), -1) for policy in policies]).astype(np.float64)
    names = observation_names(dataset)
    columns = tuple(
        (_discrete if column.kind == "discrete" else _continuous)(
            column, recorded[:, index].astype(np.float64), taken[:, :, index], states, names
        )
        for index, column in enumerate(first.action_columns)
    )
    if support is None:
        support = first.support_model if first.has_support else measure_support(dataset)
    largest = () if support is None else _different_states(first, sample, rows, taken[0], support)
    return Differences(len(rows), len(policies), columns, largest)


def observation_names(dataset: Dataset) -> tuple[str, ...]:
    """What each number of an observation is called."""
    return dataset.observation_names or tuple(f"observation {index}" for index in range(dataset.observation_size))


def _continuous(
    column: ActionColumn, recorded: np.ndarray, taken: np.ndarray, states: np.ndarray, names: Sequence[str]
) -> ColumnDifference:
    moved, spread = taken - recorded, float(recorded.std())
    tolerance = max(SAME * spread, 1e-9)
    higher, lower = float(np.mean(moved > tolerance)), float(np.mean(moved < -tolerance))
    return ColumnDifference(
        column.name,
        column.kind,
        higher + lower,
        _correlated(moved.mean(axis=0), states, names),
        mean=float(moved.mean()),
        spread=float(np.mean(moved.std(axis=1))),
        share_higher=higher,
        share_lower=lower,
        recorded_spread=spread,
    )


def _discrete(
    column: ActionColumn, recorded: np.ndarray, taken: np.ndarray, states: np.ndarray, names: Sequence[str]
) -> ColumnDifference:
    differs, size = taken != recorded, len(column.labels)
    pairs = (recorded * size + taken)[differs].astype(np.int64)
    counts = np.bincount(pairs, minlength=size**2) / differs.size
    largest = np.argsort(-counts, kind="stable")[:3]
    changes = tuple(
        (column.labels[pair // size], column.labels[pair % size], float(counts[pair]))
        for pair in largest.tolist()
        if counts[pair] > 0
    )
    goes_with = _correlated(differs.mean(axis=0), states, names)
    return ColumnDifference(column.name, column.kind, float(differs.mean()), goes_with, changes=changes)


def _correlated(values: np.ndarray, states: np.ndarray, names: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """The observation columns with the largest correlations, two at most."""
    centered, columns = values - values.mean(), states.astype(np.float64) - states.mean(axis=0, dtype=np.float64)
    deviation = columns.std(axis=0) * values.std()
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(deviation > 1e-12, (columns * centered[:, None]).mean(axis=0) / deviation, 0)
    order = np.argsort(-np.abs(found), kind="stable")[:2]
    largest = [(names[int(index)], float(found[index])) for index in order]
    return tuple((name, value) for name, value in largest if abs(value) >= LEAST_CORRELATION)


def _different_states(
    policy: Policy, sample: Dataset, rows: np.ndarray, taken: np.ndarray, support: SupportModel
) -> tuple[DifferentState, ...]:
    """Where the policy is farthest from what the log usually does, one state of an episode."""
    states, recorded = sample.observations[rows], sample.actions[rows]
    usual = support.usual(states).actions
    columns = policy.action_columns
    squares = np.zeros(len(rows))
    for index, column in enumerate(columns):
        if column.kind == "discrete":
            squares += taken[:, index] != usual[:, index]
        else:
            spread = max(float(recorded[:, index].std()), 1e-9)
            squares += np.square((taken[:, index] - usual[:, index]) / spread)
            usual[:, index] = np.clip(usual[:, index], column.low, column.high)
    distance = np.sqrt(squares)
    scores = np.asarray(support.scores(states, taken.astype(np.float32)).action)
    episodes = np.searchsorted(sample.episode_ends, rows)
    order = np.argsort(-distance, kind="stable")
    _, first = np.unique(episodes[order], return_index=True)
    return tuple(
        DifferentState(
            int(rows[row]),
            int(episodes[row]),
            _observed(policy, sample, states[row]),
            _named(columns, recorded[row]),
            _named(columns, usual[row]),
            _named(columns, taken[row]),
            float(distance[row]),
            float(scores[row]),
        )
        for row in order[np.sort(first)][:NUM_STATES]
        if distance[row] > 0
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
    values: dict[str, Any] = {}
    start = 0
    for column in policy.encoder.inputs:
        part = state[start : start + len(column.feature_names)]
        start += len(part)
        if column.missing == "indicator" and part[-1] == 1:
            values[column.name] = None
        elif column.kind == "categorical":
            values[column.name] = column.labels[int(np.argmax(part[: len(column.labels)]))]
        else:
            values[column.name] = bool(part[0]) if column.kind == "boolean" else float(part[0])
    return values


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
