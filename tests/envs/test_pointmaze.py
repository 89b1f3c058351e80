import gymnasium
import numpy as np
import pytest

from vem import envs
from vem.envs import import_robotics


@pytest.mark.parametrize("maze", ["UMaze", "Medium", "Large"])
def test_physics_and_walls_are_those_of_gymnasium_robotics(maze):
    import_robotics()
    theirs = gymnasium.make(f"PointMaze_{maze}-v3", continuing_task=True).unwrapped
    theirs.reset(seed=0)
    ours = envs.make(f"vem/PointMaze-{maze}-v0").unwrapped
    ours.reset(seed=0)
    ours.frame_skip = 1
    rng = np.random.default_rng(0)
    for cell in ours.layout.free_cells[::4]:
        for env in (theirs.point_env, ours):
            env.set_state(np.array(ours.layout.center(cell)), np.zeros(2))
        for push in rng.choice([-1.0, 0.0, 1.0], (4, 2)):
            for _ in range(40):
                expected = theirs.step(push)[0]["observation"]
                np.testing.assert_allclose(ours.step(push)[0], expected, atol=1e-9)


def test_a_step_is_a_twentieth_of_a_second_and_speed_is_limited():
    env = envs.make("pointmaze-medium").unwrapped
    observation, _ = env.reset(seed=0)
    before = env.data.time
    env.step(np.zeros(2))
    assert env.data.time - before == pytest.approx(0.05)
    env.data.qvel[:] = 50.0
    observation = env.step(np.zeros(2))[0]
    assert np.abs(observation[2:]).max() <= 5.0


def test_starts_are_in_the_start_cell_and_the_goal_is_one():
    env = envs.make("pointmaze-medium").unwrapped
    resets = [env.reset(seed=seed) for seed in range(100)]
    starts = np.array([observation for observation, _ in resets])
    offsets = starts[:, :2] - env.layout.start
    assert np.abs(offsets).max() <= 0.25
    assert np.abs(offsets).max() > 0.24
    assert not starts[:, 2:].any()
    goals = np.array([info["goal"] for _, info in resets])
    np.testing.assert_array_equal(goals, np.tile(env.layout.goal, (100, 1)))


@pytest.mark.parametrize(("distance", "is_reached"), [(0.44, True), (0.46, False)])
def test_the_episode_ends_at_the_goal_with_reward_one(distance, is_reached):
    env = envs.make("pointmaze-large").unwrapped
    env.reset(seed=0)
    env.set_state(np.add(env.layout.goal, (distance, 0)), np.zeros(2))
    _, reward, terminated, _, info = env.step(np.zeros(2))
    assert (reward, terminated, info["success"]) == (float(is_reached), is_reached, is_reached)


def test_discrete_actions_are_full_pushes():
    ours, theirs = (envs.make(name) for name in ("pointmaze-umaze-discrete", "pointmaze-umaze"))
    assert ours.action_space == gymnasium.spaces.Discrete(4)
    pushes = [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    for action in np.random.default_rng(0).integers(0, 4, 30):
        found, expected = ours.step(action), theirs.step(np.array(pushes[action], np.float32))
        np.testing.assert_array_equal(found[0], expected[0])
