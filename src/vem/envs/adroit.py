"""The Adroit hand with D4RL's rewards and endings, around gymnasium-robotics' AdroitHand environments."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np

from vem.envs.robotics import import_robotics

_PEN_DROPPED = 0.075


class PalmDistanceCost(gymnasium.Wrapper):
    """Door, hammer, relocate: −0.1·‖palm − object‖ in the reward, as in D4RL.

    gymnasium-robotics' dense reward has +0.1·‖palm − object‖, so twice the distance is taken off.
    """

    def __init__(self, env: gymnasium.Env, palm_to_object: str):
        super().__init__(env)
        self._palm_to_object = _DISTANCES[palm_to_object]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance one step with D4RL's reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = float(reward) - 0.2 * float(np.linalg.norm(self._palm_to_object(self.env.unwrapped)))
        return observation, reward, terminated, truncated, _plain(info)


class EndWhenDropped(gymnasium.Wrapper):
    """Pen: the episode ends when the pen falls below the hand (object z < 0.075), as in D4RL."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance one step with D4RL's ending."""
        observation, reward, _, truncated, info = self.env.step(action)
        hand: Any = self.env.unwrapped
        dropped = bool(hand.data.xpos[hand.obj_body_id, 2] < _PEN_DROPPED)
        return observation, float(reward), dropped, truncated, _plain(info)


def _door_distance(hand: Any) -> np.ndarray:
    return hand.data.site_xpos[hand.grasp_site_id] - hand.data.site_xpos[hand.handle_site_id]


def _tool_distance(hand: Any) -> np.ndarray:
    return hand.data.site_xpos[hand.S_grasp_site_id] - hand.data.xpos[hand.obj_body_id]


_DISTANCES = {"door": _door_distance, "hammer": _tool_distance, "relocate": _tool_distance}


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    return info | {"success": bool(info["success"])}


def make_adroit(task: str, **kwargs: Any) -> gymnasium.Env:
    """Return the Adroit environment of ``task``: door, hammer, relocate or pen."""
    import_robotics()
    module = importlib.import_module(f"gymnasium_robotics.envs.adroit_hand.adroit_{task}")
    env = getattr(module, f"AdroitHand{task.capitalize()}Env")(reward_type="dense", **kwargs)
    return EndWhenDropped(env) if task == "pen" else PalmDistanceCost(env, task)
