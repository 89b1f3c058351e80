"""64-bit hashes of rows and episodes by their bits: which of them repeat others exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from vem.data.dataset import Dataset


class Hashes(NamedTuple):
    """Hashes of a dataset's parts."""

    transitions: np.ndarray
    """Of each valid row with its successor."""
    episodes: np.ndarray
    """Of all rows of each episode, in their order."""


def hash_dataset(dataset: Dataset) -> Hashes:
    """The hashes of all transitions and episodes; equal for equal bits, and hardly ever for others."""
    observed, acted = (
        np.concatenate([_hash_rows(part) for part in dataset.slices(name)]) for name in ("observations", "actions")
    )
    step = mix(observed, acted, dataset.rewards.view(np.uint32), dataset.valid, dataset.terminal)
    successor = np.roll(observed, -1)
    # An episode's hash is the sum of its rows' hashes, each mixed with the row's place in the episode.
    starts, num_rows = dataset.episode_starts, dataset.episode_lengths + 1
    place = np.arange(dataset.num_rows) - np.repeat(starts, num_rows)
    return Hashes(mix(step, successor)[dataset.valid], np.add.reduceat(mix(step, place), starts))


def mix(*columns: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row of several integer columns, by multiplying, shifting and xor."""
    hashes = np.full(len(columns[0]), 0x9E3779B97F4A7C15, np.uint64)
    for column in columns:
        hashes ^= column.astype(np.uint64)
        hashes *= np.uint64(0xFF51AFD7ED558CCD)
        hashes ^= hashes >> np.uint64(32)
    return hashes


def _hash_rows(values: np.ndarray) -> np.ndarray:
    """A hash of each float32 row's bits, one column at a time."""
    return mix(*(values[:, column].view(np.uint32) for column in range(values.shape[1])))
