"""Recorded episodes are repeated from their first observation and must give the recorded rewards.

Hopper and HalfCheetah: the observation is the state but for the root's x, on which nothing depends, and for Hopper
speeds beyond ±10, which an episode does not start with. Adroit: the hand's speeds are not observed, so only the
first step of an episode has a known state: the reset pose at rest, with the door, the nail's board or the target
orientation placed where the observation says. The human pen demonstrations start there too, but come from another
version of the simulator and drift apart after a few steps. Walker2d and relocate have no trajectory here.
"""

from pathlib import Path

import numpy as np
import pytest

from vem import envs

DATA = Path(__file__).parents[2] / "../shared/data"


def recorded_episodes(name, num_episodes, num_steps):
    path = DATA / f"{name}.hdf5"
    if not path.exists():
        pytest.skip("needs the recorded benchmark data")
    import h5py

    with h5py.File(path) as file:
        ends = np.flatnonzero(file["terminals"][:] | file["timeouts"][:])
        for start in [0, *(ends[: num_episodes - 1] + 1)]:
            rows = slice(start, start + num_steps)
            yield file["observations"][start].astype(float), file["actions"][rows], file["rewards"][rows]


def place_door(hand, observation, reset_observation):
    hand.model.body_pos[hand.door_body_id] += observation[32:35] - reset_observation[32:35]


def place_nail(hand, observation, reset_observation):
    hand.model.body_pos[hand.target_body_id] += observation[42:45] - reset_observation[42:45]


def place_target_pen(hand, observation, reset_observation):
    import mujoco

    before, after = (vector[36:39] / np.linalg.norm(vector[36:39]) for vector in (reset_observation, observation))
    rotation, turned = np.append(1 + before @ after, np.cross(before, after)), np.zeros(4)
    mujoco.mju_mulQuat(turned, rotation / np.linalg.norm(rotation), hand.model.body_quat[hand.target_obj_body_id])
    hand.model.body_quat[hand.target_obj_body_id] = turned


@pytest.mark.parametrize(("name", "num_steps"), [("hopper-medium", 6), ("halfcheetah-medium", 3)])
def test_locomotion_trajectories(name, num_steps):
    env = envs.make(name).unwrapped
    env.reset(seed=0)
    num_positions = env.model.nq - 1
    for observation, actions, rewards in recorded_episodes(name, 10, num_steps):
        assert np.abs(observation[num_positions:]).max() < 10
        env.set_state(np.append(0.0, observation[:num_positions]), observation[num_positions:])
        repeated = [env.step(action)[1] for action in actions]
        np.testing.assert_allclose(repeated, rewards, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "num_steps", "place"),
    [
        ("door-expert", 15, place_door),
        ("door-human", 15, place_door),
        ("hammer-expert", 15, place_nail),
        ("pen-expert", 10, place_target_pen),
        ("pen-human", 3, place_target_pen),
    ],
)
def test_adroit_trajectories(name, num_steps, place):
    env = envs.make(name)
    hand = env.unwrapped
    for observation, actions, rewards in recorded_episodes(name, 10, num_steps):
        reset_observation, _ = env.reset(seed=0)
        place(hand, observation, reset_observation)
        hand.set_state(hand.init_qpos, hand.init_qvel)
        repeated = [env.step(action)[1] for action in actions]
        np.testing.assert_allclose(repeated, rewards, atol=1e-4)
