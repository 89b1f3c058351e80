"""A guided policy by hand, for the tests of trajectories of a walking ant."""

import numpy as np

from vem.policy import Policy


def guided_policy(move_scale=1.0, observation_size=29, action_size=8, kind="guided"):
    """A policy whose executor pushes with its first motor as far as it is asked to move in x, times a half."""
    random = np.random.default_rng(0)
    weight = np.zeros((2 * observation_size, action_size), np.float32)
    weight[observation_size, 0] = 0.5
    size = observation_size * (2 if kind == "guided" else 1)
    tensors = {
        "guide.0.weight": random.normal(size=(observation_size, observation_size)).astype(np.float32),
        "guide.0.bias": np.zeros(observation_size, np.float32),
        "actor.0.weight": weight[:size],
        "actor.0.bias": np.zeros(action_size, np.float32),
        "log_std": np.zeros(1, np.float32),
        "move_scale": np.full(observation_size, move_scale, np.float32),
        "observation_mean": np.zeros(observation_size, np.float32),
        "observation_deviation": np.full(observation_size, 2.0, np.float32),
        "action_low": np.full(action_size, -1.0, np.float32),
        "action_high": np.full(action_size, 1.0, np.float32),
        "value_unit": np.ones((), np.float32),
    }
    return Policy(kind, tensors, {})
