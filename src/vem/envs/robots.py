"""The Adroit hand with D4RL's rewards and endings, around gymnasium-robotics' AdroitHand environments.

The dense rewards are written out here: those of gymnasium-robotics had the sign of 0.1·‖palm − object‖ flipped for
door, hammer and relocate in some releases and not in others, under the same environment ids.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import mujoco
from gymnasium.envs.mujoco import half_cheetah_v5, hopper_v5, walker2d_v5

from vem.envs import import_robotics

_PEN_DROPPED = 0.075


def door_reward(hand: Any) -> float:
    """−0.1·‖palm − handle‖ − 0.1·(angle − 1.57)² − 10⁻⁵·‖q̇‖², +2, +8, +10 above angles of 0.2, 1, 1.35."""
    data = hand.data
    angle = float(data.qpos[hand.door_hinge_addrs])
    reach = math.dist(data.site_xpos[hand.grasp_site_id], data.site_xpos[hand.handle_site_id])
    cost = 0.1 * reach + 0.1 * (angle - 1.57) ** 2 + 1e-5 * float(data.qvel @ data.qvel)
    return 2 * (angle > 0.2) + 8 * (angle > 1.0) + 10 * (angle > 1.35) - cost


def hammer_reward(hand: Any) -> float:
    """−0.1·‖palm − hammer‖ − ‖head − nail‖ − 10·‖nail − goal‖ − 0.01·‖q̇‖.

    +2 for a lifted hammer, +25 and +75 for a nail within 0.02 and 0.01 of its goal.
    """
    data = hand.data
    palm, head = data.site_xpos[hand.S_grasp_site_id], data.site_xpos[hand.tool_site_id]
    nail, goal = data.site_xpos[hand.target_obj_site_id], data.site_xpos[hand.goal_site_id]
    hammer = data.xpos[hand.obj_body_id]
    depth = math.dist(nail, goal)
    cost = 0.1 * math.dist(palm, hammer) + math.dist(head, nail) + 10 * depth + 0.01 * math.hypot(*data.qvel)
    is_lifted = hammer[2] > 0.04 and head[2] > 0.04
    return 2 * is_lifted + 25 * (depth < 0.02) + 75 * (depth < 0.01) - cost


def relocate_reward(hand: Any) -> float:
    """−0.1·‖palm − ball‖; off the table 1 − 0.5·‖palm − target‖ − 0.5·‖ball − target‖.

    +10 and +20 for a ball within 0.1 and 0.05 of its target.
    """
    data = hand.data
    ball = data.xpos[hand.obj_body_id]
    palm, target = data.site_xpos[hand.S_grasp_site_id], data.site_xpos[hand.target_obj_site_id]
    distance = math.dist(ball, target)
    carrying = (ball[2] > 0.04) * (1 - 0.5 * math.dist(palm, target) - 0.5 * distance)
    return float(carrying + 10 * (distance < 0.1) + 20 * (distance < 0.05) - 0.1 * math.dist(palm, ball))


class DenseReward(gymnasium.Wrapper):
    """The environment with another reward, a function of the simulated hand after the step."""

    def __init__(self, env: gymnasium.Env, reward: Callable[[Any], float]):
        super().__init__(env)
        self._reward = reward

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance one step."""
        observation, _, terminated, truncated, info = self.env.step(action)
        reward = float(self._reward(self.env.unwrapped))
        return observation, reward, terminated, truncated, info | {"success": bool(info["success"])}


class EndWhenDropped(gymnasium.Wrapper):
    """Pen: the episode ends when the pen falls below the hand (z < 0.075)."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance one step."""
        observation, reward, _, truncated, info = self.env.step(action)
        hand: Any = self.env.unwrapped
        is_dropped = bool(hand.data.xpos[hand.obj_body_id, 2] < _PEN_DROPPED)
        return observation, float(reward), is_dropped, truncated, info | {"success": bool(info["success"])}


def _adroit(task: str, reward: Callable[[Any], float] | None, **rendering: Any) -> gymnasium.Env:
    import_robotics()
    module = importlib.import_module(f"gymnasium_robotics.envs.adroit_hand.adroit_{task}")
    env = getattr(module, f"AdroitHand{task.capitalize()}Env")(reward_type="dense", **rendering)
    return DenseReward(env, reward) if reward else EndWhenDropped(env)


# Hopper, Walker2d and HalfCheetah as D4RL scored them: Gymnasium's v5 classes set to equal its v4.


# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled names are not in its stubs)


class HopperEnv(hopper_v5.HopperEnv):
    """Hopper with a bonus of 1 for every step, the last one included."""

    @property
    def healthy_reward(self) -> float:
        """The bonus; v5 withholds it on the step that ends the episode."""
        return 1.0


class Walker2dEnv(walker2d_v5.Walker2dEnv):
    """Walker2d with a bonus of 1 for every step and v4's model: v5 changed the friction of one foot."""

    def __init__(self, **kwargs: Any):
        super().__init__(xml_file="walker2d.xml", **kwargs)

    @property
    def healthy_reward(self) -> float:
        """The bonus; v5 withholds it on the step that ends the episode."""
        return 1.0


class HalfCheetahEnv(half_cheetah_v5.HalfCheetahEnv):
    """HalfCheetah, loaded without a deprecation notice that users cannot act on."""

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        # MuJoCo 4 prints the notice and writes it to a file in the working directory.
        handler = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(_ignore_settotalmass)
        try:
            return super()._initialize_simulation()
        finally:
            mujoco.set_mju_user_warning(handler)


def _ignore_settotalmass(message: str) -> None:
    if "settotalmass" not in message:
        raise RuntimeError(message)


_ENVIRONMENTS: dict[str, Callable[..., gymnasium.Env]] = {
    "door": partial(_adroit, "door", door_reward),
    "hammer": partial(_adroit, "hammer", hammer_reward),
    "relocate": partial(_adroit, "relocate", relocate_reward),
    "pen": partial(_adroit, "pen", None),
    "hopper": HopperEnv,
    "walker2d": Walker2dEnv,
    "halfcheetah": HalfCheetahEnv,
}


def create(name: str, **rendering: Any) -> gymnasium.Env:
    """Return the environment of this name, which ``vem.tasks`` has the facts of."""
    return _ENVIRONMENTS[name](**rendering)
