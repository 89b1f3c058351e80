import numpy as np
import pytest

from vem.errors import SettingsError
from vem.theory.mdp import (
    MDP,
    action_values,
    enumerate_rollouts,
    expectile_values,
    optimal_values,
    policy_values,
    random_mdps,
    rollouts,
    softmax_policy,
)

# Two states. In state 0: stay for 1, or go to state 1 for 0. In state 1: stay for 2, or go back for 0.
TWO_STATES = MDP(
    np.array([[1.0, 0.0], [2.0, 0.0]]),
    np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], dtype=float),
    discount=0.5,
)


def test_values_by_hand():
    # Staying in state 1 is worth 2/(1−½) = 4; state 0 is worth max(1 + ½V, 0 + ½·4) = 2 either way.
    np.testing.assert_allclose(optimal_values(TWO_STATES), [2, 4])
    always_stay, always_move = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(policy_values(TWO_STATES, always_stay), [2, 4])
    np.testing.assert_allclose(policy_values(TWO_STATES, always_move), [0, 0])
    np.testing.assert_allclose(optimal_values(TWO_STATES, always_move), [0, 0])
    np.testing.assert_allclose(action_values(np.array([2.0, 4.0]), TWO_STATES), [[2, 2], [4, 1]])


def test_a_batch_gives_what_its_processes_give():
    mdp = random_mdps(np.random.default_rng(0), 7, stochastic=True)
    behavior = softmax_policy(mdp.rewards)
    for solve in (optimal_values, policy_values, lambda mdp, policy: expectile_values(mdp, policy, 0.8)):
        together = solve(mdp, behavior)
        for index in range(7):
            np.testing.assert_allclose(together[index], solve(mdp.take(index), behavior[index]), rtol=1e-10)


@pytest.mark.parametrize("stochastic", [False, True])
def test_random_mdps_have_the_asked_shape_and_distributions(stochastic):
    mdp = random_mdps(np.random.default_rng(0), 3, num_states=4, num_actions=2, discount=0.7, stochastic=stochastic)
    assert mdp.transitions.shape == (3, 4, 2, 4)
    assert (mdp.num_states, mdp.num_actions, mdp.discount) == (4, 2, 0.7)
    assert ((mdp.rewards >= 0) & (mdp.rewards < 1)).all()
    assert np.isin(mdp.transitions, (0, 1)).all() == (not stochastic)


def test_softmax_policy_by_hand_and_without_removed_actions():
    values = np.log(np.array([[1.0, 1.0, 2.0]]))
    np.testing.assert_allclose(softmax_policy(values), [[0.25, 0.25, 0.5]])
    np.testing.assert_allclose(softmax_policy(values, num_removed=1), [[0, 1 / 3, 2 / 3]])
    np.testing.assert_allclose(softmax_policy(values, 0.5), [[1 / 6, 1 / 6, 4 / 6]])
    # The best action is removed, and the others are far below it.
    far = softmax_policy(np.array([[1000.0, 0.0, 1.0]]), 1e-3, num_removed=1)
    np.testing.assert_allclose(far, [[0, 0, 1]], atol=1e-12)


@pytest.mark.parametrize(
    ("rewards", "transitions", "discount", "message"),
    [
        (np.zeros((2, 2)), np.ones((2, 2, 2)), 0.9, "sum to 1"),
        (np.zeros((2, 2)), np.ones((2, 2)), 0.9, "shape"),
        (np.zeros((0, 2)), np.zeros((0, 2, 0)), 0.9, "shape"),
        (np.zeros((1, 1)), np.ones((1, 1, 1)), 1.0, "discount"),
        (np.full((1, 1), np.nan), np.ones((1, 1, 1)), 0.9, "finite"),
    ],
)
def test_impossible_processes_are_refused(rewards, transitions, discount, message):
    with pytest.raises(SettingsError, match=message):
        MDP(rewards, transitions, discount)


def test_rollouts_follow_the_behavior_and_the_process():
    mdp = random_mdps(np.random.default_rng(0), 1, num_states=3, num_actions=2, stochastic=True).take(0)
    behavior = np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])
    recorded = rollouts(mdp, behavior, np.repeat([0, 1, 2], 400), 20, np.random.default_rng(1))
    here, after = recorded.states[:, :-1].ravel(), recorded.states[:, 1:].ravel()
    expected = np.einsum("sa,sat->st", behavior, mdp.transitions)
    for state in range(3):
        shares = np.bincount(after[here == state], minlength=3) / (here == state).sum()
        np.testing.assert_allclose(shares, expected[state], atol=0.03)
        taken = recorded.rewards.ravel()[here == state]
        assert np.isin(taken, mdp.rewards[state][behavior[state] > 0]).all()
    np.testing.assert_array_equal(recorded.states[:, 0], np.repeat([0, 1, 2], 400))


def test_enumerated_rollouts_are_all_there_are_and_follow_the_arrows():
    mdp = random_mdps(np.random.default_rng(3), 4, num_states=4, num_actions=2)
    behavior = softmax_policy(mdp.rewards)
    recorded, chances = enumerate_rollouts(mdp, behavior, 3)
    assert recorded.states.shape == (4, 4, 2**3, 4)
    np.testing.assert_allclose(chances.sum(-1), 1)
    alone, _ = enumerate_rollouts(mdp.take(2), behavior[2], 3)
    np.testing.assert_array_equal(recorded.states[2], alone.states)
    follows = mdp.transitions[2].max(1)[alone.states[..., :-1], alone.states[..., 1:]]
    np.testing.assert_array_equal(follows, 1)


def test_stochastic_processes_cannot_be_enumerated():
    mdp = random_mdps(np.random.default_rng(0), 1, stochastic=True)
    with pytest.raises(SettingsError, match="deterministic"):
        enumerate_rollouts(mdp, softmax_policy(mdp.rewards), 2)
