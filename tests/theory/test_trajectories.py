import functools

import numpy as np
import pytest

from vem.errors import SettingsError
from vem.losses import effective_expectile
from vem.theory import operators
from vem.theory.examples import (
    Trajectories,
    bootstrapped_targets,
    enumerate_rollouts,
    plan,
    rollouts,
    sampled_authors,
    sampled_vem,
    stepped_targets,
    values_at,
)
from vem.theory.mdp import random_mdps, softmax_policy, stochastic_transitions
from vem.theory.operators import expectile_of, update_deviation


@pytest.fixture
def problem():
    mdp = random_mdps(np.random.default_rng(3), 4, num_states=4, num_actions=2)
    behavior = softmax_policy(mdp.rewards)
    return mdp, behavior, np.random.default_rng(4).normal(size=(4, 4)) + 5


def test_plan_by_hand():
    targets, rewards = np.array([1.0, 0.0, 8.0]), np.array([1.0, 1.0, 1.0])
    best = plan(targets, rewards, discount=0.5, max_steps=3)
    # n = 2 from row 1: 1 + ½·8; n = 3 from row 0: 1 + ½·5. Row 2 has one step left.
    np.testing.assert_allclose(best, [[1, 0, 8], [1, 5, 8], [3.5, 5, 8]])


def test_plan_looks_no_further_than_the_end():
    np.testing.assert_allclose(plan(np.array([-5.0]), np.array([-1.0]), 0.9, 4), [[-5]] * 4)


def test_both_starts_by_hand():
    recorded = Trajectories(np.array([[0, 1, 1]]), np.array([[1.0, 0.0]]))
    values = np.array([2.0, 4.0])
    np.testing.assert_allclose(bootstrapped_targets(values, recorded, 0.5), [[3, 2]])
    # δ = 1 and −2; at τ = ¾, α = ½ the steps are ¾·1 and ¼·(−2).
    np.testing.assert_allclose(stepped_targets(values, recorded, 0.5, 0.75, 0.5), [[2.75, 3.5]])


def test_authors_plan_is_the_recursion_of_equation_5():
    rng = np.random.default_rng(0)
    recorded = Trajectories(rng.integers(3, size=(6, 8)), rng.normal(size=(6, 7)))
    values = rng.normal(size=3)
    best = plan(bootstrapped_targets(values, recorded, 0.9), recorded.rewards, 0.9, max_steps=7)[-1]
    later = np.full(6, -np.inf)
    for t in reversed(range(7)):
        later = recorded.rewards[:, t] + 0.9 * np.maximum(later, values[recorded.states[:, t + 1]])
        np.testing.assert_allclose(best[:, t], later)


@pytest.mark.parametrize("expectile", [0.3, 0.7])
def test_enumerated_rollouts_average_to_the_operators(problem, expectile):
    mdp, behavior, values = problem
    exact = operators.rollout_values(values, mdp, behavior, expectile, 4)
    recorded, chances = enumerate_rollouts(mdp, behavior, 4)
    assert recorded.states.shape == (4, 4, 2**4, 5)
    np.testing.assert_allclose(chances.sum(-1), 1)
    returns = stepped_targets(values, recorded, mdp.discount, expectile)
    np.testing.assert_allclose((chances * returns[..., 0]).sum(-1), exact[0])
    for n in (2, 3, 4):
        returns = recorded.rewards[..., : returns.shape[-1] - 1] + mdp.discount * returns[..., 1:]
        np.testing.assert_allclose((chances * returns[..., 0]).sum(-1), exact[n - 1])


def test_sampled_memory_operator_is_exact_for_one_step_and_optimistic_beyond(problem):
    mdp, behavior, values = problem
    for max_steps in (1, 3):
        recorded, chances = enumerate_rollouts(mdp, behavior, max_steps)
        sampled = sampled_vem(values, recorded, chances, mdp.discount, 0.7, max_steps)
        exact = operators.vem(values, mdp, behavior, 0.7, max_steps)
        if max_steps == 1:
            np.testing.assert_allclose(sampled, exact)
        else:
            assert (sampled >= exact - 1e-12).all()
            assert (sampled > exact + 1e-3).any()


def test_authors_backup_of_one_step_is_the_exact_expectile_at_the_effective_level(problem):
    mdp, behavior, values = problem
    recorded, chances = enumerate_rollouts(mdp, behavior, 1)
    np.testing.assert_allclose(
        sampled_authors(values, recorded, chances, mdp.discount, 0.3, 1),
        operators.exact_expectile(values, mdp, behavior, effective_expectile(0.3)),
    )


