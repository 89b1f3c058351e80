import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from vem.errors import DivergenceError, SettingsError
from vem.losses import expectile_loss
from vem.theory import operators
from vem.theory.mdp import MDP, optimal_values, policy_values, random_mdps, softmax_policy
from vem.theory.operators import contraction_rate, distance, expectile_of, fixed_point, random_pairs, update_deviation

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


def test_expectile_operators_by_hand():
    np.testing.assert_allclose(operators.optimistic(VALUES, MDP_BY_HAND, MU), [1.5 + 0.125, 3])
    np.testing.assert_allclose(operators.pessimistic(VALUES, MDP_BY_HAND, MU), [1.5 - 0.375, 2])
    # V + 2α(τ·E[δ]₊ + (1−τ)·E[δ]₋) with α = ½, τ = 0.8
    stepped = operators.gradient_expectile(VALUES, MDP_BY_HAND, MU, 0.8, step_size=0.5)
    np.testing.assert_allclose(stepped, [1.5 + 0.8 * 0.125 - 0.2 * 0.375, 2 + 0.8])
    # ¼τ(2−v) = ¾(1−τ)(v−1) at τ = ¾: the expectile is 1.5.
    np.testing.assert_allclose(operators.exact_expectile(VALUES, MDP_BY_HAND, MU, 0.75), [1.5, 3])


def test_memory_operator_by_hand():
    # At τ = ½ the first step is T^μ; the second looks one further.
    unrolled = operators.rollout_values(VALUES, MDP_BY_HAND, MU, 0.5, max_steps=3)
    np.testing.assert_allclose(unrolled, [[1.25, 3], [1.75, 3.5], [2.0, 3.75]])
    np.testing.assert_allclose(operators.vem(VALUES, MDP_BY_HAND, MU, 0.5, max_steps=3), [2, 3.75])
    # One step of memory is the expectile step itself.
    stepped = operators.gradient_expectile(VALUES, MDP_BY_HAND, MU, 0.7)
    np.testing.assert_array_equal(operators.vem(VALUES, MDP_BY_HAND, MU, 0.7, max_steps=1), stepped)
    with pytest.raises(SettingsError, match="at least 1"):
        operators.vem(VALUES, MDP_BY_HAND, MU, 0.7, max_steps=0)


def test_step_size_and_rate_by_hand():
    assert operators.largest_step_size(0.5) == 1
    assert operators.largest_step_size(0.8) == operators.largest_step_size(1 - 0.8) == pytest.approx(1 / 1.6)
    assert operators.contraction_bound(0.9, 0.9) == pytest.approx(1 - 0.1 / 9)
    assert operators.contraction_bound(0.9, 0.9, step_size=0.5) == pytest.approx(0.99)
    assert operators.contraction_bound(0.5, 0.9) == pytest.approx(0.9)


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
    ):
        together = operator(values, mdp=mdp, behavior=behavior)
        alone = operator(values[2, 1], mdp=mdp.take(1), behavior=behavior[1])
        np.testing.assert_allclose(together[2, 1], alone, rtol=1e-12)


def test_expectile_by_hand():
    # τ(1−v) = (1−τ)v for a fair coin, so v = τ; outcomes without mass do not matter.
    coin, chances = np.array([-1e6, 0.0, 1.0, 1e6]), np.array([0, 0.5, 0.5, 0])
    assert expectile_of(coin, chances, 0.3) == pytest.approx(0.3)
    assert expectile_of(coin, chances, 0.8) == pytest.approx(0.8)
    # ¾·¼(4−v) = ¼(½v + ¼(v−1))
    assert expectile_of(np.array([0.0, 1.0, 4.0]), np.array([0.5, 0.25, 0.25]), 0.75) == pytest.approx(13 / 6)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-100, 100), st.floats(1e-3, 1)), min_size=1, max_size=8),
    st.floats(0.01, 0.99),
    st.floats(0.1, 10),
)
def test_expectile_minimizes_its_loss_scales_and_mirrors(distribution, level, scale):
    outcomes, chances = np.array(distribution).T
    found = expectile_of(outcomes, chances, level)

    def loss(v):
        return (chances * expectile_loss(outcomes - v, level)).sum()

    searched = optimize.minimize_scalar(loss, bounds=(-101, 101), method="bounded", options={"xatol": 1e-9})
    assert loss(found) <= searched.fun + 1e-9 * (1 + abs(searched.fun))
    assert expectile_of(scale * outcomes + 3, chances, level) == pytest.approx(scale * found + 3, abs=1e-8)
    assert expectile_of(-outcomes, chances, 1 - level) == pytest.approx(-found, abs=1e-8)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.1, float("nan")])
