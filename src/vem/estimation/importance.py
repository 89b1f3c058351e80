"""Weighted per-decision importance sampling, and its doubly robust form.

    ρ_t = Π_{k≤t} π(a_k|s_k)/β(a_k|s_k),   w_t = ρ_t/Σ ρ_t over the recordings
    importance sampling   Σ_t γᵗ·Σ w_t·r_t
    doubly robust         Σ_t γᵗ·Σ [w_t·(r_t − Q(s_t, a_t)) + w_{t−1}·V(s_t)],  V(s) = E_π Q(s, a)

A recording that has ended keeps its last weight, and earns nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LARGEST_LOG_RATIO = 50.0


class Decisions(NamedTuple):
    """What happened in the recordings, one line each; after their ends rewards and values are 0 and ratios 1."""

    rewards: np.ndarray
    log_ratios: np.ndarray
    """log π(a|s) − log β(a|s)."""
    q: np.ndarray
    """Q(s_t, a_t)."""
    v: np.ndarray
    """V(s_t)."""
    discount: float


def lay_side_by_side(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Values of rows as (recordings, steps), 0 after a recording's end."""
    steps = np.arange(int(lengths.max()))
    rows = np.minimum(starts[:, None] + steps, len(values) - 1)
    return np.where(steps < lengths[:, None], values[rows], 0.0)


def log_weights(decisions: Decisions) -> np.ndarray:
    """The logarithms of ρ_t, (recordings, steps)."""
    ratios = np.where(np.isneginf(decisions.log_ratios), -1e6, decisions.log_ratios)
    return np.cumsum(np.minimum(ratios, LARGEST_LOG_RATIO), axis=1)


def effective_sample(decisions: Decisions) -> float:
    """(Σρ)²/Σρ² of the weights at the end: how many recordings the estimate rests on."""
    last = log_weights(decisions)[:, -1]
    if last.max() < -1e5:
        return 0.0
    weights = np.exp(last - last.max())
    return float(weights.sum() ** 2 / np.square(weights).sum())


def importance_sampling(decisions: Decisions, counts: np.ndarray | None = None) -> np.ndarray:
    """The estimate; with counts (resamples, recordings), one for each resample."""
    counts, weights, factors = _prepared(decisions, counts)
    total = counts @ weights
    return np.divide(counts @ (weights * decisions.rewards), total, out=np.zeros_like(total), where=total > 0) @ factors


def doubly_robust(decisions: Decisions, counts: np.ndarray | None = None) -> np.ndarray:
    """The estimate; with counts (resamples, recordings), one for each resample."""
    counts, weights, factors = _prepared(decisions, counts)
    before = np.concatenate([np.ones((len(weights), 1)), weights[:, :-1]], axis=1)
    corrections = [(weights, decisions.rewards - decisions.q), (before, decisions.v)]
    parts = 0.0
    for used, values in corrections:
        total = counts @ used
        parts = parts + np.divide(counts @ (used * values), total, out=np.zeros_like(total), where=total > 0)
    return parts @ factors


def _prepared(decisions: Decisions, counts: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    logs = log_weights(decisions)
    # Only the weights' proportions in a step matter.
    weights = np.exp(np.maximum(logs - logs.max(axis=0), -700.0)) * (logs > -1e5)
    factors = decisions.discount ** np.arange(weights.shape[1])
    return np.ones((1, len(weights))) if counts is None else counts, weights, factors
