import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from vem import envs
from vem.errors import SimulatorError
from vem.tasks import TASKS, task_of_environment

SOURCE = Path(__file__).parents[2] / "src"


def run_python(program, directory):
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=directory, env=environment, capture_output=True, text=True, check=True
    )


@pytest.mark.parametrize("environment", envs.environment_ids())
def test_every_id_makes_an_environment_that_keeps_its_promises(environment):
    env = envs.make(environment)
    task = task_of_environment(environment)
    assert task is not None
    assert env.observation_space.shape == (task.observation_size,)
    if "Discrete" in environment:
        assert (env.action_space, task.action_size) == (gymnasium.spaces.Discrete(4), 1)
    else:
        assert env.action_space.shape == (task.action_size,)
        np.testing.assert_array_equal(env.action_space.low, -1)
        np.testing.assert_array_equal(env.action_space.high, 1)
    env.action_space.seed(0)
    observation, info = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    for _ in range(3):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert np.isfinite(reward)
        assert isinstance(terminated, bool)
        assert not truncated
    if not environment.startswith(("vem/Hopper", "vem/Walker", "vem/Half")):
        assert info["success"] is False
    env.close()


@pytest.mark.parametrize("environment", envs.environment_ids())
def test_the_seed_decides_the_episode(environment):
    def rollout(seed):
        env = envs.make(environment)
        observations = [env.reset(seed=seed)[0]]
        actions = np.random.default_rng(0).uniform(-1, 1, (5, *env.action_space.shape)).astype(np.float32)
        for action in actions:
            observations.append(env.step(action)[0])
        return np.array(observations)

    np.testing.assert_array_equal(rollout(1), rollout(1))
    assert np.any(rollout(1) != rollout(2))


def test_every_task_has_an_environment_with_its_limit():
    for task in TASKS.values():
        assert task.environment in envs.environment_ids()
    for name, limit in {
        "antmaze-umaze-v2": 700,
        "antmaze-large-play": 1000,
        "pen-human-v1": 100,
        "door-cloned": 200,
    }.items():
        env = envs.make(name)
        assert env.spec is not None
        assert env.spec.max_episode_steps == limit


def test_gymnasium_imports_the_ids_itself(tmp_path):
    program = (
        "import gymnasium\n"
        "env = gymnasium.make('vem.envs:vem/AntMaze-UMaze-v0')\n"
        "print(env.observation_space.shape, env.spec.max_episode_steps)"
    )
    assert run_python(program, tmp_path).stdout.strip() == "(29,) 700"


@pytest.mark.parametrize("other", ["CartPole-v1", "AdroitHandDoor-v1"])
def test_ids_of_other_packages_are_made_too(other):
    assert envs.make(other).spec.id == other


@pytest.mark.parametrize(
    ("wrong", "suggestion"),
    [
        ("vem/AntMaze-Umaz-v0", "vem/AntMaze-UMaze-v0"),
        ("antmaze-medum-play", "antmaze-medium-play"),
        ("AntMaze-Medium-v0", "vem/AntMaze-Medium-v0"),
        ("completely different", "environment_ids"),
    ],
)
def test_an_unknown_name_is_answered_with_close_ones(wrong, suggestion):
    with pytest.raises(SimulatorError, match=suggestion) as caught:
        envs.make(wrong)
    assert repr(wrong) in str(caught.value)


def test_a_wrong_argument_is_a_clear_error():
    with pytest.raises(SimulatorError, match="color"):
        envs.make("hopper-medium", color="red")


@pytest.mark.parametrize("module", ["mujoco", "gymnasium_robotics"])
def test_a_missing_simulator_is_a_clear_error(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SimulatorError, match=r"pip install 'vem\[envs\]'"):
        envs.make("door-human")


def test_importing_registers_the_ids_and_loads_no_simulator(tmp_path):
    program = (
        "import sys, vem.envs, gymnasium\n"
        "print({'mujoco', 'gymnasium_robotics'} & set(sys.modules))\n"
        "print(set(vem.envs.environment_ids()) - set(gymnasium.registry))"
    )
    assert run_python(program, tmp_path).stdout.split() == ["set()", "set()"]


def test_environments_print_nothing_and_leave_no_files(tmp_path):
    program = (
        "import warnings; warnings.simplefilter('error'); from vem import envs\n"
        "for name in ('halfcheetah-medium', 'walker2d-medium', 'door-human', 'antmaze-umaze', 'pointmaze-umaze'):\n"
        "    env = envs.make(name); env.reset(seed=0); env.step(env.action_space.sample()); env.close()"
    )
    run = run_python(program, tmp_path)
    assert (run.stdout, run.stderr) == ("", "")
    assert list(tmp_path.iterdir()) == []
