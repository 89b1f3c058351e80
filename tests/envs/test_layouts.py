import numpy as np
import pytest

from vem.envs.mazes import maze_layout
from vem.errors import SimulatorError

NAMES = [f"vem/{robot}-{maze}-v0" for robot in ("AntMaze", "PointMaze") for maze in ("UMaze", "Medium", "Large")]


@pytest.mark.parametrize("name", NAMES)
def test_geometry_agrees_with_itself(name):
    layout = maze_layout(name)
    assert layout.walls[0].all()
    assert layout.walls[:, 0].all()
    assert layout.walls[-1].all()
    assert layout.walls[:, -1].all()
    assert not layout.walls[layout.start_cell]
    assert not layout.walls[layout.goal_cell]
    for cell in layout.free_cells:
        assert layout.cell(*layout.center(cell)) == cell
    assert layout.cell(*layout.start) == layout.start_cell
    assert layout.cell(*layout.goal) == layout.goal_cell
    left, right, bottom, top = layout.extent
    rows, columns = layout.walls.shape
    assert right - left == pytest.approx(columns * layout.cell_size)
    assert top - bottom == pytest.approx(rows * layout.cell_size)
    centers = np.array([layout.center((row, column)) for row in range(rows) for column in range(columns)])
    assert centers.min(axis=0) - layout.cell_size / 2 == pytest.approx([left, bottom])
    assert centers.max(axis=0) + layout.cell_size / 2 == pytest.approx([right, top])


def test_antmaze_is_laid_out_as_in_d4rl():
    layout = maze_layout("antmaze-large-diverse")
    assert layout.walls.shape == (9, 12)
    assert layout.start == (0.0, 0.0)
    assert layout.cell_size == 4.0
    assert layout.center(layout.goal_cell) == (32.0, 24.0)
    assert layout.goal == (32.75, 24.75)
    assert layout.goal_radius == 0.5
    assert maze_layout("antmaze-medium-play").center((6, 6)) == (20.0, 20.0)
    assert maze_layout("antmaze-umaze").center((3, 1)) == (0.0, 8.0)


def test_pointmaze_is_laid_out_as_in_gymnasium_robotics():
    layout = maze_layout("pointmaze-medium")
    assert layout.start == (-2.5, 2.5)
    assert layout.goal == (2.5, -2.5)
    assert layout.cell_size == 1.0
    assert layout.walls[layout.cell(-3.5, 3.5)]
    assert not layout.walls[layout.cell(-2.5, 2.5)]


@pytest.mark.parametrize("name", ["hopper-medium", "antmaze", "antmaze-huge-v0", "vem/AdroitDoor-v0"])
def test_what_is_no_maze_is_refused(name):
    with pytest.raises(SimulatorError, match="not a maze"):
        maze_layout(name)
