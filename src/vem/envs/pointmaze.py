"""PointMaze with one start and one goal, from gymnasium-robotics' own point and maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.utils import EzPickle

from vem.envs.layouts import point_layout
from vem.envs.maze_env import MazeEnv
from vem.envs.robotics import import_robotics

START_NOISE = 0.25
MAX_SPEED = 5.0
FRAME_SKIP = 5
_WALL_HEIGHT = 0.4
PUSHES = np.array([(x, y) for x in (-1, 1) for y in (-1, 1)], np.float32)
"""The forces of the four discrete actions."""


class PointMazeEnv(MazeEnv, EzPickle):
    """A ball pushed through a maze; observation x, y and their velocities, 0.05 s a step.

    One tick of the simulation is one step of gymnasium-robotics' PointMaze; here an action holds for five.
    """

    metadata = {"render_modes": ["human", "rgb_array", "depth_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, maze: str = "medium", **rendering: Any):
        EzPickle.__init__(self, maze, **rendering)
        package = Path(str(import_robotics().__file__)).parent
        model_path = str(package / "envs" / "assets" / "point" / "point.xml")
        super().__init__(model_path, point_layout(maze), _WALL_HEIGHT, FRAME_SKIP, 4, **rendering)

    def reset_model(self) -> np.ndarray:
        """Put the ball at rest in the start cell: its center + U(−0.25, 0.25) in each axis."""
        noise = self.np_random.uniform(-START_NOISE, START_NOISE, 2)
        self.set_state(np.array(self.layout.start) + noise, np.zeros(2))
        return self.observe()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Limit the speed, then advance."""
        np.clip(self.data.qvel, -MAX_SPEED, MAX_SPEED, out=self.data.qvel)
        return super().step(action)


class DiscretePointMazeEnv(PointMazeEnv):
    """PointMaze with four actions: a full push either way along each axis, both at once.

    There is no action that rests, so that a policy that takes its likeliest action cannot stand still for ever.
    """

    def __init__(self, maze: str = "medium", **rendering: Any):
        super().__init__(maze, **rendering)
        self.action_space = Discrete(len(PUSHES))

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Push, then advance."""
        return super().step(PUSHES[int(action)])
