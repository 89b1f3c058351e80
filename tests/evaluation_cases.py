"""Small environments, policies and run directories for the evaluation tests; worker processes import this too."""

from __future__ import annotations

import os
import sys
import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from vem.policy import Policy, make_policy

LENGTH = 3


class Walk(gymnasium.Env):
    """Three steps of reward 1, 2, 3 plus the reset's draw; even seeds end in the task, odd ones at a time limit."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.steps = seed, 0
        self.draw = self.np_random.uniform()
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        is_over = self.steps == LENGTH
        even = self.seed % 2 == 0
        return self.observe(), self.steps + self.draw + float(action[0]), is_over and even, is_over and not even, {}

    def observe(self):
        return np.array([self.steps, self.draw])


class Crashing(Walk):
    def step(self, action):
        if self.seed % 2:
            raise FloatingPointError("the simulation\nexploded")
        return super().step(action)


class Dying(Walk):
    def step(self, action):
        if self.seed % 2:
            os._exit(3)
        return super().step(action)


class Hanging(Walk):
    def step(self, action):
        if self.seed % 2:
            time.sleep(1000)
        return super().step(action)


class Printing(Walk):
    def step(self, action):
        print("a simulator's notice", flush=True)
        return super().step(action)


class Nested(Walk):
    observation_space = Dict({"b": Box(-9, 9, (1,)), "a": Box(-9, 9, (2,))})
    maze = "any"

    def observe(self):
        return {"b": np.array([self.steps]), "a": np.array([0.5, self.draw])}

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"success": self.steps == 2}


class Buttons(Walk):
    """Reward 10·choice: 3 is the best of four."""

    action_space = Discrete(4)

    def step(self, action):
        assert isinstance(action, np.int64)
        return super().step([10 * int(action)])


class Switches(Walk):
    action_space = MultiBinary(2)


class Panel(Walk):
    """A choice among three and a number; reward 10·choice + number."""

    action_space = Tuple((Discrete(3), Box(-1.0, 1.0, (1,), np.float32)))

    def step(self, action):
        choice, number = action
        assert number.shape == (1,)
        return super().step([10 * int(choice) + float(number[0])])


class NotAReward(Walk):
    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float("nan"), terminated, truncated, info


class Still:
    """An actor of the user's: always zero."""

    def act(self, observation):
        return np.zeros(1)


class Noise:
    def __init__(self, generator):
        self.generator = generator

    def act(self, observation):
        return self.generator.uniform(-1, 1, 1)


def noise(env, generator):
    """An ActorFactory."""
    return Noise(generator)


def without_jax(env, generator):
    """An ActorFactory that fails where JAX is loaded."""
    if "jax" in sys.modules:
        raise ImportError("JAX is loaded in a worker")
    return Still()


def threads(env, generator):
    """An ActorFactory that fails where linear algebra may use several threads."""
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        raise RuntimeError("a worker may use several threads")
    return Still()


def constant_policy(value=5.0, sizes=(2, 1), trial="seed0", **settings) -> Policy:
    """A Policy with mean action 0, standard deviation 1 and V = ``value`` everywhere."""
    observation_size, action_size = sizes
    parameters = {
        "actor": [{"weight": np.zeros((observation_size, action_size), np.float32), "bias": np.zeros(action_size)}],
        "log_std": np.zeros(action_size, np.float32),
        "critics": [{"weight": np.zeros((2, observation_size, 1)), "bias": np.full((2, 1), value)}],
        "value_unit": np.asarray(1.0),
    }
    bounds = (-np.ones(action_size), np.ones(action_size))
    normalizer = (np.zeros(observation_size), np.ones(observation_size))
    return make_policy("gaussian", parameters, bounds, normalizer, {"trial": trial, "settings": settings})


def guided_policy(move=(1.0, 0.0), sizes=(4, 2), **settings) -> Policy:
    """A Policy whose guide always names the same move, and whose executor answers with tanh of its first dimensions."""
    policy = constant_policy(sizes=sizes, **settings)
    observation_size, action_size = sizes
    executor = np.zeros((2 * observation_size, action_size), np.float32)
    executor[observation_size : observation_size + action_size] = np.eye(action_size)
    tensors = {
        **policy.tensors,
        "actor.0.weight": executor,
        "guide.0.weight": np.zeros((observation_size, observation_size), np.float32),
        "guide.0.bias": np.array([*move, *np.zeros(observation_size - 2)], np.float32),
        "move_scale": (np.arange(observation_size) < 2).astype(np.float32),
    }
    return Policy("guided", tensors, policy.info)


def choosing_policy(choices, outputs) -> Policy:
    """A Policy of two observed numbers with these outputs everywhere, numbers within ±1."""
    high = np.array([max(count - 1, 1) for count in choices], np.float32)
    parameters = {
        "actor": [{"weight": np.zeros((2, len(outputs)), np.float32), "bias": np.asarray(outputs, np.float32)}],
        "log_std": np.zeros(sum(count == 0 for count in choices), np.float32),
        "action_choices": np.asarray(choices, np.int32),
        "value_unit": np.asarray(1.0),
    }
    low = np.where(np.asarray(choices) > 0, 0, -1)
    return make_policy("gaussian", parameters, (low, high), (np.zeros(2), np.ones(2)), {"trial": "seed0"})


def make_run(directory, environment="vem/PointMaze-UMaze-v0", sizes=(4, 2), name="own-data", policies=True, **config):
    """A run directory as training leaves it, with constant policies; returns its path."""
    from vem.data.arrays import from_arrays
    from vem.training.request import make_request
    from vem.training.run import Run

    rng = np.random.default_rng(0)
    dataset = from_arrays(
        rng.normal(size=(20, sizes[0])),
        rng.uniform(-1, 1, (20, sizes[1])),
        np.ones(20),
        timeouts=np.arange(20) % 10 == 9,
        name=name,
        environment=environment,
    )
    run = Run.create(directory, make_request(name, steps=7, **config), dataset)
    if policies:
        for trial, path in zip(run.config.trials, run.policy_paths, strict=True):
            constant_policy(sizes=sizes, trial=trial.name).save(path)
    return run.directory


class Drawn(Walk):
    """A Walk that draws itself without OpenGL: the brightness of its picture is the number of steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.full((32, 48, 3), 60 * self.steps, np.uint8) if self.render_mode == "rgb_array" else None


class Undrawable(Drawn):
    def render(self):
        raise RuntimeError("no OpenGL here")
