"""A dataset small enough to train on in a second."""

import numpy as np

from vem.data.arrays import from_arrays

SMALL = {
    "value_hidden": (16, 16),
    "policy_hidden": (16, 16),
    "batch_size": 32,
    "steps_per_refresh": 20,
    "value_share": 0.4,
}


def tiny_dataset(num_episodes=12, length=15, seed=0, **rules):
    """A walk on a line toward a reward: two numbers observed, one action."""
    generator = np.random.default_rng(seed)
    position = generator.normal(size=(num_episodes, length, 1))
    observations = np.concatenate([np.cumsum(position, axis=1), position], axis=2).reshape(-1, 2)
    actions = generator.uniform(-1, 1, size=(num_episodes * length, 1))
    terminals = np.zeros((num_episodes, length), bool)
    terminals[::2, -1] = True
    timeouts = np.zeros((num_episodes, length), bool)
    timeouts[1::2, -1] = True
    rewards = terminals + 0.1 * generator.normal(size=(num_episodes, length))
    return from_arrays(
        observations, actions, rewards.reshape(-1), terminals.reshape(-1), timeouts.reshape(-1), name="tiny", **rules
    )
