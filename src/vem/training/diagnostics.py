"""Reasons not to trust a run's policies, looked for when its training ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vem.data.actions import choices_of
from vem.data.dataset import Dataset, sample_episodes
from vem.policy import Policy
from vem.policy.support import OUTSIDE, SupportModel, split_rows
from vem.training.records import MetricLine, RunWarning

# Luck: how much of the spread of returns comes from what the same action in the same state led to.


SLICE_ROWS = 512
NEAR = 0.25
"""Neighbors are nearly the same up to this share of the typical distance between two rows, √(2·columns)."""
NUM_FEATURES = 300
LEAST_PAIRS = 50
"""Neighbors that are nearly the same, for luck to be told."""


def regress_returns(states: np.ndarray, returns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """V of all states: a ridge regression on random features of the returns at ``rows``, always the same."""
    generator = np.random.default_rng(0)
    columns = states.shape[1]
    factors = generator.normal(size=(columns, NUM_FEATURES)) / np.sqrt(columns)
    offsets = generator.normal(size=NUM_FEATURES)

    def features(points: np.ndarray) -> np.ndarray:
        return np.concatenate([np.maximum(points @ factors + offsets, 0), points, np.ones((len(points), 1))], axis=1)

    known = features(states[rows])
    penalty = 1e-3 * len(rows) * np.eye(known.shape[1])
    weights = np.linalg.solve(known.T @ known + penalty, known.T @ returns[rows].astype(np.float64))
    return features(states) @ weights


def recorded_returns(rewards: np.ndarray, valid: np.ndarray, discount: float) -> np.ndarray:
    """Σ γⁱ·r_{t+i} to the end of each row's episode; 0 on rows that are not valid."""
    returns, total = np.zeros(len(rewards)), 0.0
    for row in range(len(rewards) - 1, -1, -1):
        total = float(rewards[row]) + discount * total if valid[row] else 0.0
        returns[row] = total
    return returns


