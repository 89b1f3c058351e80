import numpy as np
import pytest

from vem.losses import effective_expectile
from vem.theory import operators
from vem.theory.mdp import Trajectories, enumerate_rollouts, random_mdps, rollouts, softmax_policy
from vem.theory.operators import bootstrapped_targets, plan, sampled_authors, sampled_vem, stepped_targets


@pytest.fixture
def problem():
    mdp = random_mdps(np.random.default_rng(3), 4, num_states=4, num_actions=2)
    return mdp, softmax_policy(mdp.rewards), np.random.default_rng(4).normal(size=(4, 4)) + 5


def test_plan_by_hand():
    targets, rewards = np.array([1.0, 0.0, 8.0]), np.array([1.0, 1.0, 1.0])
    best = plan(targets, rewards, discount=0.5, max_steps=3)
    # n = 2 from row 1: 1 + ½·8; n = 3 from row 0: 1 + ½·5. Row 2 has one step left.
    np.testing.assert_allclose(best, [[1, 0, 8], [1, 5, 8], [3.5, 5, 8]])


def test_both_starts_by_hand():
    recorded = Trajectories(np.array([[0, 1, 1]]), np.array([[1.0, 0.0]]))
    values = np.array([2.0, 4.0])
    np.testing.assert_allclose(bootstrapped_targets(values, recorded, 0.5), [[3, 2]])
    # δ = 1 and −2; at τ = ¾ and the largest α, ⅔, the steps are 1 and ⅓·(−2).
    np.testing.assert_allclose(stepped_targets(values, recorded, 0.5, 0.75), [[3, 4 - 2 / 3]])


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
    returns = stepped_targets(values, recorded, mdp.discount, expectile)
    np.testing.assert_allclose((chances * returns[..., 0]).sum(-1), exact[0])
    for n in (2, 3, 4):
        returns = recorded.rewards[..., : returns.shape[-1] - 1] + mdp.discount * returns[..., 1:]
        np.testing.assert_allclose((chances * returns[..., 0]).sum(-1), exact[n - 1])


def test_sampled_memory_operator_is_exact_for_one_step_and_optimistic_beyond(problem):
    mdp, behavior, values = problem
    recorded, chances = enumerate_rollouts(mdp, behavior, 3)
    single, planned = (sampled_vem(values, recorded, chances, mdp.discount, 0.7, steps) for steps in (1, 3))
    np.testing.assert_allclose(single, operators.vem(values, mdp, behavior, 0.7, 1))
    exact = operators.vem(values, mdp, behavior, 0.7, 3)
    assert (planned >= exact - 1e-12).all()
    assert (planned > exact + 1e-3).any()


def test_authors_backup_of_one_step_is_the_exact_expectile_at_the_effective_level(problem):
    mdp, behavior, values = problem
    recorded, chances = enumerate_rollouts(mdp, behavior, 1)
    np.testing.assert_allclose(
        sampled_authors(values, recorded, chances, mdp.discount, 0.3, 1),
        operators.exact_expectile(values, mdp, behavior, effective_expectile(0.3)),
    )


def test_sampled_and_enumerated_update_deviations_agree(problem):
    mdp, behavior, values = (problem[0].take(1), problem[1][1], problem[2][1])
    exact = operators.vem(values, mdp, behavior, 0.7, 3)
    recorded, chances = enumerate_rollouts(mdp, behavior, 3)
    best = plan(stepped_targets(values, recorded, 0.9, 0.7), recorded.rewards, 0.9, 3)[-1, ..., 0]
    enumerated = np.sqrt((chances * (best - exact[:, None]) ** 2).sum())
    drawn = rollouts(mdp, behavior, np.random.default_rng(0).integers(4, size=4000), 3, np.random.default_rng(1))
    best = plan(stepped_targets(values, drawn, 0.9, 0.7), drawn.rewards, 0.9, 3)[-1, :, 0]
    assert operators.update_deviation(best, drawn.states[:, 0], exact) == pytest.approx(enumerated, rel=0.05)
