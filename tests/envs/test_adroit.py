import numpy as np
import pytest

from vem import envs
from vem.tasks import find_task, normalized_score


def episode(env, seed):
    env.reset(seed=seed)
    total, length, is_over = 0.0, 0, False
    while not is_over:
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        total, length, is_over = total + reward, length + 1, terminated or truncated
    return total, length, terminated


@pytest.mark.parametrize(
    ("name", "num_episodes", "tolerance"), [("door", 10, 1.5), ("hammer", 10, 8.0), ("relocate", 15, 3.0)]
)
def test_a_random_policy_returns_d4rls_minimum(name, num_episodes, tolerance):
    task = find_task(f"{name}-expert")
    env = envs.make(task.environment)
    env.action_space.seed(0)
    outcomes = [episode(env, seed) for seed in range(num_episodes)]
    assert np.mean([total for total, _, _ in outcomes]) == pytest.approx(task.minimum, abs=tolerance)
    assert {length for _, length, _ in outcomes} == {200}


def test_a_random_policy_drops_the_pen_and_scores_near_zero():
    task = find_task("pen-expert")
    env = envs.make(task.environment)
    env.action_space.seed(0)
    outcomes = [episode(env, seed) for seed in range(60)]
    assert abs(normalized_score(task, np.mean([total for total, _, _ in outcomes]))) < 4.0
    dropped = [length for _, length, terminated in outcomes if terminated]
    kept = [length for _, length, terminated in outcomes if not terminated]
    assert len(dropped) > 10
    assert max(dropped) <= 100
    assert set(kept) <= {100}


def test_the_pen_episode_ends_below_the_hand():
    env = envs.make("pen-human")
    env.reset(seed=0)
    hand = env.unwrapped
    assert env.step(np.zeros(24))[2] is False
    qpos = hand.data.qpos.copy()
    qpos[hand.model.joint("OBJTx").qposadr] += 0.3  # the pen's own x axis points down
    hand.set_state(qpos, np.zeros_like(hand.data.qvel))
    _, reward, terminated, _, info = env.step(np.zeros(24))
    assert hand.data.xpos[hand.obj_body_id, 2] < 0.075
    assert terminated is True
    assert info["success"] is False
    assert reward < -4


def door_distance(hand):
    return np.linalg.norm(hand.data.site_xpos[hand.grasp_site_id] - hand.data.site_xpos[hand.handle_site_id])


def object_distance(hand):
    return np.linalg.norm(hand.data.site_xpos[hand.S_grasp_site_id] - hand.data.xpos[hand.obj_body_id])


def open_door(hand, amount):
    hand.data.qpos[hand.door_hinge_addrs] = 1.6 * amount


def drive_nail(hand, amount):
    hand.data.qpos[hand.model.joint("nail_dir").qposadr] = 0.1 * amount


def carry_ball(hand, amount):
    ball, target = hand.data.xpos[hand.obj_body_id], hand.data.site_xpos[hand.target_obj_site_id]
    hand.model.body_pos[hand.obj_body_id] += amount * (target - ball)


@pytest.mark.parametrize(
    ("name", "distance", "progress", "num_bonuses"),
    [
        ("door", door_distance, open_door, 4),
        ("hammer", object_distance, drive_nail, 3),
        ("relocate", object_distance, carry_ball, 4),
    ],
)
def test_rewards_differ_from_gymnasium_robotics_only_in_the_reach(name, distance, progress, num_bonuses):
    """Releases differ in the sign of 0.1·‖palm − object‖; ours is a cost in all of them."""
    env = envs.make(f"{name}-expert")
    hand = env.unwrapped
    rng = np.random.default_rng(0)
    levels = set()
    for amount in np.linspace(0, 1, 25):
        env.reset(seed=0)
        progress(hand, amount)
        hand.set_state(hand.data.qpos.copy(), hand.data.qvel.copy())
        state = hand.data.qpos.copy(), hand.data.qvel.copy()
        action = rng.uniform(-1, 1, env.action_space.shape)
        theirs = hand.step(action)[1]
        hand.set_state(*state)
        ours = env.step(action)[1]
        difference = theirs - ours
        assert min(abs(difference), abs(difference - 0.2 * distance(hand))) < 1e-5
        levels.add(round(ours / 4))
    assert len(levels) >= num_bonuses - 1
