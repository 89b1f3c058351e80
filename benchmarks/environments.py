"""Measure the environments on one core: steps per second, the share of the simulator, and what a random policy returns.

Run with `python benchmarks/environments.py`; writes benchmarks/results/environments.json.
"""

import importlib.metadata
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from vem import envs
from vem.data.mazes import WaypointBehavior, record_maze
from vem.tasks import normalized_score, task_of_environment

RESULTS = Path(__file__).parent / "results" / "environments.json"
NUM_STEPS = 1000
NUM_ROUNDS = 5
EPISODES = {
    "AntMaze": 3,
    "Adroit": 50,
    "AdroitPen": 300,
    "Hopper": 300,
    "Walker2d": 300,
    "HalfCheetah": 20,
    "PointMaze": 100,
}


def steps_per_second(environment: str) -> dict[str, int]:
    """Whole env.step, and mj_step alone on the same actions: the best of alternating rounds, in CPU time."""
    import mujoco

    env: Any = envs.make(environment)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(NUM_STEPS)]
    robot: Any = env.unwrapped
    whole, simulator = [], []
    for _ in range(NUM_ROUNDS):
        env.reset(seed=0)
        started = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        whole.append(time.process_time() - started)
        env.reset(seed=0)
        started = time.process_time()
        for action in actions:
            robot.data.ctrl[:] = action
            mujoco.mj_step(robot.model, robot.data, robot.frame_skip)
        simulator.append(time.process_time() - started)
    return {
        "steps_per_second": round(NUM_STEPS / min(whole)),
        "simulator_steps_per_second": round(NUM_STEPS / min(simulator)),
    }


def random_policy(environment: str) -> dict[str, float]:
    task = task_of_environment(environment)
    assert task is not None
    env: Any = envs.make(environment)
    env.action_space.seed(0)
    name = environment.removeprefix("vem/").split("-")[0]
    num_episodes = EPISODES.get(name, EPISODES["Adroit"])
    returns, lengths = [], []
    for seed in range(num_episodes):
        env.reset(seed=seed)
        total, length, is_over = 0.0, 0, False
        while not is_over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, length, is_over = total + float(reward), length + 1, terminated or truncated
        returns.append(total)
        lengths.append(length)
    mean = float(np.mean(returns))
    return {
        "episodes": num_episodes,
        "return": round(mean, 2),
        "standard_error": round(float(np.std(returns) / np.sqrt(num_episodes)), 2),
        "reference_minimum": task.minimum,
        "score": round(float(normalized_score(task, mean)), 2),
        "length": round(float(np.mean(lengths)), 1),
    }


def behavior_success(environment: str, num_episodes: int = 100) -> float:
    """How often the trajectory policy of the built-in data, walking from cell to cell, meets the goal in time."""
    env: Any = envs.make(environment)
    behavior = WaypointBehavior(env.unwrapped.layout, np.random.default_rng(0))
    num_successes = 0
    for seed in range(num_episodes):
        observation, _ = env.reset(seed=seed)
        behavior.reset()
        is_over = False
        while not is_over:
            observation, _, terminated, truncated, _ = env.step(behavior.act(observation))
            num_successes += terminated
            is_over = terminated or truncated
    return num_successes / num_episodes


def main() -> None:
    """Measure, print and keep."""
    results = {}
    for environment in envs.environment_ids():
        results[environment] = steps_per_second(environment) | {"random_policy": random_policy(environment)}
        if "PointMaze" in environment:
            results[environment]["behavior_success"] = behavior_success(environment)
        print(environment, results[environment])
    started = time.process_time()
    record_maze("pointmaze-medium", 50_000)
    rows_per_second = round(50_000 / (time.process_time() - started))
    print("trajectory", rows_per_second, "rows/s")
    versions = {name: importlib.metadata.version(name) for name in ("mujoco", "gymnasium", "gymnasium-robotics")}
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}
    RESULTS.parent.mkdir(exist_ok=True)
    report = {
        "versions": versions,
        "machine": machine,
        "environments": results,
        "trajectory_rows_per_second": rows_per_second,
    }
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
