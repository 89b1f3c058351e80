"""Whole recordings kept apart from training, by a rule that depends on the data alone.

The same share of the same data keeps the same recordings apart, whatever the method, its seeds and the order of the
rows, so that runs can be compared on them.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from vem.data.dataset import Dataset
from vem.data.row_hashes import hash_dataset, mix
from vem.errors import DataError, SettingsError

LARGEST_SHARE = 0.9
ORDINARY_STEP = 0.99
STEP_FACTOR = 3.0
"""An episode that begins within 3 × the 99 % quantile of a step from where the last one ended goes on with it."""

RUNS_OF_TERMINALS = 0.2
"""Share of episodes of one step above which terminals come in runs."""


class Parts(NamedTuple):
    """A dataset in two parts; no recording, and no copy of an episode, is in both."""

    training: Dataset
    held_out: Dataset | None
    """None: nothing is held out."""


def check_hold_out(share: float) -> float:
    """``share``, if it is a share of the recordings that can be held out."""
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    if not is_number or not 0 <= share <= LARGEST_SHARE:
        raise SettingsError(
            f"--hold-out is {share!r}; give the share of the recordings to keep apart, from 0 (none) to {LARGEST_SHARE}"
        )
    return float(share)


def part_dataset(dataset: Dataset, share: float) -> Parts:
    """The dataset without the held-out recordings, and those."""
    if not share:
        return Parts(dataset, None)
    if dataset.shards is not None:
        raise SettingsError(
            f"--hold-out keeps recordings apart of data that is read as a whole, and {dataset.info.name} is of shards; "
            "train on the file that the shards were made from, or convert two files: one to train on, one for "
            "vem estimate --data"
        )
    is_out = held_out_episodes(dataset, share)
    return Parts(take_episodes(dataset, ~is_out), take_episodes(dataset, is_out))


def held_out_episodes(dataset: Dataset, share: float) -> np.ndarray:
    """Which episodes are held out: those of about ``share`` of the recordings, at least one and not all.

    Recordings that hold a copy of the same episode stay together. Their order is that of a hash of what they hold.
    """
    hashes = hash_dataset(dataset).episodes
    recording = recordings_of(dataset)
    group = _joined(recording, hashes)
    num_groups = int(group.max()) + 1
    if num_groups < 2:
        copies = "copies of one another" if recording.max() else "one recording"
        raise DataError(
            f"nothing of {dataset.info.name} can be held out: its {dataset.num_episodes:,} episodes are {copies}; "
            "give more recordings, or train without --hold-out"
        )
    keys = np.zeros(num_groups, np.uint64)
    np.add.at(keys, group, hashes)
    sizes = np.bincount(group[_first_of(recording)], minlength=num_groups)
    target, held, chosen = share * sizes.sum(), 0, np.zeros(num_groups, np.bool_)
    for index in np.argsort(mix(keys), kind="stable"):
        # A group that would take more than the share is passed over, unless nothing is held out yet.
        if held + sizes[index] <= max(target, 1):
            chosen[index] = True
            held += int(sizes[index])
    if not held:
        chosen[np.argmin(sizes)] = True
    return chosen[group]


def recordings_of(dataset: Dataset) -> np.ndarray:
    """The number of the recording that each episode belongs to, from 0.

    An episode goes on with the one before if it begins where that ended, to the bit. Where recordings go on after
    terminals, as those of AntMaze that stay at the goal, many episodes have one step, and an episode goes on with one
    that a terminal ended if it begins within an ordinary step of there.
    """
    ends = dataset.episode_ends
    if len(ends) == 1:
        return np.zeros(1, np.int64)
    final, first = dataset.observations[ends[:-1]], dataset.observations[ends[:-1] + 1]
    goes_on = np.all(final == first, axis=1)
    terminal = dataset.terminal[ends - 1]
    if np.mean(terminal & (dataset.episode_lengths == 1)) > RUNS_OF_TERMINALS:
        is_near = np.all(np.abs(first - final) <= STEP_FACTOR * _ordinary_steps(dataset), axis=1)
        goes_on |= terminal[:-1] & is_near
    return np.concatenate([[0], np.cumsum(~goes_on)])


def take_episodes(dataset: Dataset, chosen: np.ndarray) -> Dataset:
    """The dataset of the chosen episodes alone."""
    rows = np.repeat(chosen, dataset.episode_lengths + 1)
    columns = {
        name: getattr(dataset, name)[rows] for name in ("observations", "actions", "rewards", "valid", "terminal")
    }
    return dataclasses.replace(dataset, **columns)


def _ordinary_steps(dataset: Dataset, most_rows: int = 65_536) -> np.ndarray:
    valid = np.flatnonzero(dataset.valid)
    valid = valid[:: max(1, len(valid) // most_rows)]
    steps = np.abs(dataset.observations[valid + 1] - dataset.observations[valid])
    return np.quantile(steps, ORDINARY_STEP, axis=0)


def _first_of(recording: np.ndarray) -> np.ndarray:
    """The first episode of each recording."""
    return np.flatnonzero(np.diff(recording, prepend=-1))


def _joined(recording: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """The group of each episode: recordings, joined where they hold equal episodes."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, same = np.unique(hashes, return_inverse=True)
    num_recordings = int(recording.max()) + 1
    size = num_recordings + int(same.max()) + 1
    # Recordings and contents are the nodes, and each episode is an edge.
    edges = coo_array((np.ones(len(same)), (recording, num_recordings + same)), shape=(size, size))
    _, component = connected_components(edges, directed=False)
    _, group = np.unique(component[recording], return_inverse=True)
    return group
