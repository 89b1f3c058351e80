"""The lemmas of the paper's section 4 and appendix, over generated processes; slips get a counterexample."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vem.losses import expectile_step
from vem.theory import operators
from vem.theory.mdp import (
    MDP,
    action_values,
    expectile_values,
    optimal_values,
    policy_values,
    random_mdps,
)
from vem.theory.operators import contraction_rate, distance, fixed_point, random_pairs

EXPECTILES = st.floats(0.02, 0.98)
LEVELS = st.sampled_from([0.05, 0.2, 0.5, 0.6, 0.75, 0.9, 0.97])
MAX_STEPS = st.integers(1, 6)
quick = settings(max_examples=40, deadline=None)


@st.composite
def problems(draw, stochastic=(False, True), largest_discount=0.99):
    """A process of 2–20 states and 1–6 actions, a behavior with full support, and pairs of values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_states, num_actions = draw(st.integers(2, 20)), draw(st.integers(1, 6))
    discount = draw(st.floats(0.0, largest_discount))
    drawn = random_mdps(
        rng,
        1,
        num_states=num_states,
        num_actions=num_actions,
        discount=discount,
        stochastic=draw(st.sampled_from(stochastic)),
    ).take(0)
    mdp = MDP(4 * drawn.rewards - 2, drawn.transitions, discount)
    behavior = 0.9 * rng.dirichlet(np.ones(num_actions), size=num_states) + 0.1 / num_actions
    return mdp, behavior, random_pairs(rng, 40, (num_states,), scale=4 / (1 - discount))


def bound(kind, mdp, behavior, **more):
    return functools.partial(kind, mdp=mdp, behavior=behavior, **more)


@quick
@given(problems(), EXPECTILES, st.floats(0.01, 1))
def test_lemma_1_the_rate_with_the_minimum_holds_up_to_the_largest_step(problem, expectile, share):
    mdp, behavior, pairs = problem
    step_size = share * operators.largest_step_size(expectile)
    operator = bound(operators.gradient_expectile, mdp, behavior, expectile=expectile, step_size=step_size)
    limit = operators.contraction_bound(expectile, mdp.discount, step_size)
    assert contraction_rate(operator, *pairs) <= limit + 1e-8


@quick
@given(problems(), EXPECTILES)
def test_lemma_1_the_rate_is_reached_where_all_errors_have_one_sign(problem, expectile):
    mdp, behavior, _ = problem
    # Far above every value all errors are negative, far below all are positive.
    level = np.full(mdp.num_states, (1 if expectile >= 0.5 else -1) * (10 + 4 / (1 - mdp.discount)))
    operator = bound(operators.gradient_expectile, mdp, behavior, expectile=expectile)
    reached = contraction_rate(operator, level[None], level[None] + np.sign(level))
    assert reached == pytest.approx(operators.contraction_bound(expectile, mdp.discount), abs=1e-9)


def test_section_3_1_the_rate_with_the_maximum_is_refuted():
    mdp = MDP(np.zeros((1, 1)), np.ones((1, 1, 1)), 0.5)
    operator = bound(operators.gradient_expectile, mdp, np.ones((1, 1)), expectile=0.9, step_size=0.5)
    rate = contraction_rate(operator, np.array([[1.0]]), np.array([[2.0]]))
    with_maximum, with_minimum = 1 - 2 * 0.5 * 0.5 * 0.9, 1 - 2 * 0.5 * 0.5 * 0.1
    assert rate == pytest.approx(with_minimum)
    assert rate > with_maximum + 0.3


@quick
@given(problems(), EXPECTILES, st.floats(0.01, 1))
def test_the_operator_is_a_mix_of_two_non_expansions(problem, expectile, step_size):
    mdp, behavior, pairs = problem
    raised = bound(operators.optimistic, mdp, behavior)
    lowered = bound(operators.pessimistic, mdp, behavior)
    assert contraction_rate(raised, *pairs) <= 1 + 1e-8
    assert contraction_rate(lowered, *pairs) <= 1 + 1e-8
    values = pairs[0]
    mixed = (1 - 2 * step_size) * values
    mixed += 2 * step_size * (expectile * raised(values) + (1 - expectile) * lowered(values))
    direct = operators.gradient_expectile(values, mdp, behavior, expectile, step_size)
    np.testing.assert_allclose(direct, mixed, atol=1e-9 * (1 + abs(values).max()))


