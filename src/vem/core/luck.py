"""Luck: how much of the spread of returns comes from what the same action in the same state led to.

The discounted return of a recording from row t is V(s_t) + Σ γᵏ·δ_{t+k}, with δ = r + γ·V(s′) − V(s) and V the mean
return from a state, here by a regression of recorded returns. What δ varies by between recorded rows with nearly the
same state and action is luck: nothing that a policy could choose. Its variance adds up along recordings, times γ²ᵏ,
and as a share of the variance of all returns this says how far to trust the largest of them.
"""

from __future__ import annotations

import numpy as np

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
    (``surprises``), whether it ended the task, the steps since the beginning of the recording, all of whose returns δ
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
