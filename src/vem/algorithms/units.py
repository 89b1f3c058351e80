"""The units that networks see, found in passes over slices of the data: for data that is not held as a whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vem.algorithms.base import discounted_returns
from vem.data.dataset import Dataset
from vem.data.facts import facts_of
from vem.data.stretches import whole_episodes

SEGMENT_ROWS = 1 << 18
"""Rows whose returns are computed together; episodes are not cut."""


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
