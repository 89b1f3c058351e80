"""A Dataset as rows on the device, in the units that networks see, and the batches that are drawn of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vem.algorithms.base import Batch, Memory, Rows, Stage
from vem.data.actions import choices_of
from vem.data.dataset import Dataset, facts_of, whole_episodes
from vem.plan import Steps, monte_carlo

SEGMENT_ROWS = 1 << 18
"""Rows whose returns are computed together; episodes are not cut."""


def put_rows(
    dataset: Dataset,
    normalize_observations: bool = False,
    normalize_rewards: bool = False,
    reward_scale: float = 1.0,
    reward_shift: float = 0.0,
    return_span: float | None = None,
    discount: float = 0.99,
    place: Callable[[np.ndarray], jax.Array] = jnp.asarray,
) -> Rows:
    """The dataset on the device, where ``place`` puts each array.

    Numbers among the actions are mapped to ±1, codes of choices stay as they are. Rewards become scale·r + shift, and
    are then, if normalized, divided by the largest discounted return recorded, so that values are of order 1 whatever
    the task's unit; or, with a return span, divided so that the episodes' undiscounted returns are this far apart at
    most.
    """
    low, high = (
        np.asarray(dataset.info.action_low, np.float32),
        np.asarray(dataset.info.action_high, np.float32),
    )
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-6)
    if choices := choices_of(dataset.info.action_columns):
        is_choice = np.asarray(choices) > 0
        middle, half = np.where(is_choice, np.float32(0), middle), np.where(is_choice, np.float32(1), half)
    actions = dataset.actions
    if not (np.all(middle == 0) and np.all(half == 1)):
        actions = np.where(dataset.valid[:, None], (actions - middle) / half, 0).astype(np.float32)
    rewards = dataset.rewards
    if (reward_scale, reward_shift) != (1.0, 0.0):
        rewards = np.where(dataset.valid, rewards * reward_scale + reward_shift, 0).astype(np.float32)
    unit = 1.0
    if normalize_rewards:
        unit = float(np.abs(discounted_returns(rewards, dataset.valid, discount)).max()) or 1.0
    elif return_span is not None:
        returns = np.add.reduceat(rewards.astype(np.float64), dataset.episode_starts)
        unit = float(np.ptp(returns)) / return_span or 1.0
    rewards = rewards / np.float32(unit)
    mean, deviation = (
        np.zeros(dataset.observation_size, np.float32),
        np.ones(dataset.observation_size, np.float32),
    )
    if normalize_observations:
        mean, deviation = observation_statistics(dataset.observations)
    drawable = np.flatnonzero(dataset.valid)
    return Rows(
        observations=place(dataset.observations),
        actions=place(actions),
        rewards=place(rewards),
        continues=place(np.where(dataset.terminal, 0, 1).astype(np.float32)),
        valid=place(dataset.valid),
        drawable=place(drawable.astype(np.int32)),
        observation_mean=place(mean),
        observation_deviation=place(deviation),
        value_unit=place(np.asarray(unit, np.float32)),
    )


def rows_shape(dataset: Dataset) -> Rows:
    """The shapes of what ``put_rows`` makes of a dataset."""
    count, observed, number = dataset.num_rows, dataset.observation_size, jnp.float32
    shape: Any = jax.ShapeDtypeStruct
    return Rows(
        observations=shape((count, observed), number),
        actions=shape((count, dataset.action_size), number),
        rewards=shape((count,), number),
        continues=shape((count,), number),
        valid=shape((count,), jnp.bool_),
        drawable=shape((dataset.num_transitions,), jnp.int32),
        observation_mean=shape((observed,), number),
        observation_deviation=shape((observed,), number),
        value_unit=shape((), number),
    )


def observation_statistics(observations: np.ndarray, block: int = 65536) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each dimension, at least 10⁻³, in blocks: float64 would double the data."""
    blocks = [observations[start : start + block] for start in range(0, len(observations), block)]
    mean = np.sum([rows.sum(0, dtype=np.float64) for rows in blocks], axis=0) / len(observations)
    variance = np.sum([np.square(rows - mean).sum(0) for rows in blocks], axis=0) / len(observations)
    return mean.astype(np.float32), np.maximum(np.sqrt(variance), 1e-3).astype(np.float32)


