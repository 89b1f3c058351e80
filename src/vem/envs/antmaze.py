"""AntMaze with D4RL's physics, reset, goal and ending, from Gymnasium's own ant."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
from gymnasium.utils import EzPickle

from vem.envs.layouts import ANT_GOAL_SPREAD, ant_layout
from vem.envs.maze_env import MazeEnv

_WALL_HEIGHT = 2.0
_RESET_NOISE = 0.1


class AntMazeEnv(MazeEnv, EzPickle):
    """An ant in a maze; observation 29 = qpos (15) and qvel (14), x and y first, 0.1 s a step.

    The goal is drawn at every reset. D4RL drew one for each environment object, so that an evaluation had a
    single goal; give ``goal`` (x, y) for that, e.g. a file's ``infos/goal``.
    """

    metadata = {"render_modes": ["human", "rgb_array", "depth_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, maze: str = "umaze", goal: tuple[float, float] | None = None, **rendering: Any):
        EzPickle.__init__(self, maze, goal, **rendering)
        self._fixed_goal = goal
        super().__init__("ant.xml", ant_layout(maze), _WALL_HEIGHT, 5, 29, **rendering)

    def edit_model(self, root: ElementTree.Element) -> None:
        """Set D4RL's time step, contact softness and motor strength."""
        for path, changes in (
            ("option", {"timestep": "0.02"}),
            ("default/geom", {"solref": "0.02 1", "solimp": "0.8 0.8 0.01"}),
            ("actuator/motor", {"gear": "30"}),
        ):
            for element in root.findall(path):
                element.attrib.update(changes)

    def reset_model(self) -> np.ndarray:
        """Put the ant in the start cell: qpos₀ + U(−0.1, 0.1), qvel 0.1·N(0, 1)."""
        qpos = self.init_qpos + self.np_random.uniform(-_RESET_NOISE, _RESET_NOISE, self.model.nq)
        qvel = self.init_qvel + _RESET_NOISE * self.np_random.standard_normal(self.model.nv)
        self.set_state(qpos, qvel)
        return self.observe()

    def draw_goal(self) -> np.ndarray:
        """Return the fixed goal, or the center of the goal cell + U(0, 1) + U(0, 0.5) in each axis."""
        if self._fixed_goal is not None:
            return np.array(self._fixed_goal, np.float64)
        wide, narrow = ANT_GOAL_SPREAD
        noise = self.np_random.uniform(0, wide, 2) + self.np_random.uniform(0, narrow, 2)
        return np.array(self.layout.center(self.layout.goal_cell)) + noise
