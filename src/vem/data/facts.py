"""Facts about all rows of a Dataset, computed in passes over slices of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.data.stretches import whole_episodes

if TYPE_CHECKING:
    from vem.data.dataset import Dataset

SLICE_ROWS = 1 << 18


@dataclass(frozen=True)
class Facts:
    """What methods ask about all rows."""

    num_episodes: int
    longest_episode: int
    """Rows of the longest episode, its final observation included."""
    typical_steps: int
    """Steps of the episode that the median transition is in."""
    least_reward: float
    largest_reward: float
    unrewarded: float
    """Share of the steps after which their own recording earns nothing more than the smallest reward."""
    observation_mean: tuple[float, ...]
    observation_deviation: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """The facts as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Facts:
        """The facts that ``to_json`` gave."""
        names = ("observation_mean", "observation_deviation")
        vectors: dict[str, Any] = {name: tuple(map(float, stored[name])) for name in names}
        numbers = {name: value for name, value in stored.items() if name not in names}
        if wrong := next((name for name, value in numbers.items() if not isinstance(value, int | float)), None):
            raise ValueError(f"{wrong} is {str(numbers[wrong])[:40]!r}")
        return cls(**numbers, **vectors)


def facts_of(dataset: Dataset) -> Facts:
    """The facts of a dataset: two passes over the rewards and one over the observations."""
    ends = dataset.episode_ends
    lengths = np.diff(ends, prepend=-1) - 1
    low, high = reward_range(dataset)
    mean, deviation = observation_moments(dataset)
    return Facts(
        num_episodes=len(ends),
        longest_episode=int(lengths.max()) + 1,
        typical_steps=typical_steps(lengths),
        least_reward=low,
        largest_reward=high,
        unrewarded=unrewarded_share(dataset),
        observation_mean=tuple(mean.tolist()),
        observation_deviation=tuple(deviation.tolist()),
    )


def typical_steps(lengths: np.ndarray) -> int:
    """Steps of the episode that the median transition is in."""
    lengths = np.sort(lengths)
    return int(lengths[np.searchsorted(np.cumsum(lengths), lengths.sum() / 2)])


def reward_range(dataset: Dataset) -> tuple[float, float]:
    """The smallest and the largest reward of a step."""
    low, high = np.inf, -np.inf
    for rewards, valid in zip(dataset.slices("rewards"), dataset.slices("valid"), strict=True):
        low = min(low, float(np.min(rewards, where=valid, initial=np.inf)))
        high = max(high, float(np.max(rewards, where=valid, initial=-np.inf)))
    return low, high


def unrewarded_share(dataset: Dataset) -> float:
    """Share of the steps after which their own recording earns nothing more than the smallest reward of all.

    It says how much joining of recordings there is to do: 0 where every step is rewarded, near 1 where few recordings
    reach a goal. Data whose rewards are all equal have nothing to join: 0.
    """
    low, high = reward_range(dataset)
    if low == high:
        return 0.0
    least, unrewarded = low + 1e-6 * (high - low), 0
    for part in whole_episodes(dataset.episode_ends, SLICE_ROWS):
        rewards, valid = (dataset.column(name, part.start, part.stop) for name in ("rewards", "valid"))
        earned = np.concatenate([[0], np.cumsum(valid & (rewards > least))])
        last = np.flatnonzero(~valid)
        rows = np.arange(len(valid))
        left = earned[last[np.searchsorted(last, rows)]] - earned[rows]
        unrewarded += int(np.count_nonzero(left[valid] == 0))
    return unrewarded / dataset.num_transitions


def observation_moments(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each observation dimension over all rows, in float64."""
    count, mean, squares = 0, np.zeros(dataset.observation_size), np.zeros(dataset.observation_size)
    for part in dataset.slices("observations"):
        own_mean = part.mean(0, dtype=np.float64)
        own_squares = part.var(0, dtype=np.float64) * len(part)
        total = count + len(part)
        difference = own_mean - mean
        squares += own_squares + difference**2 * (count * len(part) / total)
        mean += difference * (len(part) / total)
        count = total
    return mean, np.sqrt(squares / count)
