import functools

import numpy as np
import pytest

from vem.errors import SettingsError
from vem.theory import operators
from vem.theory.mdp import MDP, optimal_values, policy_values, random_mdps, softmax_policy
from vem.theory.operators import fixed_point

# State 0 has rewards 0 and 1 and leads to state 1; state 1 has reward 2 and stays.
MDP_BY_HAND = MDP(
    np.array([[0.0, 1.0], [2.0, 2.0]]),
    np.array([[[0, 1], [0, 1]], [[0, 1], [0, 1]]], dtype=float),
    discount=0.5,
)
MU = np.array([[0.75, 0.25], [0.5, 0.5]])
VALUES = np.array([1.5, 2.0])
# Targets r + γV(s′) in state 0 are 1 and 2, so δ = −½ and ½; in state 1 they are 3, δ = 1.


def test_bellman_operators_by_hand():
    np.testing.assert_allclose(operators.evaluation(VALUES, MDP_BY_HAND, MU), [1.25, 3])
    np.testing.assert_allclose(operators.optimality(VALUES, MDP_BY_HAND), [2, 3])


def test_split_and_gradient_operators_by_hand():
    np.testing.assert_allclose(operators.optimistic(VALUES, MDP_BY_HAND, MU), [1.5 + 0.125, 3])
    np.testing.assert_allclose(operators.pessimistic(VALUES, MDP_BY_HAND, MU), [1.5 - 0.375, 2])
    # V + 2α(τ·E[δ]₊ + (1−τ)·E[δ]₋) with α = ½, τ = 0.8
    stepped = operators.gradient_expectile(VALUES, MDP_BY_HAND, MU, 0.8, step_size=0.5)
    np.testing.assert_allclose(stepped, [1.5 + 0.8 * 0.125 - 0.2 * 0.375, 2 + 0.8])


def test_exact_expectile_and_quantile_by_hand():
    # ¼τ(2−v) = ¾(1−τ)(v−1) at τ = ¾: the expectile is 1.5.
    np.testing.assert_allclose(operators.exact_expectile(VALUES, MDP_BY_HAND, MU, 0.75), [1.5, 3])
    np.testing.assert_allclose(operators.exact_quantile(VALUES, MDP_BY_HAND, MU, 0.7), [1, 3])
    np.testing.assert_allclose(operators.exact_quantile(VALUES, MDP_BY_HAND, MU, 0.8), [2, 3])


def test_n_step_and_memory_operators_by_hand():
    np.testing.assert_allclose(operators.n_step(VALUES, MDP_BY_HAND, MU, 0), VALUES)
    np.testing.assert_allclose(operators.n_step(VALUES, MDP_BY_HAND, MU, 2), [0.25 + 1.5, 3.5])
    # At τ = ½ the first step is T^μ; the second looks one further.
    rollouts = operators.rollout_values(VALUES, MDP_BY_HAND, MU, 0.5, max_steps=3)
    np.testing.assert_allclose(rollouts, [[1.25, 3], [1.75, 3.5], [2.0, 3.75]])
    np.testing.assert_allclose(operators.vem(VALUES, MDP_BY_HAND, MU, 0.5, max_steps=3), [2, 3.75])


def test_one_step_memory_is_the_expectile_step_itself():
    stepped = operators.gradient_expectile(VALUES, MDP_BY_HAND, MU, 0.7)
    np.testing.assert_array_equal(operators.vem(VALUES, MDP_BY_HAND, MU, 0.7, max_steps=1), stepped)


def test_limits_of_the_fixed_points():
    mdp = random_mdps(np.random.default_rng(0), 5)
    behavior = softmax_policy(mdp.rewards)
    zero = np.zeros((5, 5))
    evaluation = functools.partial(operators.evaluation, mdp=mdp, behavior=behavior)
    np.testing.assert_allclose(fixed_point(evaluation, zero, 0.9).values, policy_values(mdp, behavior), atol=1e-8)
    optimality = functools.partial(operators.optimality, mdp=mdp)
    np.testing.assert_allclose(fixed_point(optimality, zero, 0.9).values, optimal_values(mdp), atol=1e-8)


def test_leading_axes_of_the_values_broadcast_against_a_batch_of_processes():
    mdp = random_mdps(np.random.default_rng(0), 3)
    behavior = softmax_policy(mdp.rewards)
    values = np.random.default_rng(1).normal(size=(4, 3, 5))
    for operator in (
        functools.partial(operators.vem, expectile=0.7, max_steps=3),
        functools.partial(operators.exact_expectile, expectile=0.7),
        functools.partial(operators.outcome_expectile, expectile=0.7),
        functools.partial(operators.exact_quantile, quantile=0.7),
    ):
        together = operator(values, mdp=mdp, behavior=behavior)
        alone = operator(values[2, 1], mdp=mdp.take(1), behavior=behavior[1])
        np.testing.assert_allclose(together[2, 1], alone, rtol=1e-12)


def test_fresh_noise_makes_the_optimality_operator_over_estimate_and_evaluation_not():
    rng = np.random.default_rng(0)
    mdp = random_mdps(rng, 200)
    behavior = softmax_policy(mdp.rewards)

    def settled(operator, limit):
        noisy, values, total = operators.noisy(operator, mdp, 0.5, rng), limit, 0.0
        for _ in range(200):
            values = noisy(values)
            total += (values - limit).mean() / 200
        return total

    lowest = policy_values(mdp, behavior)
    assert settled(operators.optimality, optimal_values(mdp)) > 1
    assert abs(settled(functools.partial(operators.evaluation, behavior=behavior), lowest)) < 0.1


def test_the_largest_step_and_its_check():
    assert operators.largest_step_size(0.5) == 1
    assert operators.largest_step_size(0.8) == pytest.approx(1 / 1.6)
    assert operators.largest_step_size(0.2) == pytest.approx(1 / 1.6)
    operators.check_step_size(0.9, operators.largest_step_size(0.9))
    with pytest.raises(SettingsError, match=r"at most 1/\(2·max\(τ, 1−τ\)\) = 0.555556"):
        operators.check_step_size(0.9, 0.56)
    with pytest.raises(SettingsError, match="above 0"):
        operators.check_step_size(0.9, 0.0)
    with pytest.raises(SettingsError, match="strictly between"):
        operators.largest_step_size(1.0)
    with pytest.raises(SettingsError, match="at least 1"):
        operators.vem(VALUES, MDP_BY_HAND, MU, 0.7, max_steps=0)


def test_contraction_bound_by_hand():
    assert operators.contraction_bound(0.9, 0.9) == pytest.approx(1 - 0.1 / 9)
    assert operators.contraction_bound(0.9, 0.9, step_size=0.5) == pytest.approx(0.99)
    assert operators.contraction_bound(0.5, 0.9) == pytest.approx(0.9)
