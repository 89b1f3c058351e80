"""The benchmark's ``*-random`` data: roll-outs of a Gaussian policy that was never trained, as D4RL describes them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from vem.data.recorder import Recipe, Report, rolling_out, write_recording
from vem.errors import DataError
from vem.tasks import TASKS, Task, find_task

HIDDEN = (256, 256)
LAST_WEIGHT = 1e-3
"""Bound of the last layer's fresh weights: means and log σ start near 0."""
RECIPE = "roll-outs of a randomly initialized Gaussian policy, squashed by tanh; D4RL's description of random data"
RANDOM_TASKS = tuple(name for name in TASKS if name.endswith("-random"))
DEFAULT_NUM_ROWS = 1_000_000


class RandomGaussianPolicy:
    """tanh of a Normal whose mean and log σ are networks with fresh weights; the seed decides the weights."""

    def __init__(self, observation_size: int, action_size: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 2**31])
        sizes = (observation_size, *HIDDEN)
        self.layers = [
            (rng.uniform(-1, 1, (fan_in, fan_out)) / np.sqrt(fan_in), np.full(fan_out, 0.1))
            for fan_in, fan_out in pairwise(sizes)
        ]
        self.head = rng.uniform(-LAST_WEIGHT, LAST_WEIGHT, (HIDDEN[-1] + 1, 2 * action_size))

    def act(self, observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """An action drawn from the policy."""
        hidden = np.asarray(observation, np.float64)
        for weight, bias in self.layers:
            hidden = np.maximum(hidden @ weight + bias, 0)
        mean, log_std = np.split(hidden @ self.head[:-1] + self.head[-1], 2)
        return np.tanh(mean + np.exp(np.clip(log_std, -20, 2)) * rng.standard_normal(mean.shape))


def write_random(
    path: str | Path,
    name: str,
    num_rows: int = DEFAULT_NUM_ROWS,
    seed: int = 0,
    report: Report = lambda what, done, total: None,
) -> Path:
    """Record ``name`` (``hopper-random``, …) and return the file's path; equal arguments give equal rows."""
    task = random_task(name)
    recipe = Recipe(task, RECIPE, num_rows, seed)
    recipe.check()
    policy = RandomGaussianPolicy(task.observation_size, task.action_size, seed)
    return write_recording(path, recipe, rolling_out(policy.act), report=report)


def random_task(name: str) -> Task:
    """The task of that name; DataError lists those that can be made."""
    task = find_task(name)
    if task is None or task.name not in RANDOM_TASKS:
        raise DataError(f"{name!r} is not data of a random policy: expected one of {', '.join(RANDOM_TASKS)}.")
    return task
