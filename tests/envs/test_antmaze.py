import pickle
from pathlib import Path

import numpy as np
import pytest

from vem import envs

DATA = Path(__file__).parents[2] / "../shared/data"
TASKS = {"umaze": "antmaze-umaze", "medium": "antmaze-medium-play", "large": "antmaze-large-diverse"}


@pytest.fixture(params=["umaze", "medium", "large"])
def ant(request):
    env = envs.make(TASKS[request.param]).unwrapped
    env.reset(seed=0)
    yield env
    env.close()


def test_a_step_takes_a_tenth_of_a_second(ant):
    before = ant.data.time
    ant.step(np.zeros(8))
    assert ant.data.time - before == pytest.approx(0.1)
    assert ant.model.opt.timestep == pytest.approx(0.02)


def test_the_model_has_d4rls_motors_contacts_and_walls(ant):
    np.testing.assert_array_equal(ant.model.actuator_gear[:, 0], 30)
    np.testing.assert_array_equal(ant.model.actuator_ctrlrange, np.tile([-1.0, 1.0], (8, 1)))
    np.testing.assert_allclose(ant.model.geom_solref, np.tile([0.02, 1.0], (ant.model.ngeom, 1)))
    np.testing.assert_allclose(ant.model.geom_solimp[:, :3], np.tile([0.8, 0.8, 0.01], (ant.model.ngeom, 1)))
    walls = [index for index in range(ant.model.ngeom) if ant.model.geom(index).name.startswith("wall")]
    assert len(walls) == ant.layout.walls.sum()
    np.testing.assert_array_equal(ant.model.geom_size[walls], np.tile([2.0, 2.0, 1.0], (len(walls), 1)))
    np.testing.assert_array_equal(ant.model.geom_pos[walls, 2], 1.0)


def test_the_observation_is_qpos_and_qvel(ant):
    ant.set_state(np.arange(15.0) / 100, np.arange(14.0) / 50)
    np.testing.assert_array_equal(ant.observe(), [*np.arange(15.0) / 100, *np.arange(14.0) / 50])
    observation = ant.step(np.full(8, 0.5))[0]
    np.testing.assert_array_equal(observation[:15], ant.data.qpos)
    np.testing.assert_array_equal(observation[15:], ant.data.qvel)


def test_reset_noise_is_d4rls():
    env = envs.make("antmaze-umaze").unwrapped
    states = np.array([env.reset(seed=seed)[0] for seed in range(200)])
    offsets = states[:, :15] - [0, 0, 0.75, 1, *np.zeros(11)]
    assert np.abs(offsets).max() <= 0.1
    assert offsets.min() < -0.095
    assert offsets.max() > 0.095
    assert states[:, 15:].std() == pytest.approx(0.1, rel=0.05)
    assert np.abs(states[:, 15:]).max() > 0.2


def test_goals_are_drawn_in_d4rls_range(ant):
    corner = np.array(ant.layout.center(ant.layout.goal_cell))
    offsets = np.array([ant.reset(seed=seed)[1]["goal"] for seed in range(300)]) - corner
    assert offsets.min() >= 0
    assert offsets.max() <= 1.5
    assert offsets.max() > 1.3
    np.testing.assert_allclose(offsets.mean(0), 0.75, atol=0.06)
    np.testing.assert_allclose(offsets.std(0), np.sqrt((1 + 0.25) / 12), atol=0.05)


def test_a_given_goal_is_kept():
    env = envs.make("antmaze-umaze", goal=(0.5, 8.25))
    for seed in range(3):
        np.testing.assert_array_equal(env.reset(seed=seed)[1]["goal"], [0.5, 8.25])


@pytest.mark.parametrize(("distance", "is_reached"), [(0.3, True), (0.7, False)])
def test_the_episode_ends_at_the_goal_with_reward_one(ant, distance, is_reached):
    _, info = ant.reset(seed=1)
    qpos = ant.init_qpos.copy()
    qpos[:2] = info["goal"] + [0.0, distance]
    ant.set_state(qpos, np.zeros(14))
    _, reward, terminated, truncated, info = ant.step(np.zeros(8))
    assert (reward, terminated, truncated) == (float(is_reached), is_reached, False)
    assert info["success"] is is_reached


def test_walls_hold_the_ant(ant):
    rng = np.random.default_rng(0)
    for cell in ant.layout.free_cells[::3]:
        for direction in ((5, 0), (-5, 0), (0, 5), (0, -5)):
            qpos = ant.init_qpos.copy()
            qpos[:2] = ant.layout.center(cell)
            ant.set_state(qpos, np.zeros(14))
            row, column = cell
            ahead = (row + np.sign(direction[1]), column + np.sign(direction[0]))
            for _ in range(15):
                ant.data.qvel[:2] = direction
                x, y = ant.step(rng.uniform(-1, 1, 8))[0][:2]
                assert not ant.layout.walls[ant.layout.cell(x, y)]
            if ant.layout.walls[ahead]:
                traveled = (np.array([x, y]) - ant.layout.center(cell)) @ np.sign(direction)
                assert 0.5 < traveled < 2.0


def test_it_survives_pickling():
    env = envs.make("antmaze-umaze", goal=(1.0, 9.0)).unwrapped
    copy = pickle.loads(pickle.dumps(env))
    observations = [one.reset(seed=5)[0] for one in (env, copy)]
    np.testing.assert_array_equal(*observations)
    np.testing.assert_array_equal(copy.goal, [1.0, 9.0])


@pytest.mark.parametrize(("maze", "tolerance"), [("umaze", 1e-3), ("medium", 0.02), ("large", 0.02)])
def test_recorded_steps_are_reproduced(maze, tolerance):
    """The observation is the whole state, so every recorded step can be repeated up to the files' rounding."""
    path = DATA / f"{TASKS[maze]}.hdf5"
    if not path.exists():
        pytest.skip("needs the recorded benchmark data")
    import h5py

    with h5py.File(path) as file:
        observations, actions = file["observations"][:20_000].astype(float), file["actions"][:20_000]
    env = envs.make(TASKS[maze]).unwrapped
    env.reset(seed=0)
    errors = []
    for row in np.random.default_rng(0).integers(0, 19_999, 150):
        env.set_state(observations[row, :15], observations[row, 15:])
        errors.append(np.abs(env.step(actions[row])[0] - observations[row + 1])[:15].max())
    # A step across a reset, or with a contact that rounding decides, cannot be repeated.
    assert np.quantile(errors, 0.95) < tolerance
