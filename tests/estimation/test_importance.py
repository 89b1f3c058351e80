"""Importance sampling and its doubly robust form on two trajectories of two steps, by hand."""

import numpy as np
import pytest

import vem
import walks
from small_runs import tiny_dataset, tiny_settings
from vem.estimation.importance import (
    UNUSUAL_SHARE,
    Decisions,
    doubly_robust,
    effective_sample,
    importance_sampling,
    lay_side_by_side,
    policy_density,
    support_border,
    support_weight,
    weighted_estimates,
)
from vem.estimation.log import scale_actions

REWARDS = np.array([[1.0, 2.0], [3.0, 0.0]])
RATIOS = np.array([[2.0, 0.5], [1.0, 2.0]])
"""Of each decision; the products are 2, 1 and 1, 2."""


def decisions(ratios=RATIOS, q=1.0, v=0.5, discount=0.5):
    with np.errstate(divide="ignore"):
        return Decisions(REWARDS, np.log(ratios), np.full((2, 2), q), np.full((2, 2), v), discount)


def test_importance_sampling_by_hand():
    # t = 0: (2·1 + 1·3)/3; t = 1: (1·2 + 2·0)/3.
    np.testing.assert_allclose(importance_sampling(decisions()), 5 / 3 + 0.5 * 2 / 3)


def test_doubly_robust_by_hand():
    # t = 0: (2·0 + 1·2)/3 + ½; t = 1: (1·1 − 2·1)/3 + ½.
    np.testing.assert_allclose(doubly_robust(decisions()), (2 / 3 + 0.5) + 0.5 * (-1 / 3 + 0.5))


def test_the_effective_sample_by_hand():
    assert effective_sample(decisions()) == pytest.approx(9 / 5)
    assert effective_sample(decisions(np.ones((2, 2)))) == pytest.approx(2)


def test_weights_of_one_give_the_mean_return_whatever_q_is():
    plain = decisions(np.ones((2, 2)), q=0.0, v=0.0)
    mean = (REWARDS @ [1, 0.5]).mean()
    np.testing.assert_allclose(importance_sampling(plain), mean)
    np.testing.assert_allclose(doubly_robust(plain), mean)
    np.testing.assert_allclose(doubly_robust(decisions(np.ones((2, 2)), q=7.0, v=7.0)), mean)


def test_trajectories_that_the_policy_would_never_make_count_for_nothing():
    ratios = np.array([[1.0, 1.0], [0.0, 5.0]])
    np.testing.assert_allclose(importance_sampling(decisions(ratios)), 1 + 0.5 * 2)
    assert effective_sample(decisions(ratios)) == pytest.approx(1)
    assert effective_sample(decisions(np.zeros((2, 2)))) == 0
    assert importance_sampling(decisions(np.zeros((2, 2))))[0] == 0


def test_resamples_are_means_over_the_drawn_trajectories():
    found = importance_sampling(decisions(), np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]]))
    np.testing.assert_allclose(found, [1 + 0.5 * 2, 3.0, 2.0])


def test_estimates_lie_in_their_intervals():
    for value, (low, high) in weighted_estimates(decisions(), seed=0):
        assert low <= value <= high


def test_large_ratios_do_not_overflow():
    assert np.isfinite(importance_sampling(decisions(np.full((2, 2), 1e300)))).all()


def test_rows_side_by_side():
    laid = lay_side_by_side(np.arange(1.0, 6.0), np.array([0, 2]), np.array([2, 3]))
    np.testing.assert_array_equal(laid, [[1, 2, 0], [3, 4, 5]])


# Densities and support


def test_densities_of_policies_sum_to_one():
    odds = walks.choosing(1.0)
    seen = np.stack([walks.observed(1, 0.0)] * 2)
    density = np.exp(policy_density(odds)(seen, np.array([[0.0], [1.0]], np.float32)))
    np.testing.assert_allclose(density, [1 / (1 + np.e), np.e / (1 + np.e)], rtol=1e-5)


def test_the_density_of_a_squashed_normal_sums_to_one(tmp_path):
    settings = tiny_settings("cql", policy_hidden=(8, 8))
    run = vem.train(tiny_dataset((6,) * 30), "cql", steps=4, out=tmp_path / "run", progress=False, **settings)
    grid = np.linspace(-0.9995, 0.9995, 400)
    pairs = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2).astype(np.float32)
    logarithms = policy_density(run.policy)(np.zeros((len(pairs), 3), np.float32), pairs)
    assert np.exp(logarithms).sum() * (grid[1] - grid[0]) ** 2 == pytest.approx(1, abs=0.1)


def normal(observations, actions):
    """The log-density of a Normal around 0 with deviation ½, but for its constant."""
    return -2.0 * np.square(actions).sum(axis=1)


def test_recorded_actions_are_in_support_but_for_the_unusual():
    dataset = tiny_dataset((6,) * 30)
    rows = np.flatnonzero(dataset.valid)
    recorded = scale_actions(dataset.actions[rows], dataset)
    border = support_border(normal, dataset)
    weights = support_weight(normal, border, dataset.observations[rows], recorded)
    assert np.mean(weights < 1) == pytest.approx(UNUSUAL_SHARE, abs=0.02)


def test_weights_fall_with_the_density():
    seen, actions = np.zeros((3, 2), np.float32), np.array([[0.0], [1.0], [3.0]], np.float32)
    np.testing.assert_allclose(support_weight(normal, -2.0, seen, actions), [1, 1, np.exp(-16)], rtol=1e-6)
