import numpy as np
import pytest

from vem.errors import SettingsError
from vem.theory.mdp import (
    MDP,
    action_values,
    deterministic_transitions,
    disturb,
    expectile_values,
    optimal_values,
    policy_values,
    random_mdps,
    softmax_policy,
    stochastic_transitions,
)

# Two states. In state 0: stay for 1, or go to state 1 for 0. In state 1: stay for 2, or go back for 0.
TWO_STATES = MDP(
    np.array([[1.0, 0.0], [2.0, 0.0]]),
    np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], dtype=float),
    discount=0.5,
)


def test_optimal_values_by_hand():
    # Staying in state 1 is worth 2/(1−½) = 4; state 0 is worth max(1 + ½V, 0 + ½·4) = 2 either way.
    np.testing.assert_allclose(optimal_values(TWO_STATES), [2, 4])


def test_policy_values_by_hand():
    always_stay = np.array([[1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(policy_values(TWO_STATES, always_stay), [2, 4])
    always_move = np.array([[0.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(policy_values(TWO_STATES, always_move), [0, 0])


def test_optimal_values_within_the_support_of_a_behavior():
    never_stay = np.array([[0.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(optimal_values(TWO_STATES, never_stay), [0, 0])


def test_action_values_by_hand():
    np.testing.assert_allclose(action_values(np.array([2.0, 4.0]), TWO_STATES), [[2, 2], [4, 1]])


def test_a_batch_gives_what_its_trials_give():
    mdp = random_mdps(np.random.default_rng(0), 7, transitions=stochastic_transitions)
    behavior = softmax_policy(mdp.rewards)
    for solve in (
        lambda mdp, policy: optimal_values(mdp),
        lambda mdp, policy: policy_values(mdp, policy),
        lambda mdp, policy: expectile_values(mdp, policy, 0.8),
    ):
        together = solve(mdp, behavior)
        for index in range(7):
            np.testing.assert_allclose(together[index], solve(mdp.take(index), behavior[index]), rtol=1e-10)


@pytest.mark.parametrize("kind", [deterministic_transitions, stochastic_transitions])
def test_random_mdps_have_the_asked_shape_and_distributions(kind):
    mdp = random_mdps(np.random.default_rng(0), 3, num_states=4, num_actions=2, discount=0.7, transitions=kind)
    assert mdp.rewards.shape == (3, 4, 2)
    assert mdp.transitions.shape == (3, 4, 2, 4)
    assert mdp.num_states == 4
    assert mdp.num_actions == 2
    assert ((mdp.rewards >= 0) & (mdp.rewards < 1)).all()
    assert np.isin(mdp.transitions, (0, 1)).all() == (kind is deterministic_transitions)


def test_softmax_policy_by_hand_and_without_removed_actions():
    values = np.log(np.array([[1.0, 1.0, 2.0]]))
    np.testing.assert_allclose(softmax_policy(values), [[0.25, 0.25, 0.5]])
    np.testing.assert_allclose(softmax_policy(values, num_removed=1), [[0, 1 / 3, 2 / 3]])
    np.testing.assert_allclose(softmax_policy(values, 0.5), [[1 / 6, 1 / 6, 4 / 6]])


def test_softmax_policy_survives_tiny_temperatures_when_the_best_action_is_removed():
    policy = softmax_policy(np.array([[1000.0, 0.0, 1.0]]), 1e-3, num_removed=1)
    np.testing.assert_allclose(policy, [[0, 0, 1]], atol=1e-12)


def test_disturbed_targets_have_the_given_standard_error():
    mdp = random_mdps(np.random.default_rng(0), 4000, num_states=2, num_actions=2)
    error = np.array([[0.1, 1.0], [2.0, 0.0]])
    difference = disturb(mdp, error, np.random.default_rng(1)).rewards - mdp.rewards
    np.testing.assert_allclose(difference.std(0), error, rtol=0.05)
    np.testing.assert_allclose(difference.mean(0), 0, atol=0.15)


@pytest.mark.parametrize(
    ("rewards", "transitions", "discount", "message"),
    [
        (np.zeros((2, 2)), np.ones((2, 2, 2)), 0.9, "sum to 1"),
        (np.zeros((2, 2)), np.ones((2, 2)), 0.9, "shape"),
        (np.zeros((0, 2)), np.zeros((0, 2, 0)), 0.9, "shape"),
        (np.zeros((1, 1)), np.ones((1, 1, 1)), 1.0, "discount"),
    ],
)
def test_impossible_processes_are_refused(rewards, transitions, discount, message):
    with pytest.raises(SettingsError, match=message):
        MDP(rewards, transitions, discount)


def test_impossible_behaviors_and_sizes_are_refused():
    with pytest.raises(SettingsError, match="temperature"):
        softmax_policy(np.zeros((1, 2)), 0.0)
    with pytest.raises(SettingsError, match="one must remain"):
        softmax_policy(np.zeros((1, 2)), num_removed=2)
    with pytest.raises(SettingsError, match="number of states is 0"):
        random_mdps(np.random.default_rng(0), 1, num_states=0)
