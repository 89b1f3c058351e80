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

from vem.algorithms.base import put_rows, spec_of
from vem.algorithms.bc import BC, make
from vem.data.dataset import Dataset
from vem.networks import Network, apply_network
from vem.policy import Policy
from vem.policy.kinds import find_density, normalized
from vem.training.loop import start, train
from vem.training.request import Trial

LARGEST_LOG_RATIO = 50.0


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
    counts, weights, factors = _prepared(decisions, counts)
    total = counts @ weights
    return np.divide(counts @ (weights * decisions.rewards), total, out=np.zeros_like(total), where=total > 0) @ factors


def doubly_robust(decisions: Decisions, counts: np.ndarray | None = None) -> np.ndarray:
    """The estimate; with counts (resamples, trajectories), one for each resample."""
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


# Densities of actions: that of a stored policy, and a model of the behavior behind the log.


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
    found = jax.device_get(jax.vmap(algorithm.export)(last.snapshot.state))
    actor, log_std = jax.tree.map(lambda leaf: leaf[0], (found["actor"], found["log_std"]))
    mean, deviation = np.asarray(rows.observation_mean), np.asarray(rows.observation_deviation)
    head = spec.head

    @jax.jit
    def likelihood(actor: Network, observations: jax.Array, actions: jax.Array) -> jax.Array:
        return head.log_likelihood(apply_network(actor, observations), log_std, actions)

    return lambda observations, actions: np.asarray(
        likelihood(actor, jnp.asarray((observations - mean) / deviation), jnp.asarray(actions)), np.float64
    )