def test_levels_outside_the_open_interval_are_refused(level):
    for refused in (operators.largest_step_size, functools.partial(expectile_of, np.zeros(2), np.ones(2) / 2)):
        with pytest.raises(SettingsError, match="strictly between 0 and 1"):
            refused(level)


def halve(values):
    """A map with fixed point (2, 4) and rate ½."""
    return np.array([1.0, 2.0]) + values / 2


@pytest.mark.parametrize("rate", [0.5, 0.95])
@pytest.mark.parametrize("tolerance", [1.0, 1e-3, 1e-9])
def test_certified_bound_covers_the_true_error(tolerance, rate):
    found = fixed_point(halve, np.array([100.0, -100.0]), rate, tolerance)
    assert abs(found.values - [2, 4]).max() <= found.error_bound <= tolerance


def test_bound_holds_for_the_worst_process_of_a_batch():
    limits = np.array([[1.0], [1000.0]])
    found = fixed_point(lambda values: limits + 0.9 * (values - limits), np.zeros((2, 1)), 0.9, 1e-6)
    assert abs(found.values - limits).max() <= found.error_bound <= 1e-6


def test_a_fixed_point_as_start_is_certified_at_once():
    assert fixed_point(halve, np.array([2.0, 4.0]), 0.5).num_applications == 1


def test_a_tolerance_below_rounding_still_ends_with_an_honest_bound():
    found = fixed_point(lambda values: 1e6 + 0.99 * values, np.zeros(1), 0.99, tolerance=1e-12)
    assert abs(found.values - 1e8).max() <= found.error_bound
    assert found.error_bound > 1e-12


def test_operators_that_do_not_contract_as_claimed_are_refused():
    for operator, rate in ((lambda values: 2 * values, 0.9), (halve, 0.4), (lambda values: values * np.nan, 0.9)):
        with pytest.raises(DivergenceError, match="does not contract"):
            fixed_point(operator, np.array([100.0, 1.0]), rate)
    with pytest.raises(SettingsError, match=r"\[0, 1\)"):
        fixed_point(halve, np.zeros(2), 1.0)


def test_contraction_rates_of_known_maps():
    matrix = np.array([[0.5, 0.3], [0.1, 0.2]])
    pairs = random_pairs(np.random.default_rng(0), 200, (2,), 10)
    # The largest row sum; the constant shifts among the pairs reach it.
    assert contraction_rate(lambda values: values @ matrix.T, *pairs) == pytest.approx(0.8)
    # The processes of a batch are kept apart.
    rates = np.array([[0.3], [0.6]])
    pairs = random_pairs(np.random.default_rng(0), 10, (2, 4), 10)
    np.testing.assert_allclose(contraction_rate(lambda values: rates * values, *pairs), [0.3, 0.6])


def test_distance_and_deviation_by_hand():
    np.testing.assert_allclose(distance(np.array([[1.0, -5.0], [0.0, 0.0]]), np.zeros(2)), [5, 0])
    # State 0 is off by 1 and −1, state 1 by 2: √(1 + 4).
    targets, states = np.array([2.0, 0.0, 5.0]), np.array([0, 0, 1])
    assert update_deviation(targets, states, np.array([1.0, 3.0, 9.0])) == pytest.approx(np.sqrt(5))