@pytest.mark.parametrize("kind", [operators.optimistic, operators.pessimistic])
def test_at_the_ends_of_tau_the_contraction_is_lost(kind):
    mdp = MDP(np.zeros((1, 1)), np.ones((1, 1, 1)), 0.5)
    level = -1.0 if kind is operators.pessimistic else 1.0
    operator = bound(kind, mdp, np.ones((1, 1)))
    assert contraction_rate(operator, np.array([[level]]), np.array([[2 * level]])) == 1


@quick
@given(problems(), EXPECTILES, st.floats(0.01, 1), st.floats(1.01, 1.5))
def test_step_size_condition_keeps_every_sample_within_its_target(problem, expectile, share, excess):
    mdp, _, (values, _) = problem
    errors = action_values(values, mdp) - values[..., None]
    largest = operators.largest_step_size(expectile)
    assert (abs(expectile_step(errors, expectile, share * largest)) <= abs(errors) * (1 + 1e-12)).all()
    # Beyond it, errors on the heavier side overshoot.
    heavier = (errors > 0) == (expectile >= 0.5)
    beyond = abs(expectile_step(errors, expectile, excess * largest))
    assert (beyond[heavier] > abs(errors)[heavier]).all()


def test_far_beyond_the_step_size_condition_the_operator_expands():
    mdp = MDP(np.zeros((1, 1)), np.ones((1, 1, 1)), 0.5)
    operator = bound(operators.gradient_expectile, mdp, np.ones((1, 1)), expectile=0.9, step_size=3)
    assert contraction_rate(operator, np.array([[-1.0]]), np.array([[-2.0]])) > 1


@quick
@given(problems(), EXPECTILES, EXPECTILES)
def test_lemma_2_monotone_in_tau(problem, first, second):
    mdp, behavior, (values, _) = problem
    low, high = sorted([first, second])
    slack = 1e-9 * (1 + abs(values).max())
    for step_size in (min(operators.largest_step_size(low), operators.largest_step_size(high)), None):
        below = operators.gradient_expectile(values, mdp, behavior, low, step_size)
        above = operators.gradient_expectile(values, mdp, behavior, high, step_size)
        assert (above >= below - slack).all()
    exact = [operators.exact_expectile(values, mdp, behavior, tau) for tau in (low, high)]
    assert (exact[1] >= exact[0] - slack).all()


@quick
@given(problems(), EXPECTILES)
def test_the_operator_is_monotone_in_the_values(problem, expectile):
    mdp, behavior, (first, second) = problem
    low, high = np.minimum(first, second), np.maximum(first, second)
    operator = bound(operators.gradient_expectile, mdp, behavior, expectile=expectile)
    assert (operator(high) >= operator(low) - 1e-9 * (1 + abs(high).max())).all()


@quick
@given(problems(), EXPECTILES, EXPECTILES)
def test_proposition_1_fixed_points_are_monotone_in_tau(problem, first, second):
    mdp, behavior, _ = problem
    low, high = sorted([first, second])
    below, above = (expectile_values(mdp, behavior, tau) for tau in (low, high))
    slack = 1e-9 * (1 + abs(below).max())
    assert (above >= below - slack).all()
    assert (above <= optimal_values(mdp) + slack).all()


@settings(max_examples=15, deadline=None)
@given(problems(largest_discount=0.9), LEVELS)
def test_three_ways_to_the_fixed_point_agree(problem, expectile):
    mdp, behavior, _ = problem
    zero = np.zeros(mdp.num_states)
    gradient = bound(operators.gradient_expectile, mdp, behavior, expectile=expectile)
    stepped = fixed_point(gradient, zero, operators.contraction_bound(expectile, mdp.discount), 1e-8)
    exact = bound(operators.exact_expectile, mdp, behavior, expectile=expectile)
    solved = fixed_point(exact, zero, mdp.discount, 1e-8)
    direct = expectile_values(mdp, behavior, expectile)
    assert distance(stepped.values, direct) <= stepped.error_bound + 1e-10
    assert distance(solved.values, direct) <= solved.error_bound + 1e-10


