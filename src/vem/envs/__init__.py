"""The benchmark's environments on today's Gymnasium and MuJoCo.

Importing this package registers their ids with Gymnasium, if it is installed; MuJoCo is loaded when the first one is
made.
"""

from vem.envs.layouts import MazeLayout, maze_layout
from vem.envs.registration import environment_ids, make, register
from vem.extras import is_installed

__all__ = ["MazeLayout", "environment_ids", "make", "maze_layout"]

if is_installed("gymnasium"):
    register()
