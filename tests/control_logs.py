"""Logs of Gymnasium's discrete control tasks, recorded by scripted controllers of mixed quality."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np

from vem.data.arrays import from_arrays
from vem.data.dataset import Dataset

Controller = Callable[[np.ndarray, np.random.Generator], int]


def record(
    environment: str, controllers: list[Controller], num_episodes: int, max_steps: int, seed: int = 0, **facts: Any
) -> Dataset:
    """Episodes with one controller each, in turn."""
    env, random = gymnasium.make(environment), np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {name: [] for name in ("observations", "actions", "rewards", "terminals")}
    columns |= {"timeouts": [], "next_observations": []}
    for episode in range(num_episodes):
        observation, _ = env.reset(seed=seed + episode)
        for index in range(max_steps):
            action = controllers[episode % len(controllers)](observation, random)
            following, reward, terminal, truncated, _ = env.step(action)
            is_cut = truncated or index == max_steps - 1
            row = (observation, action, reward, terminal, is_cut and not terminal, following)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            observation = following
            if terminal or is_cut:
                break
    env.close()
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    return from_arrays(**arrays, environment=environment, teleports="keep", **facts)


def balance(observation: np.ndarray, random: np.random.Generator) -> int:
    """Balances CartPole's pole, with an action in ten at random."""
    position, velocity, angle, spin = observation
    push = 0.1 * position + 0.3 * velocity + 3 * angle + spin
    return int(random.integers(2)) if random.random() < 0.1 else int(push > 0)


def topple(observation: np.ndarray, random: np.random.Generator) -> int:
    """Pushes away from the side that the pole falls to, so that it falls soon; an action in ten at random."""
    return int(random.integers(2)) if random.random() < 0.1 else int(observation[2] + observation[3] < 0)


def land(observation: np.ndarray, random: np.random.Generator) -> int:
    """Lands LunarLander's craft more often than not, by Gymnasium's own heuristic, with an action in ten at random."""
    from gymnasium.envs.box2d.lunar_lander import heuristic

    env = SimpleNamespace(unwrapped=SimpleNamespace(continuous=False))
    return int(random.integers(4)) if random.random() < 0.1 else int(heuristic(env, observation))


def drop(observation: np.ndarray, random: np.random.Generator) -> int:
    """Fires any engine, or none most of the time: the craft crashes."""
    return int(random.choice(4, p=[0.55, 0.15, 0.15, 0.15]))


def mean_return(policy: Any, environment: str, num_episodes: int, max_steps: int = 500) -> float:
    """Mean return of the policy's likeliest actions, from fixed seeds."""
    env, total = gymnasium.make(environment), 0.0
    for episode in range(num_episodes):
        observation, _ = env.reset(seed=10_000 + episode)
        for _ in range(max_steps):
            observation, reward, terminal, truncated, _ = env.step(policy.act(observation))
            total += float(reward)
            if terminal or truncated:
                break
    env.close()
    return total / num_episodes