@quick
@given(problems())
def test_tau_one_half_is_the_value_of_the_behavior(problem):
    mdp, behavior, (values, _) = problem
    np.testing.assert_allclose(expectile_values(mdp, behavior, 0.5), policy_values(mdp, behavior), rtol=1e-9)
    evaluated = operators.evaluation(values, mdp, behavior)
    slack = 1e-9 * (1 + abs(values).max())
    np.testing.assert_allclose(operators.exact_expectile(values, mdp, behavior, 0.5), evaluated, atol=slack)
    # The gradient operator is T^μ only at α = 1, which is the largest step here.
    np.testing.assert_allclose(operators.gradient_expectile(values, mdp, behavior, 0.5), evaluated, atol=slack)
    halfway = operators.gradient_expectile(values, mdp, behavior, 0.5, step_size=0.5)
    np.testing.assert_allclose(halfway, (values + evaluated) / 2, atol=slack)


@quick
@given(problems(largest_discount=0.95))
def test_lemma_3_tau_to_one_tends_to_the_optimal_value(problem):
    mdp, behavior, _ = problem
    best = optimal_values(mdp)
    gaps = [distance(expectile_values(mdp, behavior, 1 - gap), best) for gap in (1e-3, 1e-6, 1e-9)]
    assert gaps[0] >= gaps[1] - 1e-9
    assert gaps[2] <= 1e-4 * (1 + abs(best).max())


def test_lemma_3_needs_the_support_of_the_behavior():
    mdp = MDP(np.array([[0.0, 1.0]]), np.ones((1, 2, 1)), 0.5)
    never_the_best = np.array([[1.0, 0.0]])
    assert expectile_values(mdp, never_the_best, 1 - 1e-9) == pytest.approx(0, abs=1e-6)
    assert optimal_values(mdp) == pytest.approx(2)
    assert optimal_values(mdp, never_the_best) == pytest.approx(0)


def test_dropping_the_expectation_over_next_states_needs_determinism():
    # One action, which leads to a good or a bad state by a coin: nothing to choose, only luck.
    transitions = np.array([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]])
    mdp = MDP(np.array([[0.0], [1.0], [0.0]]), transitions, 0.5)
    behavior = np.ones((3, 1))
    averaged = expectile_values(mdp, behavior, 0.99)
    lucky = fixed_point(bound(operators.outcome_expectile, mdp, behavior, expectile=0.99), np.zeros(3), 0.5).values
    np.testing.assert_allclose(averaged, [0.5, 2, 0], atol=1e-9)
    assert lucky[0] == pytest.approx(0.99, abs=1e-6)


@quick
@given(problems(stochastic=(False,)), EXPECTILES)
def test_in_deterministic_processes_sampled_transitions_change_nothing(problem, expectile):
    mdp, behavior, (values, _) = problem
    np.testing.assert_allclose(
        operators.outcome_expectile(values, mdp, behavior, expectile),
        operators.exact_expectile(values, mdp, behavior, expectile),
        atol=1e-9 * (1 + abs(values).max()),
    )


@quick
@given(problems(), LEVELS)
def test_exact_expectile_contracts_at_the_discount_for_every_tau(problem, level):
    mdp, behavior, pairs = problem
    operator = bound(operators.exact_expectile, mdp, behavior, expectile=level)
    assert contraction_rate(operator, *pairs) <= mdp.discount + 1e-7


@quick
@given(problems(), EXPECTILES, MAX_STEPS)
def test_lemma_4_the_memory_operator_contracts_at_the_same_rate(problem, expectile, max_steps):
    mdp, behavior, pairs = problem
    operator = bound(operators.vem, mdp, behavior, expectile=expectile, max_steps=max_steps)
    assert contraction_rate(operator, *pairs) <= operators.contraction_bound(expectile, mdp.discount) + 1e-8