def nearest_in_other_groups(points: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each point the index of the nearest one of another group, and the squared distance; −1 and ∞ if none."""
    points = np.asarray(points, np.float32)
    squares = np.square(points).sum(axis=1)
    nearest, distances = np.full(len(points), -1), np.full(len(points), np.inf)
    for start in range(0, len(points), SLICE_ROWS):
        part = slice(start, start + SLICE_ROWS)
        rough = squares - 2 * points[part] @ points.T
        rough[groups[part, None] == groups] = np.inf
        found = rough.argmin(axis=1)
        has_other = np.isfinite(rough[np.arange(len(found)), found])
        exact = np.square(points[part] - points[found]).sum(axis=1)
        nearest[part], distances[part] = np.where(has_other, found, -1), np.where(has_other, exact, np.inf)
    return nearest, distances


def mean_at_no_distance(values: np.ndarray, distances: np.ndarray) -> float:
    """The mean of ``values`` carried on to distance 0 by the line through its nearer and its farther half."""
    order = np.argsort(distances, kind="stable")
    near, far = order[: len(order) // 2], order[len(order) // 2 :]
    x, y = (np.array([found[near].mean(), found[far].mean()], np.float64) for found in (distances, values))
    if y[1] <= y[0] or x[1] <= x[0]:
        return float(values.mean())
    return float(np.clip(y[0] - x[0] * (y[1] - y[0]) / (x[1] - x[0]), 0, y[0]))


def luck_share(
    points: np.ndarray,
    groups: np.ndarray,
    surprises: np.ndarray,
    ends: np.ndarray,
    elapsed: np.ndarray,
    returns: np.ndarray,
    discount: float,
) -> float:
    """Share of the variance of ``returns`` that is seen to be luck, 0 to 1; NaN where too few rows are nearly the same.

    One entry a row: the state and action (``points``, in units of their deviations), the episode (``groups``), δ
    (``surprises``), whether it ended the task, the steps since the beginning of the trajectory, all of whose returns δ
    is a part of, and the discounted return from there. Rows without a neighbor that is nearly the same count as free
    of luck. So do pairs of which one ended the task: at the edge of a goal that is no luck, and V is least exact there.
    """
    nearest, distances = nearest_in_other_groups(points, groups)
    rows = np.flatnonzero((distances <= NEAR**2 * 2 * points.shape[1]) & (ends == ends[nearest]))
    spread = float(np.var(np.asarray(returns, np.float64)))
    if rows.size < LEAST_PAIRS or not spread > 0:
        return float("nan")
    squared, steps = discount**2, elapsed[rows] + 1.0
    reach = steps if squared == 1 else (1 - squared**steps) / (1 - squared)
    halves = 0.5 * np.square(surprises[rows] - surprises[nearest[rows]]).astype(np.float64)
    total = mean_at_no_distance(reach * halves, distances[rows]) * rows.size / len(points)
    return float(np.clip(total / spread, 0, 1))


NUM_ROWS = 4000
"""Rows that luck and support are measured on."""
LEAST_LINES = 6
"""Metric lines from which on values can be seen to settle."""
DRIFT = 0.05
"""Values have settled if their mean moves by less than this share of its path over the last tenth of training."""
LEAST_ROWS = 100
"""Effective rows that a policy should rest on at least."""
LEAST_SHARE = 0.01
MOST_LUCK = 0.15
"""Share of the returns' variance from which on luck is warned of."""
MOST_OUTSIDE = 0.05
"""Share of a policy's actions that may be outside of the data; of recorded ones a hundredth is."""


def find_warnings(
    dataset: Dataset, policies: Sequence[Policy], lines: Sequence[MetricLine], support: SupportModel | None
) -> list[RunWarning]:
    """What speaks against these policies: ``lines`` are the metrics of their training."""
    sample = sample_episodes(dataset)
    found = [
        unsettled_values(lines),
        small_effective_sample(lines, dataset.num_transitions),
        lucky_returns(sample, policies),
        actions_outside(dataset, policies, support),
        few_rows(support),
    ]
    return [warning for warning in found if warning is not None]


def unsettled_values(lines: Sequence[MetricLine]) -> RunWarning | None:
    """Whether the mean value still moved, in one direction, at the end of the values' training."""
    drifts: dict[str, tuple[float, float]] = {}
    for name in lines[-1].trials if lines else ():
        found = [line.trials.get(name, {}).get("value_mean") for line in lines]
        values = np.array([value for value in found if value is not None])
        if len(values) >= LEAST_LINES and (drift := _drift(values)) is not None:
            drifts[name] = drift
    if not drifts:
        return None
    name, (share, moved) = max(drifts.items(), key=lambda entry: entry[1][0])
    which = f" of {name}" if len(drifts) > 1 or len(lines[-1].trials) > 1 else ""
    return RunWarning(
        "unsettled",
        f"Values had not settled: the mean value{which} still went {'up' if moved > 0 else 'down'} at the end of "
        f"its training, by {share:.0%} of its whole path between the last two readings.",
        "Train longer (--steps), and compare the policies of both lengths.",
    )


def _drift(values: np.ndarray) -> tuple[float, float] | None:
    """The move of the last tenth, as a share of the whole path and with its sign; None if it is small or noise."""
    size = max(2, len(values) // 10)
    last, before = values[-size:], values[-2 * size : -size]
    moved = float(last.mean() - before.mean())
    noise = float(np.sqrt((last.var() + before.var()) / size))
    means = [part.mean() for part in np.array_split(values, min(10, len(values)))]
    path = max(float(np.ptp([values[0], *means])), 1e-12)
    is_level = abs(moved) <= DRIFT * path or abs(moved) <= 0.01 * abs(float(last.mean()))
    return None if is_level or abs(moved) <= 2 * noise else (abs(moved) / path, moved)


def small_effective_sample(lines: Sequence[MetricLine], num_transitions: int) -> RunWarning | None:
    """Whether few of the rows carry the weights of the policy's regression."""
    newest: dict[str, float] = {}
    for line in lines:
        newest.update({n: m["effective_share"] for n, m in line.trials.items() if "effective_share" in m})
    if not newest:
        return None
    share = min(newest.values())
    rows = share * num_transitions
    if rows >= LEAST_ROWS and share >= LEAST_SHARE:
        return None
    return RunWarning(
        "effective-sample",
        f"The policy rests on few rows: its weights are worth about {max(1, round(rows)):,} of "
        f"{num_transitions:,} equally weighted steps ({share:.2%}).",
        "Give more rows a say (--effective-sample, or a higher --temperature), or record more data.",
    )


def measure_luck(sample: Dataset, discount: float) -> float:
    """Share of the variance of recorded discounted returns that is luck (``vem.training.diagnostics``).

    NaN where too few steps have a neighbor in another episode.
    """
    returns = recorded_returns(sample.rewards, sample.valid, discount)
    lengths = sample.episode_lengths + 1
    groups = np.repeat(np.arange(len(lengths)), lengths)
    elapsed = np.arange(sample.num_rows) - np.repeat(sample.episode_starts, lengths)
    rows = np.flatnonzero(sample.valid)
    values = regress_returns(_standardized(sample.observations), returns, rows)
    rows = np.sort(np.random.default_rng(0).permutation(rows)[:NUM_ROWS])
    following = np.where(sample.terminal[rows], 0, values[rows + 1])
    surprises = sample.rewards[rows] + discount * following - values[rows]
    points, ends = _points(sample, rows), sample.terminal[rows]
    return luck_share(points, groups[rows], surprises, ends, elapsed[rows], returns[rows], discount)


def _points(sample: Dataset, rows: np.ndarray) -> np.ndarray:
    """States and actions in units of their deviations; a column for each choice."""
    actions = sample.actions[rows]
    columns = [sample.observations[rows]]
    for index, count in enumerate(choices_of(sample.info.action_columns) or (0,) * actions.shape[1]):
        values = actions[:, index, None]
        columns.append((values == np.arange(count)).astype(np.float32) if count else values)
    return _standardized(np.concatenate(columns, axis=1))


def _standardized(columns: np.ndarray) -> np.ndarray:
    """Columns in units of their deviations from their means, without those that never change."""
    columns = columns.astype(np.float64)
    deviation = columns.std(axis=0)
    changing = deviation > 1e-6 * np.abs(columns).max(axis=0, initial=0)
    return (columns - columns.mean(axis=0))[:, changing] / deviation[changing]


def lucky_returns(sample: Dataset, policies: Sequence[Policy]) -> RunWarning | None:
    """Whether much of the spread of the returns is luck."""
    if not policies or not policies[0].has_value:
        return None  # a method without values does not choose by returns
    share = measure_luck(sample, float(policies[0].info.get("settings", {}).get("discount", 0.99)))
    if not share > MOST_LUCK:
        return None
    return RunWarning(
        "luck",
        f"Rewards look like luck: about {share:.0%} of the spread of recorded returns comes from what the same action "
        "in the same state led to. The largest returns along trajectories are then partly lucky, and values too high.",
        "Lower the expectile (--expectile), shorten the plan (--num-plan-steps), or compare with iql; add columns that "
        "explain the differences.",
    )


def actions_outside(dataset: Dataset, policies: Sequence[Policy], support: SupportModel | None) -> RunWarning | None:
    """Whether policies act in recorded states, those that support is calibrated on, as nobody did there."""
    if support is None or not policies:
        return None
    states = dataset.observations[split_rows(dataset)[1][:NUM_ROWS]]
    shares = [
        float(np.mean(support.scores(states, policy.act(states).reshape(len(states), -1)).action < OUTSIDE))
        for policy in policies
    ]
    if max(shares) <= MOST_OUTSIDE:
        return None
    return RunWarning(
        "outside",
        f"{max(shares):.0%} of the policy's actions in recorded states are farther from what was done there than 99 % "
        "of recorded actions are.",
        "Look at the report's support of actions; stay nearer to the data with a larger effective sample, or with bc.",
    )


def few_rows(support: SupportModel | None) -> RunWarning | None:
    """Whether support cannot be told finely enough."""
    held_out = 0 if support is None else len(support.distances)
    if held_out >= 1 / OUTSIDE:
        return None
    return RunWarning(
        "few-rows",
        f"Support is calibrated on {held_out} held-out steps, too few for scores below {1 / (1 + held_out):.2g}.",
        "Record more episodes before relying on scores of support.",
    )
