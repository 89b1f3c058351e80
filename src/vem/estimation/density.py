"""Densities of actions: those of stored policies that sample, and a model of the behavior behind the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from vem.algorithms import bc
from vem.algorithms.base import put_rows, spec_of
from vem.core.heads import make_head
from vem.core.networks import Network, apply_network
from vem.data import Dataset
from vem.policy import Policy, Tensors, network
from vem.policy_kinds import choices_in, find_actor
from vem.runs.config import Member
from vem.runs.loop import start, train

BEHAVIOR_STEPS = 2000
EDGE = 1 - 1e-4
"""Actions of a squashed Normal are taken to be within ± this: its density has no bound at ±1."""

Density = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(observations as recorded, actions in the networks' units) → log-density of each."""


def policy_density(policy: Policy) -> Density | None:
    """The log-density of the policy's sampled actions; None where it has none: a fixed choice among numbers."""
    kinds = {"gaussian": _gaussian, "guided": _guided, "tanh-gaussian": _tanh_gaussian}
    find = kinds.get(policy.kind)
    if find is None and all(policy.action_choices) and policy.action_choices:
        find = _fixed(policy.kind)
    if find is None:
        return None
    mean, deviation = policy.tensors["observation_mean"], policy.tensors["observation_deviation"]
    return lambda observations, actions: find(policy.tensors, (observations - mean) / deviation, actions)


def fit_behavior(dataset: Dataset, num_steps: int | None = None) -> Density:
    """The log-density of the behavior: a Gaussian for numbers and a categorical for choices, by maximum likelihood."""
    spec, num_steps = spec_of(dataset), num_steps or BEHAVIOR_STEPS
    algorithm = bc.make(bc.BC(policy_hidden=(128, 128)), spec, num_steps)
    rows = put_rows(dataset, normalize_observations=True)
    members = [Member(0, {})]
    last = deque(train(algorithm, rows, members, start(algorithm, members, {"unused": 0.0})), maxlen=1).pop()
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


def _likelihood(tensors: Tensors, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    head = make_head(actions.shape[1], choices_in(tensors))
    outputs = jnp.asarray(network(tensors, "actor", inputs))
    return np.asarray(head.log_likelihood(outputs, jnp.asarray(tensors["log_std"]), jnp.asarray(actions)), np.float64)


def _gaussian(tensors: Tensors, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return _likelihood(tensors, inputs, actions)


def _guided(tensors: Tensors, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    moves = network(tensors, "guide", inputs) * (tensors["move_scale"] > 0)
    return _likelihood(tensors, np.concatenate([inputs, moves], axis=-1), actions)


def _tanh_gaussian(tensors: Tensors, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The density of a squashed Normal, log N(artanh a; mean, σ²) − Σ log(1 − a²)."""
    mean, log_std = np.split(network(tensors, "actor", inputs).astype(np.float64), 2, axis=-1)
    log_std = np.clip(log_std, *tensors["log_std_bounds"])
    inside = np.clip(actions, -EDGE, EDGE).astype(np.float64)
    standardized = (np.arctanh(inside) - mean) / np.exp(log_std)
    return np.sum(-0.5 * standardized**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log1p(-(inside**2)), axis=-1)


def _fixed(kind: str) -> Callable[[Tensors, np.ndarray, np.ndarray], np.ndarray]:
    """Log-probability of choices that are always the same in a state: 0 or −∞."""

    def density(tensors: Tensors, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        is_chosen = np.all(find_actor(kind)(tensors, inputs, None) == actions, axis=-1)
        return np.where(is_chosen, 0.0, -np.inf)

    return density