def discounted_returns(
    rewards: np.ndarray, valid: np.ndarray, discount: float, continues: np.ndarray | None = None
) -> np.ndarray:
    """Σ γⁱ·r_{t+i} to the end of each row's episode; ``continues`` holds other factors than γ, one for each row."""
    zeros = jnp.zeros((1, rewards.size))
    factors = np.full(rewards.size, discount, np.float32) if continues is None else continues.astype(np.float32)
    steps = Steps(jnp.asarray(rewards), jnp.asarray(factors), jnp.asarray(valid))
    return np.asarray(jax.jit(monte_carlo)(zeros, steps))[0]


def gather(rows: Rows, index: jax.Array, successor: jax.Array | None = None) -> Batch:
    """The transitions of these rows, or their moves to the rows ``successor``."""
    return Batch(
        rows=index,
        observations=rows.observe(rows.observations[index]),
        actions=rows.actions[index],
        rewards=rows.rewards[index],
        continues=rows.continues[index],
        next_observations=rows.observe(rows.observations[index + 1 if successor is None else successor]),
    )


def draw_batch(stage: Stage, memory: Memory, rows: Rows, key: jax.Array) -> Batch:
    """The transitions of an update, drawn as the stage draws them."""
    index = stage.draw(memory, rows, stage.batch_size, key)
    if stage.successor is None:
        return gather(rows, index)
    return gather(rows, index, stage.successor(memory, index, jax.random.fold_in(key, 1)))


# ---- The same units for data that is not held as a whole, found in passes over slices of it ----


class Units(NamedTuple):
    """What ``put_rows`` finds in all rows."""

    observation_mean: np.ndarray
    observation_deviation: np.ndarray
    value_unit: float
    largest_reward: float
    """The largest |r|, in the unit of the values."""
    reward_scale: float
    reward_shift: float


def find_units(
    dataset: Dataset,
    normalize_observations: bool = False,
    normalize_rewards: bool = False,
    reward_scale: float = 1.0,
    reward_shift: float = 0.0,
    return_span: float | None = None,
    discount: float = 0.99,
) -> Units:
    """The units of a dataset under a method's settings; ``put_rows`` says what they mean."""
    facts = facts_of(dataset) if dataset.shards is None else dataset.shards.facts
    mean, deviation = np.zeros(dataset.observation_size, np.float32), np.ones(dataset.observation_size, np.float32)
    if normalize_observations:
        mean = np.asarray(facts.observation_mean, np.float32)
        deviation = np.maximum(facts.observation_deviation, 1e-3).astype(np.float32)
    unit = 1.0
    if normalize_rewards or return_span is not None:
        largest, lowest, highest = 0.0, np.inf, -np.inf
        for part in whole_episodes(dataset.episode_ends, SEGMENT_ROWS):
            valid = dataset.column("valid", part.start, part.stop)
            rewards = dataset.column("rewards", part.start, part.stop)
            rewards = np.where(valid, rewards * reward_scale + reward_shift, 0).astype(np.float32)
            if normalize_rewards:
                largest = max(largest, _largest_return(rewards, valid, discount))
            else:
                starts = np.concatenate([[0], np.flatnonzero(~valid)[:-1] + 1])
                returns = np.add.reduceat(rewards.astype(np.float64), starts)
                lowest, highest = min(lowest, returns.min()), max(highest, returns.max())
        unit = largest or 1.0 if return_span is None or normalize_rewards else (highest - lowest) / return_span or 1.0
    extremes = (reward_scale * reward + reward_shift for reward in (facts.least_reward, facts.largest_reward))
    largest_reward = max(map(abs, extremes)) / unit
    return Units(mean, deviation, float(unit), largest_reward, reward_scale, reward_shift)


def _largest_return(rewards: np.ndarray, valid: np.ndarray, discount: float) -> float:
    """The largest |Σ γⁱ·r_{t+i}| of whole episodes."""
    # Rows that are not valid fill up to a length that repeats: a program is compiled for each length.
    missing = -len(rewards) % SEGMENT_ROWS
    returns = discounted_returns(np.pad(rewards, (0, missing)), np.pad(valid, (0, missing)), discount)
    return float(np.abs(returns).max())
