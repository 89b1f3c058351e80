"""Trajectories that are held out: whole, without copies on the other side, by a rule of the data alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import chain
from tiny import tiny_dataset
from vem.data.arrays import from_arrays
from vem.data.dataset import Dataset, check_hold_out, held_out_episodes, part_dataset, take_episodes, trajectories_of
from vem.errors import DataError, SettingsError


def contents(dataset: Dataset) -> set[bytes]:
    """What each episode observed."""
    rows = zip(dataset.episode_starts, dataset.episode_ends, strict=True)
    return {dataset.observations[start : end + 1].tobytes() for start, end in rows}


def permuted(dataset: Dataset, order: np.ndarray) -> Dataset:
    rows = np.concatenate([np.arange(dataset.episode_starts[e], dataset.episode_ends[e] + 1) for e in order])
    names = ("observations", "actions", "rewards", "valid", "terminal")
    return dataclasses.replace(dataset, **{name: getattr(dataset, name)[rows] for name in names})


def test_the_parts_are_whole_and_make_up_the_data():
    dataset = tiny_dataset(num_episodes=20)
    training, held_out = part_dataset(dataset, 0.2)
    assert held_out is not None
    assert (training.num_episodes, held_out.num_episodes) == (16, 4)
    assert contents(training) | contents(held_out) == contents(dataset)
    assert not contents(training) & contents(held_out)
    assert training.num_transitions + held_out.num_transitions == dataset.num_transitions


def test_nothing_is_held_out_unless_asked():
    dataset = tiny_dataset()
    assert part_dataset(dataset, 0.0) == (dataset, None)


def test_the_choice_does_not_depend_on_the_order_of_the_episodes():
    dataset = tiny_dataset(num_episodes=20)
    order = np.random.default_rng(0).permutation(20)
    first, second = part_dataset(dataset, 0.3).held_out, part_dataset(permuted(dataset, order), 0.3).held_out
    assert first is not None
    assert second is not None
    assert contents(first) == contents(second)


def test_copies_of_an_episode_stay_on_one_side():
    dataset = tiny_dataset(num_episodes=10)
    doubled = permuted(dataset, np.array([*range(10), *range(5)]))
    for share in (0.1, 0.2, 0.4, 0.6):
        parts = part_dataset(doubled, share)
        assert parts.held_out is not None
        assert not contents(parts.training) & contents(parts.held_out)


def test_pieces_of_a_trajectory_stay_together():
    """A trajectory that stays at its goal is one episode and many of one step; another begins far away."""
    length, num_trajectories = 12, 8
    at = np.concatenate([np.linspace(0, 1, length) + 100 * index for index in range(num_trajectories)])
    terminals = np.tile(np.arange(length) >= 8, num_trajectories)
    timeouts = np.tile(np.arange(length) == length - 1, num_trajectories)
    observations = np.stack([at, np.ones_like(at)], axis=1)
    dataset = from_arrays(
        observations, np.zeros((len(at), 1)), terminals, terminals, timeouts, name="goal", action_bounds=(-1, 1)
    )
    assert dataset.num_episodes == 4 * num_trajectories
    np.testing.assert_array_equal(trajectories_of(dataset), np.repeat(np.arange(num_trajectories), 4))
    is_out = held_out_episodes(dataset, 0.25).reshape(num_trajectories, 4)
    assert is_out.any(1).sum() == 2
    assert (is_out.all(1) == is_out.any(1)).all()


def test_episodes_that_begin_where_the_last_one_was_cut_are_one_trajectory():
    dataset = tiny_dataset(num_episodes=4)
    observations = dataset.observations.copy()
    observations[dataset.episode_starts[2]] = observations[dataset.episode_ends[1]]
    joined = dataclasses.replace(dataset, observations=observations)
    np.testing.assert_array_equal(trajectories_of(joined), [0, 1, 1, 2])


def test_a_walk_on_a_line_has_many_trajectories():
    dataset = chain.record(60, 0.7, 12)
    assert trajectories_of(dataset).max() > 40


def test_what_cannot_be_held_out_is_refused():
    dataset = tiny_dataset(num_episodes=1)
    with pytest.raises(DataError, match="one trajectory"):
        part_dataset(dataset, 0.2)
    with pytest.raises(DataError, match="copies of one another"):
        part_dataset(permuted(dataset, np.zeros(3, int)), 0.2)
    for share in (-0.1, 0.95, 1, "0.2", True, float("nan")):
        with pytest.raises(SettingsError, match="--hold-out"):
            check_hold_out(share)


def test_taking_all_episodes_changes_nothing():
    dataset = tiny_dataset()
    assert take_episodes(dataset, np.ones(dataset.num_episodes, bool)).fingerprint() == dataset.fingerprint()
