"""Maze geometry as data: walls, start and goal of every maze, for building models and for drawing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vem.envs.robotics import import_robotics
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
