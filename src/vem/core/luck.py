"""Luck: how much of the spread of returns comes from what the same action in the same state led to.

The discounted return of a recording from row t is V(s_t) + Σ γᵏ·δ_{t+k}, with δ = r + γ·V(s′) − V(s). What δ varies by
between recorded rows with nearly the same state and action is luck: nothing that a policy could choose. Its variance
v adds up along a recording to v·Σ γ²ᵏ, and as a share of the variance of all returns this says how far to trust the
largest of them.
"""

from __future__ import annotations

import numpy as np

SLICE_ROWS = 512


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


def variance_at_no_distance(values: np.ndarray, nearest: np.ndarray, distances: np.ndarray) -> float:
    """½·E[(x_i − x_j)²] of neighbors, carried on to distance 0 by the line through the nearer and the farther half.

    NaN without neighbors.
    """
    rows = np.flatnonzero(nearest >= 0)
    if rows.size < 2:
        return float("nan")
    halves = 0.5 * np.square(values[rows] - values[nearest[rows]]).astype(np.float64)
    order = np.argsort(distances[rows], kind="stable")
    near, far = order[: len(order) // 2], order[len(order) // 2 :]
    x, y = (np.array([found[near].mean(), found[far].mean()]) for found in (distances[rows], halves))
    if y[1] <= y[0] or x[1] <= x[0]:
        return float(halves.mean())
    return float(np.clip(y[0] - x[0] * (y[1] - y[0]) / (x[1] - x[0]), 0, y[0]))


def luck_share(
    points: np.ndarray, groups: np.ndarray, surprises: np.ndarray, remaining: np.ndarray, returns: np.ndarray, discount: float
) -> float:
    """Share of the variance of ``returns`` that is luck, from 0 to 1; NaN where rows have no neighbors to compare.

    One entry a row: the state and action (``points``, in units that distances may be taken in), the episode
    (``groups``), δ (``surprises``), the steps to the end of the recording, and the discounted return from there.
    """
    nearest, distances = nearest_in_other_groups(points, groups)
    variance = variance_at_no_distance(surprises, nearest, distances)
    squared = discount**2
    factors = np.asarray(remaining, np.float64) if squared == 1 else (1 - squared ** remaining.astype(float)) / (1 - squared)
    spread = float(np.var(np.asarray(returns, np.float64)))
    if not spread > 0:
        return float("nan")
    return float(np.clip(variance * factors.mean() / spread, 0, 1))
