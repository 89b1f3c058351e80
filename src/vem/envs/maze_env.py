"""What every maze environment shares: a model with walls, and a goal with reward 1 where the episode ends."""

# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled names are not in its stubs)

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from typing import Any

import mujoco
import numpy as np
from gymnasium import spaces
from gymnasium.envs.mujoco import MujocoEnv

from vem.envs.layouts import MazeLayout


class MazeEnv(MujocoEnv):
    """Reach the goal: reward 1 and termination within ``layout.goal_radius`` of it, else reward 0.

    The observation is qpos and qvel, with x and y first. ``info`` holds ``success`` and ``goal``. Subclasses
    give the robot's model (``edit_model``), its reset (``reset_model``) and the goal (``draw_goal``).
    """

    def __init__(
        self,
        model_path: str,
        layout: MazeLayout,
        wall_height: float,
        frame_skip: int,
        observation_size: int,
        render_mode: str | None = None,
        **rendering: Any,
    ):
        self.layout = layout
        self.goal = np.array(layout.goal)
        self._wall_height = wall_height
        super().__init__(
            model_path,
            frame_skip,
            spaces.Box(-np.inf, np.inf, (observation_size,), np.float64),
            render_mode=render_mode,
            **rendering,
        )
        self._goal_site = self.model.site("goal").id

    def edit_model(self, root: ElementTree.Element) -> None:
        """Change the robot's MJCF in place before the walls are added."""

    def draw_goal(self) -> np.ndarray:
        """Return the x, y of a new episode's goal."""
        return np.array(self.layout.goal)

    def observe(self) -> np.ndarray:
        """Return qpos and qvel in one vector."""
        return np.concatenate((self.data.qpos, self.data.qvel))

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Advance ``frame_skip`` ticks of the simulation."""
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, self.frame_skip)
        observation = self.observe()
        distance = math.hypot(observation[0] - self.goal[0], observation[1] - self.goal[1])
        success = distance <= self.layout.goal_radius
        if self.render_mode == "human":
            self.render()
        return observation, float(success), success, False, {"success": success, "goal": self.goal.copy()}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw a start and a goal."""
        observation, info = super().reset(seed=seed, options=options)
        self.goal = self.draw_goal()
        self.model.site_pos[self._goal_site, :2] = self.goal
        return observation, info | {"success": False, "goal": self.goal.copy()}

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        root = ElementTree.parse(self.fullpath).getroot()
        self.edit_model(root)
        world = root.find("worldbody")
        assert world is not None, f"{self.fullpath} has no worldbody"
        half, half_height = self.layout.cell_size / 2, self._wall_height / 2
        for row, column in np.argwhere(self.layout.walls):
            x, y = self.layout.center((row, column))
            ElementTree.SubElement(
                world,
                "geom",
                name=f"wall_{row}_{column}",
                type="box",
                pos=f"{x} {y} {half_height}",
                size=f"{half} {half} {half_height}",
                contype="1",
                conaffinity="1",
                rgba="0.7 0.5 0.3 1",
            )
        radius = self.layout.goal_radius
        x, y = self.layout.goal
        ElementTree.SubElement(
            world,
            "site",
            name="goal",
            type="cylinder",
            pos=f"{x} {y} 0",
            size=f"{radius} 0.02",
            rgba="0.9 0.1 0.1 0.7",
        )
        model = mujoco.MjModel.from_xml_string(ElementTree.tostring(root, encoding="unicode"))
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self.width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self.height)
        return model, mujoco.MjData(model)
