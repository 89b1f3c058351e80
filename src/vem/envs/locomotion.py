"""Hopper, Walker2d and HalfCheetah as D4RL scored them: Gymnasium's v5 classes set to equal its v4."""

# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled names are not in its stubs)

from __future__ import annotations

from typing import Any

import mujoco
from gymnasium.envs.mujoco import half_cheetah_v5, hopper_v5, walker2d_v5


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
