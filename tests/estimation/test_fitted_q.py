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


def everywhere(log):
    """Support of a policy that never leaves the data."""
    return np.ones(log.dataset.num_rows, np.float32)


@pytest.mark.parametrize("log_odds", [2.0, -2.0], ids=["right", "left"])
def test_values_of_a_walk_are_those_of_the_bellman_equation(log, log_odds):
    assert log.horizon == 12
    policy = walks.choosing(log_odds)
    fitted = fit(log, policy_actions(policy, log.dataset), everywhere(log), num_steps=1200, num_trials=2)
    for start, left in ((1, 12), (2, 11), (3, 10)):
        seen, action = walks.observed(start, 0.0)[None], np.array([[float(log_odds > 0)]], np.float32)
        for q in fitted.values(seen, mass_of(left), action).mean(axis=(1, 2)):
            assert q == pytest.approx(walks.exact_value(float(log_odds > 0), left, start), abs=0.06), start


def test_values_are_those_of_the_steps_that_are_left(log):
    acted = policy_actions(walks.choosing(2.0), log.dataset)
    fitted = fit(log, acted, everywhere(log), num_steps=1200, num_trials=2)
    seen, action = walks.observed(3, 0.0)[None], np.ones((1, 1), np.float32)
    assert fitted.values(seen, mass_of(1), action).mean() == pytest.approx(1 - walks.NOISE, abs=0.1)


def test_what_no_trajectory_shows_is_taken_for_lost(log):
    """With half of the policy's actions in support, each step keeps half of what comes after it."""
    acted = policy_actions(walks.choosing(2.0), log.dataset)
    fitted = fit(log, acted, np.full(log.dataset.num_rows, 0.5, np.float32), num_steps=1200, num_trials=2)
    seen, action = walks.observed(1, 0.0)[None], np.ones((1, 1), np.float32)
    plain, weighted = fitted.values(seen, mass_of(12), action).mean(axis=(1, 2))
    assert plain == pytest.approx(walks.exact_value(1.0, 12, 1), abs=0.06)
    assert weighted < 0.5 * plain


def test_trials_are_fitted_to_different_draws_and_repeat(log):
    acted = policy_actions(walks.choosing(2.0), log.dataset)
    first, second = (fit(log, acted, everywhere(log), num_steps=20, num_trials=2) for _ in range(2))
    rows = (log.dataset.observations[:5], log.mass[:5], acted[:5])
    np.testing.assert_array_equal(first.values(*rows), second.values(*rows))
    assert not np.allclose(*first.values(*rows)[0])


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
