"""A walk along a line: reward 1 and the end at the right; trajectories too short to reach it from the left."""

from __future__ import annotations

import numpy as np

from vem.data.arrays import from_arrays
from vem.data.dataset import Dataset

GOAL, STRIDE = 0.95, 0.1


def step(position: float, action: float) -> float:
    """Where a step leads: up to 0.1 to either side, within 0 and 1."""
    return float(np.clip(position + STRIDE * action, 0, 1))


def record(num_episodes: int, share_right: float, num_steps: int, seed: int = 0) -> Dataset:
    """Episodes from anywhere, each walking one way throughout; ``share_right`` of them walk to the goal."""
    random = np.random.default_rng(seed)
    observations, actions, rewards, terminals, timeouts, following = [], [], [], [], [], []
    for _ in range(num_episodes):
        position = random.uniform(0, GOAL)
        direction = 1 if random.uniform() < share_right else -1
        for index in range(num_steps):
            action = direction * random.uniform(0.6, 1.0)
            after = step(position, action)
            is_done = after >= GOAL
            observations.append([position])
            actions.append([action])
            rewards.append(float(is_done))
            terminals.append(is_done)
            is_cut = not is_done and (index == num_steps - 1 or after <= 0)
            timeouts.append(is_cut)
            following.append([after])
            position = after
            if is_done or is_cut:
                break
    columns = [np.asarray(column, np.float32) for column in (observations, actions, rewards)]
    return from_arrays(
        *columns,
        np.asarray(terminals),
        np.asarray(timeouts),
        np.asarray(following, np.float32),
        name="chain",
        teleports="keep",
        action_bounds=([-1.0], [1.0]),
    )


def reaches_goal(policy, start: float = 0.1, num_steps: int = 30) -> bool:
    """Whether the policy's mean action walks from the far left to the goal."""
    position = start
    for _ in range(num_steps):
        position = step(position, policy.act(np.asarray([position], np.float32))[0])
        if position >= GOAL:
            return True
    return False
