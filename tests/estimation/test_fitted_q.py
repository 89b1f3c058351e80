"""Fitted Q evaluation against exact values."""

import numpy as np
import pytest

import walks
from vem.estimation.estimate import combine
from vem.estimation.fitted_q import find_unit, fit
from vem.estimation.log import find_horizon, policy_actions, read_log


@pytest.fixture(scope="module")
def log():
    dataset = walks.record_walks(400)
    return read_log(dataset, walks.DISCOUNT, find_horizon(dataset, walks.DISCOUNT))


def mass_of(steps_left):
    return np.array([(1 - walks.DISCOUNT**steps_left) / (1 - walks.DISCOUNT**12)], np.float32)


def fitted(log, log_odds, support, **options):
    """The networks of a policy, a share of whose actions is in support, and Q of its action in a place."""
    weights = np.full(log.dataset.num_rows, support, np.float32)
    networks = fit(log, policy_actions(walks.choosing(log_odds), log.dataset), weights, num_trials=2, **options)
    action = np.array([[float(log_odds > 0)]], np.float32)
    return lambda place, left: networks.values(walks.observed(place, 0.0)[None], mass_of(left), action)[:, :, 0]


@pytest.mark.parametrize("log_odds", [2.0, -2.0], ids=["right", "left"])
def test_values_of_a_walk_are_those_of_the_bellman_equation(log, log_odds):
    assert log.horizon == 12
    values = fitted(log, log_odds, 1.0, num_steps=1200)
    for place, left in ((1, 12), (2, 11), (3, 10)):
        exact = walks.exact_value(float(log_odds > 0), left, place)
        assert values(place, left).mean(axis=1) == pytest.approx([exact] * 2, abs=0.06), place
    if log_odds > 0:
        assert values(3, 1).mean() == pytest.approx(1 - walks.NOISE, abs=0.1)


def test_what_no_trajectory_shows_is_taken_for_lost(log):
    """With half of the policy's actions in support, each step keeps half of what comes after it."""
    plain, weighted = fitted(log, 2.0, 0.5, num_steps=1200)(1, 12).mean(axis=1)
    assert plain == pytest.approx(walks.exact_value(1.0, 12, 1), abs=0.06)
    assert weighted < 0.5 * plain


def test_trials_are_fitted_to_different_draws_and_repeat(log):
    first, second = (fitted(log, 2.0, 1.0, num_steps=20)(1, 12) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first[:, 0], first[:, 1])


def test_the_range_of_values_is_what_the_rewards_allow(log):
    unit = find_unit(log)
    # The only reward ends the task, so no path earns more than one of it.
    assert (unit.going, unit.ending, unit.poor) == ((0.0, 0.0), (1.0, 1.0), 0.0)
    assert unit.lost(np.ones(1)) == 0.0
    np.testing.assert_allclose(unit.clip(np.array([-1.0, 0.5, 3.0]), np.full(3, 0.2)), [0.0, 0.5, 1.0])


def test_intervals_cover_what_they_should():
    """Networks that differ by what their trajectories taught them, and trajectories that differ by luck."""
    random, covered = np.random.default_rng(0), 0
    for _ in range(300):
        returns = random.normal(1.0, 0.5, 40)
        taught = random.normal(0, 0.1, (5, 1))
        q = 2.0 + taught + random.normal(0, 0.1, 40)
        value, difference, _ = combine(q, 1.0 + taught + np.zeros((5, 40)), returns)
        low, high = value.interval
        covered += low <= 2.0 <= high
        assert difference.interval[0] < difference.value < difference.interval[1]
    assert covered > 0.93 * 300


def test_networks_that_do_not_solve_their_equation_widen_the_interval():
    returns, noise = np.linspace(0, 1, 20), np.linspace(-0.01, 0.01, 5)[:, None]
    solved, _, _ = combine(1.0 + noise + np.zeros(20), 0.5 + noise + np.zeros(20), returns)
    unsolved, _, facts = combine(2.0 + noise + np.zeros(20), 0.5 + noise + np.zeros(20), returns)
    assert (facts["fitted"], facts["anchored"]) == pytest.approx((2.0, 1.0))
    assert np.diff(unsolved.interval) > 2 * np.diff(solved.interval)
    assert unsolved.interval[0] < 1.0 < 2.0 < unsolved.interval[1]