def test_authors_backup_over_several_steps_by_direct_search(problem):
    mdp, behavior, values = (problem[0].take(0), problem[1][0], problem[2][0])
    recorded, chances = enumerate_rollouts(mdp, behavior, 3)
    found = sampled_authors(values, recorded, chances, mdp.discount, 0.4, 3)
    for state in range(4):
        outcomes = []
        for k in range(8):
            states, rewards = recorded.states[state, k], recorded.rewards[state, k]
            ends = [
                sum(mdp.discount**i * rewards[i] for i in range(n)) + mdp.discount**n * values[states[n]]
                for n in (1, 2, 3)
            ]
            outcomes.append(max(ends))
        expected = expectile_of(np.array(outcomes), chances[state], effective_expectile(0.4))
        assert found[state] == pytest.approx(expected)


def test_rollouts_follow_the_behavior_and_the_process():
    mdp = random_mdps(np.random.default_rng(0), 1, num_states=3, num_actions=2, transitions=stochastic_transitions)
    single, behavior = mdp.take(0), np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])
    recorded = rollouts(single, behavior, np.repeat([0, 1, 2], 400), 20, np.random.default_rng(1))
    here, after = recorded.states[:, :-1].ravel(), recorded.states[:, 1:].ravel()
    expected = np.einsum("sa,sat->st", behavior, single.transitions)
    for state in range(3):
        shares = np.bincount(after[here == state], minlength=3) / (here == state).sum()
        np.testing.assert_allclose(shares, expected[state], atol=0.03)
        taken = recorded.rewards.ravel()[here == state]
        assert np.isin(taken, single.rewards[state][behavior[state] > 0]).all()
    np.testing.assert_array_equal(recorded.states[:, 0], np.repeat([0, 1, 2], 400))


def test_rollouts_of_a_deterministic_process_follow_its_arrows():
    mdp = random_mdps(np.random.default_rng(0), 1, num_actions=1).take(0)
    recorded = rollouts(mdp, np.ones((5, 1)), np.arange(5), 10, np.random.default_rng(0))
    np.testing.assert_array_equal(recorded.states[:, 1:], mdp.transitions[:, 0].argmax(-1)[recorded.states[:, :-1]])


def test_sampled_and_enumerated_update_deviations_agree(problem):
    mdp, behavior, values = (problem[0].take(1), problem[1][1], problem[2][1])
    exact = operators.vem(values, mdp, behavior, 0.7, 3)
    recorded, chances = enumerate_rollouts(mdp, behavior, 3)
    best = plan(stepped_targets(values, recorded, 0.9, 0.7), recorded.rewards, 0.9, 3)[-1, ..., 0]
    enumerated = np.sqrt((chances * (best - exact[:, None]) ** 2).sum())
    drawn = rollouts(mdp, behavior, np.random.default_rng(0).integers(4, size=4000), 3, np.random.default_rng(1))
    best = plan(stepped_targets(values, drawn, 0.9, 0.7), drawn.rewards, 0.9, 3)[-1, :, 0]
    assert update_deviation(best, drawn.states[:, 0], exact) == pytest.approx(enumerated, rel=0.05)


def test_values_at_matches_leading_axes():
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    states = np.array([[[0, 1, 1]], [[1, 0, 0]]])
    np.testing.assert_array_equal(values_at(values, states), [[[1, 2, 2]], [[4, 3, 3]]])
    np.testing.assert_array_equal(values_at(values[0], np.array([1, 1, 0])), [2, 2, 1])


def test_stochastic_processes_cannot_be_enumerated():
    mdp = random_mdps(np.random.default_rng(0), 1, transitions=stochastic_transitions)
    with pytest.raises(SettingsError, match="deterministic"):
        enumerate_rollouts(mdp, softmax_policy(mdp.rewards), 2)


def test_batched_enumeration_equals_that_of_each_process(problem):
    mdp, behavior, values = problem
    together = enumerate_rollouts(mdp, behavior, 2)
    run = functools.partial(sampled_vem, discount=0.9, expectile=0.8, max_steps=2)
    for index in range(4):
        alone = enumerate_rollouts(mdp.take(index), behavior[index], 2)
        np.testing.assert_array_equal(together[0].states[index], alone[0].states)
        np.testing.assert_allclose(run(values, *together)[index], run(values[index], *alone))
