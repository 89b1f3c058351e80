import importlib

import numpy as np
import pytest

from vem import envs
from vem.tasks import find_task, normalized_score

CLASSES = {
    "hopper": ("hopper_v4", "HopperEnv"),
    "walker2d": ("walker2d_v4", "Walker2dEnv"),
    "halfcheetah": ("half_cheetah_v4", "HalfCheetahEnv"),
}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
def test_they_equal_gymnasiums_v4(name, monkeypatch, tmp_path):
    module, class_name = CLASSES[name]
    try:
        version_4 = getattr(importlib.import_module(f"gymnasium.envs.mujoco.{module}"), class_name)
    except ImportError:
        pytest.skip("this Gymnasium has no v4 environments to compare with")
    # MuJoCo writes a notice about v4's own model file into the working directory.
    monkeypatch.chdir(tmp_path)
    theirs, ours = version_4(), envs.make(f"{name}-medium").unwrapped
    rng = np.random.default_rng(0)
    num_ends = 0
    for seed in range(4):
        np.testing.assert_array_equal(theirs.reset(seed=seed)[0], ours.reset(seed=seed)[0])
        terminated = False
        for action in rng.uniform(-1, 1, (60, *ours.action_space.shape)):
            expected = theirs.step(action)
            observation, reward, terminated, _, _ = ours.step(action)
            np.testing.assert_array_equal(observation, expected[0])
            assert reward == pytest.approx(expected[1])
            assert terminated == expected[2]
            if terminated:
                num_ends += 1
                break
    assert (num_ends > 0) == (name != "halfcheetah")


@pytest.mark.parametrize(("name", "num_episodes"), [("hopper", 60), ("walker2d", 60), ("halfcheetah", 6)])
def test_a_random_policy_scores_near_zero(name, num_episodes):
    task = find_task(f"{name}-random")
    env = envs.make(task.environment)
    env.action_space.seed(0)
    returns = []
    for seed in range(num_episodes):
        env.reset(seed=seed)
        total, is_over = 0.0, False
        while not is_over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, is_over = total + reward, terminated or truncated
        returns.append(total)
    assert abs(normalized_score(task, np.mean(returns))) < 2.0
