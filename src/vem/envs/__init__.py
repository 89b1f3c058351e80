"""The benchmark's environments on today's Gymnasium and MuJoCo, registered and loaded on first use."""

from vem.envs.layouts import MazeLayout, maze_layout
from vem.envs.registration import environment_ids, make, register

__all__ = ["MazeLayout", "environment_ids", "make", "maze_layout", "register"]
