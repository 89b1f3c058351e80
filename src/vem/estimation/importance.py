"""Weighted per-decision importance sampling, and its doubly robust form.

    ρ_t = Π_{k≤t} π(a_k|s_k)/β(a_k|s_k),   w_t = ρ_t/Σ ρ_t over the trajectories
    importance sampling   Σ_t γᵗ·Σ w_t·r_t
    doubly robust         Σ_t γᵗ·Σ [w_t·(r_t − Q(s_t, a_t)) + w_{t−1}·V(s_t)],  V(s) = E_π Q(s, a)

A trajectory that has ended keeps its last weight, and earns nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vem.algorithms.base import spec_of
from vem.algorithms.bc import BC, make
from vem.data.dataset import Dataset
from vem.estimation.log import scale_actions
from vem.evaluation.statistics import CONFIDENCE
from vem.networks import Network, apply_network
from vem.policy import Policy
from vem.policy.kinds import find_density, normalized
from vem.training.loop import start, train
from vem.training.request import Trial
from vem.training.rows import put_rows

LARGEST_LOG_RATIO = 50.0
NUM_RESAMPLES = 1000


class Decisions(NamedTuple):
    """What happened in the trajectories, one line each; after their ends rewards and values are 0 and ratios 1."""

    rewards: np.ndarray
    log_ratios: np.ndarray
    """log π(a|s) − log β(a|s)."""
    q: np.ndarray
    """Q(s_t, a_t)."""
    v: np.ndarray
    """V(s_t)."""
    discount: float


def lay_side_by_side(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Values of rows as (trajectories, steps), 0 after a trajectory's end."""
    steps = np.arange(int(lengths.max()))
    rows = np.minimum(starts[:, None] + steps, len(values) - 1)
    return np.where(steps < lengths[:, None], values[rows], 0.0)


def log_weights(decisions: Decisions) -> np.ndarray:
    """The logarithms of ρ_t, (trajectories, steps)."""
    ratios = np.where(np.isneginf(decisions.log_ratios), -1e6, decisions.log_ratios)
    return np.cumsum(np.minimum(ratios, LARGEST_LOG_RATIO), axis=1)


def effective_sample(decisions: Decisions) -> float:
    """(Σρ)²/Σρ² of the weights at the end: how many trajectories the estimate rests on."""
    last = log_weights(decisions)[:, -1]
    if last.max() < -1e5:
        return 0.0
    weights = np.exp(last - last.max())
    return float(weights.sum() ** 2 / np.square(weights).sum())


def importance_sampling(decisions: Decisions, counts: np.ndarray | None = None) -> np.ndarray:
    """The estimate; with counts (resamples, trajectories), one for each resample."""
    return _mean_steps(decisions, counts, [(_weights(decisions), decisions.rewards)])


def doubly_robust(decisions: Decisions, counts: np.ndarray | None = None) -> np.ndarray:
    """The estimate; with counts (resamples, trajectories), one for each resample."""
    weights = _weights(decisions)
    before = np.concatenate([np.ones((len(weights), 1)), weights[:, :-1]], axis=1)
    return _mean_steps(decisions, counts, [(weights, decisions.rewards - decisions.q), (before, decisions.v)])


def _weights(decisions: Decisions) -> np.ndarray:
    """The weights ρ_t but for a factor in each step: only their proportions there matter."""
    logs = log_weights(decisions)
    return np.exp(np.maximum(logs - logs.max(axis=0), -700.0)) * (logs > -1e5)


def _mean_steps(
    decisions: Decisions, counts: np.ndarray | None, terms: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Σ_t γᵗ·(sum of the terms' weighted means over trajectories)."""
    counts = np.ones((1, len(decisions.rewards))) if counts is None else counts
    means = np.zeros(())
    for weights, values in terms:
        total = counts @ weights
        means = means + np.divide(counts @ (weights * values), total, out=np.zeros_like(total), where=total > 0)
    return means @ decisions.discount ** np.arange(decisions.rewards.shape[1])


def weighted_estimates(decisions: Decisions, seed: int) -> list[tuple[float, tuple[float, float]]]:
    """Importance sampling and its doubly robust form, each with its interval over resampled trajectories."""
    count = len(decisions.rewards)
    counts = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), NUM_RESAMPLES)
    tail = 50 * (1 - CONFIDENCE)
    values = []
    for of in (importance_sampling, doubly_robust):
        low, high = np.percentile(of(decisions, counts.astype(np.float64)), [tail, 100 - tail])
        values.append((float(of(decisions)[0]), (float(low), float(high))))
    return values


def _prepared(decisions: Decisions, counts: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    logs = log_weights(decisions)
    # Only the weights' proportions in a step matter.
    weights = np.exp(np.maximum(logs - logs.max(axis=0), -700.0)) * (logs > -1e5)
    factors = decisions.discount ** np.arange(weights.shape[1])
    return np.ones((1, len(weights))) if counts is None else counts, weights, factors


# Densities of actions: those of stored policies that sample, and a model of the behavior behind the log.


BEHAVIOR_STEPS = 2000
Density = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(observations as recorded, actions in the networks' units) → log-density of each."""


def policy_density(policy: Policy) -> Density | None:
    """The log-density of the policy's sampled actions; None where it has none: a fixed choice among numbers."""
    density, tensors = find_density(policy.kind, policy.tensors), policy.tensors
    if density is None:
        return None
    return lambda observations, actions: density(tensors, normalized(tensors, observations), actions)


def fit_behavior(dataset: Dataset, num_steps: int | None = None) -> Density:
    """The log-density of the behavior: a Gaussian for numbers and a categorical for choices, by maximum likelihood."""
    spec, num_steps = spec_of(dataset), num_steps or BEHAVIOR_STEPS
    algorithm = make(BC(policy_hidden=(128, 128)), spec, num_steps)
    rows = put_rows(dataset, normalize_observations=True)
    trials = [Trial(0, {})]
    last = deque(train(algorithm, rows, trials, start(algorithm, trials, {"unused": 0.0})), maxlen=1).pop()
    exported = jax.device_get(jax.vmap(algorithm.export)(last.snapshot.state))
    actor, log_std = jax.tree.map(lambda leaf: leaf[0], (exported["actor"], exported["log_std"]))
    mean, deviation = np.asarray(rows.observation_mean), np.asarray(rows.observation_deviation)
    head = spec.head

    @jax.jit
    def likelihood(actor: Network, observations: jax.Array, actions: jax.Array) -> jax.Array:
        return head.log_likelihood(apply_network(actor, observations), log_std, actions)

    return lambda observations, actions: np.asarray(
        likelihood(actor, jnp.asarray((observations - mean) / deviation), jnp.asarray(actions)), np.float64
    )


# How far the log shows what a policy's actions lead to: w(s) = min(1, β(π(s)|s)/b).


UNUSUAL_SHARE = 0.25
MOST_ROWS = 50_000
"""Rows that b is found from."""


def support_border(density: Density, dataset: Dataset) -> float:
    """Log b: the log-density that all but a quarter of recorded actions exceed, which it was not fitted to."""
    rows = np.flatnonzero(dataset.valid)
    rows = rows[:: max(1, len(rows) // MOST_ROWS)]
    recorded = density(dataset.observations[rows], scale_actions(dataset.actions[rows], dataset))
    return float(np.quantile(recorded, UNUSUAL_SHARE))


def support_weight(density: Density, border: float, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """W of actions, in the networks' units, in states."""
    return np.exp(np.minimum(density(observations, actions) - border, 0.0)).astype(np.float32)
