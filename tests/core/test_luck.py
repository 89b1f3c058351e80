"""Luck: a stochastic walk beside its deterministic twin."""

import numpy as np
import pytest

from vem.training.diagnostics import luck_share, mean_at_no_distance, nearest_in_other_groups, recorded_returns


def test_recorded_returns_by_hand():
    rewards, valid = np.array([1.0, 2.0, 0.0, 4.0, 0.0]), np.array([True, True, False, True, False])
    np.testing.assert_allclose(recorded_returns(rewards, valid, 0.5), [2, 2, 0, 4, 0])


def test_neighbors_are_of_other_groups():
    points = np.array([[0.0], [0.1], [1.0], [5.0]])
    nearest, distances = nearest_in_other_groups(points, np.array([0, 0, 1, 1]))
    assert nearest.tolist() == [2, 2, 1, 1]
    np.testing.assert_allclose(distances, [1, 0.81, 0.81, 24.01], rtol=1e-5)
    nearest, distances = nearest_in_other_groups(points, np.zeros(4))
    assert (nearest == -1).all()
    assert np.isinf(distances).all()


def test_line_to_no_distance():
    distances = np.arange(1.0, 101.0)
    assert mean_at_no_distance(3 + 2 * distances, distances) == pytest.approx(3)
    assert mean_at_no_distance(np.full(100, 3.0), distances) == 3
    assert mean_at_no_distance(2 * distances - 50, distances) == 0  # never below nothing


@pytest.mark.parametrize(("noise", "least", "most"), [(0.0, 0.0, 0.01), (0.3, 0.8, 1.0)])
def test_share_of_rewards_that_are_drawn(noise, least, most):
    """Episodes of one step: the reward is a function of state and action, or that and as much noise again."""
    random = np.random.default_rng(0)
    points = random.uniform(-1.7, 1.7, (1000, 2))
    rewards = 0.1 * points[:, 0] + noise * random.standard_normal(1000)
    zeros = np.zeros(1000)
    share = luck_share(points, np.arange(1000), rewards, zeros.astype(bool), zeros, rewards, 0.9)
    assert least <= share <= most


def test_nothing_to_compare():
    zeros = np.zeros(60)
    points = np.arange(60.0)[:, None]
    assert np.isnan(luck_share(points, zeros, zeros, zeros, zeros, np.arange(60.0), 0.9))  # one episode
    assert np.isnan(luck_share(points * 0, np.arange(60), zeros, zeros, zeros, zeros, 0.9))  # returns all the same