@quick
@given(problems(), st.floats(0.5, 0.98), MAX_STEPS, st.floats(0.05, 1))
def test_lemma_4_the_fixed_point_is_kept_for_tau_above_one_half(problem, expectile, max_steps, share):
    mdp, behavior, _ = problem
    values = expectile_values(mdp, behavior, expectile)
    step_size = share * operators.largest_step_size(expectile)
    again = operators.vem(values, mdp, behavior, expectile, max_steps, step_size)
    np.testing.assert_allclose(again, values, atol=1e-9 * (1 + abs(values).max()))


def test_lemma_4_the_fixed_point_moves_for_tau_below_one_half():
    # One state, rewards 0 and 1 with equal chance: V*_τ = ½ at τ = ¼, while T^μ ½ = ¾.
    mdp, behavior = MDP(np.array([[0.0, 1.0]]), np.ones((1, 2, 1)), 0.5), np.array([[0.5, 0.5]])
    assert expectile_values(mdp, behavior, 0.25) == pytest.approx(0.5)
    operator = bound(operators.vem, mdp, behavior, expectile=0.25, max_steps=2)
    moved = fixed_point(operator, np.zeros(1), operators.contraction_bound(0.25, 0.5)).values
    assert moved[0] > 0.6
    assert policy_values(mdp, behavior)[0] == pytest.approx(1)


@quick
@given(problems(largest_discount=0.95), st.floats(0.5, 0.98), st.integers(2, 6))
def test_memory_helps_values_that_are_too_low_and_only_those(problem, expectile, max_steps):
    mdp, behavior, (shift, _) = problem
    target = expectile_values(mdp, behavior, expectile)
    slack = 1e-9 * (1 + abs(target).max() + abs(shift).max())
    planned = bound(operators.vem, mdp, behavior, expectile=expectile, max_steps=max_steps)
    single = bound(operators.gradient_expectile, mdp, behavior, expectile=expectile)
    low, high = target - abs(shift), target + abs(shift)
    assert (distance(planned(low), target) <= distance(single(low), target) + slack).all()
    assert (planned(low) <= target + slack).all()
    assert (distance(planned(high), target) >= distance(single(high), target) - slack).all()


@settings(max_examples=15, deadline=None)
@given(problems(largest_discount=0.9), LEVELS, st.integers(1, 5))
def test_lemma_5_bounds_one_application(problem, expectile, max_steps):
    mdp, behavior, (values, _) = problem
    target = expectile_values(mdp, behavior, expectile)
    rate = operators.contraction_bound(expectile, mdp.discount)
    unrolled = operators.rollout_values(values, mdp, behavior, expectile, max_steps)
    winner = unrolled.argmax(0)
    for n in range(1, max_steps + 1):

        def rollout(v, n=n):
            return operators.rollout_values(v, mdp, behavior, expectile, n)[-1]

        shrink = mdp.discount ** (n - 1) * rate
        own = fixed_point(rollout, target, shrink, 1e-8)
        limit = shrink * distance(values, own.values) + distance(own.values, target) + 2e-8
        gaps = abs(unrolled.max(0) - target)
        assert (gaps <= limit[:, None])[winner == n - 1].all()
        if expectile > 0.5:
            assert (own.values <= target + own.error_bound + 1e-9).all()


def test_the_recursion_of_section_3_2_is_not_the_operator_of_section_4_2():
    # Equation 6 starts at r + γV̂(s′) and so lacks the term V̂(s) that keeps the fixed point.
    mdp, behavior = MDP(np.array([[0.0, 1.0]]), np.ones((1, 2, 1)), 0.5), np.array([[0.5, 0.5]])
    target = expectile_values(mdp, behavior, 0.75)
    rollouts = operators.rollout_values(target, mdp, behavior, 0.75, 4)
    assert rollouts.max(0) == pytest.approx(target)
    assert rollouts[1:].max(0)[0] < target[0] - 0.1
