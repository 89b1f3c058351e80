"""Maze geometry as data: walls, start and goal of every maze, for building models and for drawing."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from gymnasium import spaces
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.spaces import Discrete
from gymnasium.utils import EzPickle

from vem.envs import import_robotics
from vem.errors import SimulatorError


@dataclass(frozen=True, eq=False)
class MazeLayout:
    """One maze in world coordinates. Cells are (row, column), row 0 being the first line of the map."""

    walls: np.ndarray
    """bool, (rows, columns): True where the cell is a wall."""
    cell_size: float
    origin: tuple[float, float]
    """World x, y of the center of cell (0, 0)."""
    row_step: float
    """World y from one row to the next: +cell_size in AntMaze, −cell_size in PointMaze."""
    start_cell: tuple[int, int]
    goal_cell: tuple[int, int]
    goal: tuple[float, float]
    """World x, y of the goal: fixed in PointMaze, the mean of the goals drawn at reset in AntMaze."""
    goal_radius: float
    """Success within this distance of the goal."""

    @property
    def start(self) -> tuple[float, float]:
        """World x, y of the center of the start cell."""
        return self.center(self.start_cell)

    @property
    def free_cells(self) -> list[tuple[int, int]]:
        """Cells without a wall, row by row."""
        return [(int(row), int(column)) for row, column in np.argwhere(~self.walls)]

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """World left, right, bottom, top of the whole map, outer walls included."""
        (x_first, y_first), last = (
            self.origin,
            self.center((self.walls.shape[0] - 1, self.walls.shape[1] - 1)),
        )
        half = self.cell_size / 2
        bottom, top = sorted((y_first, last[1]))
        return x_first - half, last[0] + half, bottom - half, top + half

    def center(self, cell: tuple[int, int]) -> tuple[float, float]:
        """Return the world x, y of a cell's center."""
        row, column = cell
        return float(self.origin[0] + column * self.cell_size), float(self.origin[1] + row * self.row_step)

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """Return the cell that holds a point of the world."""
        row = round((y - self.origin[1]) / self.row_step)
        return int(row), round((x - self.origin[0]) / self.cell_size)


# maze → name of the map in gymnasium-robotics, start cell, goal cell
_MAZES = {
    "umaze": ("U_MAZE", (1, 1), (3, 1)),
    "medium": ("MEDIUM_MAZE", (1, 1), (6, 6)),
    "large": ("LARGE_MAZE", (1, 1), (7, 9)),
}

ANT_CELL_SIZE = 4.0
ANT_GOAL_SPREAD = (0.25 * ANT_CELL_SIZE, 0.5 * 0.25 * ANT_CELL_SIZE)
"""D4RL's goal: center of the goal cell + U(0, first) + U(0, second), in each axis."""


def _walls(maze: str) -> np.ndarray:
    maps = import_robotics().envs.maze.maps
    return np.array(getattr(maps, _MAZES[maze][0])) == 1


def ant_layout(maze: str) -> MazeLayout:
    """Return D4RL's AntMaze: cells of 4, origin at the center of the start cell, y growing with the row."""
    _, start_cell, goal_cell = _MAZES[maze]
    origin = (-start_cell[1] * ANT_CELL_SIZE, -start_cell[0] * ANT_CELL_SIZE)
    mean_offset = sum(ANT_GOAL_SPREAD) / 2
    goal = (
        origin[0] + goal_cell[1] * ANT_CELL_SIZE + mean_offset,
        origin[1] + goal_cell[0] * ANT_CELL_SIZE + mean_offset,
    )
    return MazeLayout(_walls(maze), ANT_CELL_SIZE, origin, ANT_CELL_SIZE, start_cell, goal_cell, goal, 0.5)


def point_layout(maze: str) -> MazeLayout:
    """Return gymnasium-robotics' PointMaze: cells of 1, origin at the map's center, y falling by row."""
    walls = _walls(maze)
    rows, columns = walls.shape
    _, start_cell, goal_cell = _MAZES[maze]
    origin = (0.5 - columns / 2, rows / 2 - 0.5)
    goal = (origin[0] + goal_cell[1], origin[1] - goal_cell[0])
    return MazeLayout(walls, 1.0, origin, -1.0, start_cell, goal_cell, goal, 0.45)


def maze_layout(name: str) -> MazeLayout:
    """Return the layout of a maze environment, without making it.

    ``name`` is an environment id (``vem/AntMaze-Medium-v0``) or a task name (``antmaze-medium-play``).
    """
    words = name.lower().removeprefix("vem/").split("-")
    layouts = {"antmaze": ant_layout, "pointmaze": point_layout}
    if len(words) < 2 or words[0] not in layouts or words[1] not in _MAZES:
        raise SimulatorError(
            f"{name!r} is not a maze: expected AntMaze or PointMaze with umaze, medium or large, "
            "e.g. 'vem/AntMaze-Medium-v0' or 'pointmaze-large'."
        )
    return layouts[words[0]](words[1])


# What every maze environment shares: a model with walls, and a goal with reward 1 where the episode ends.


# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled names are not in its stubs)


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


# AntMaze with D4RL's physics, reset, goal and ending, from Gymnasium's own ant.


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


# PointMaze with one start and one goal, from gymnasium-robotics' own point and maps.


START_NOISE = 0.25
MAX_SPEED = 5.0
FRAME_SKIP = 5
_POINTMAZE_WALL_HEIGHT = 0.4
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
        super().__init__(model_path, point_layout(maze), _POINTMAZE_WALL_HEIGHT, FRAME_SKIP, 4, **rendering)

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


def create(name: str, **rendering: Any) -> MazeEnv:
    """Return the maze environment of this name: ``antmaze-umaze``, ``pointmaze-medium-discrete``."""
    robot, maze, *discrete = name.split("-")
    kinds = {"antmaze": AntMazeEnv, "pointmaze": DiscretePointMazeEnv if discrete else PointMazeEnv}
    return kinds[robot](maze, **rendering)
