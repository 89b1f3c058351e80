"""A noisy controller that walks a PointMaze from cell to cell: the policy behind the built-in data."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from vem.envs.layouts import MazeLayout

Cell = tuple[int, int]

CENTER_NOISE = 0.25
"""Starts and waypoints lie within this distance of a cell's center, in each axis."""
_SPEEDS = (1.0, 3.0)
_ACTION_NOISE = 0.5
_VELOCITY_GAIN = 0.8
_ARRIVED = 0.25


class WaypointBehavior:
    """Walks to a random cell nearby along a shortest route, then to another, at a random speed for each.

    A destination is at most half as many cells away as the goal is from the start.
    """

    def __init__(self, layout: MazeLayout, rng: np.random.Generator):
        self._layout = layout
        self._rng = rng
        routes = {cell: routes_from(layout, cell) for cell in layout.free_cells}
        self.max_moves = (len(routes[layout.start_cell][layout.goal_cell]) - 1) // 2
        self._nearby = {
            cell: [route for route in found.values() if 2 <= len(route) <= self.max_moves + 1]
            for cell, found in routes.items()
        }
        self._waypoints: deque[tuple[float, float]] = deque()
        self._speed = 0.0

    @property
    def has_arrived(self) -> bool:
        """Whether the destination has been reached, so that the next action leads to another."""
        return not self._waypoints

    def reset(self) -> None:
        """Forget the destination."""
        self._waypoints.clear()

    def act(self, observation: np.ndarray) -> Any:
        """Return clip(0.8·(v* − v) + 0.5·N(0, 1), ±1), v* pointing at the next waypoint."""
        x, y, x_velocity, y_velocity = observation.tolist()
        if not self._waypoints:
            self._choose_destination(x, y)
        to_x, to_y = self._waypoints[0][0] - x, self._waypoints[0][1] - y
        distance = math.hypot(to_x, to_y)
        if distance < _ARRIVED:
            self._waypoints.popleft()
        pace = self._speed / max(distance, 0.1)
        x_noise, y_noise = self._rng.standard_normal(2).tolist()
        push_x = _VELOCITY_GAIN * (to_x * pace - x_velocity) + _ACTION_NOISE * x_noise
        push_y = _VELOCITY_GAIN * (to_y * pace - y_velocity) + _ACTION_NOISE * y_noise
        return np.array((max(-1.0, min(1.0, push_x)), max(-1.0, min(1.0, push_y))), np.float32)

    def _choose_destination(self, x: float, y: float) -> None:
        nearby = self._nearby[self._layout.cell(x, y)]
        route = nearby[self._rng.integers(len(nearby))]
        self._speed = self._rng.uniform(*_SPEEDS)
        noise = self._rng.uniform(-CENTER_NOISE, CENTER_NOISE, (len(route), 2))
        points = np.array([self._layout.center(cell) for cell in route]) + noise
        self._waypoints = deque((x, y) for x, y in points[1:].tolist())


class PushBehavior(WaypointBehavior):
    """The same walk with full pushes: along each axis the way that the controller would push."""

    def act(self, observation: np.ndarray) -> Any:
        """Return the number of a push: 2 if it is forward in x, 1 if it is in y, or their sum."""
        x, y = (super().act(observation) > 0).astype(np.int64)
        return 2 * x + y


def behavior_in(env: Any, rng: np.random.Generator) -> WaypointBehavior:
    """Return the behavior behind the built-in data of this PointMaze."""
    return (PushBehavior if hasattr(env.action_space, "n") else WaypointBehavior)(env.layout, rng)


def routes_from(layout: MazeLayout, start: Cell) -> dict[Cell, list[Cell]]:
    """Return for every cell that can be reached a shortest route from ``start``, both ends included."""
    routes = {start: [start]}
    queue = deque([start])
    while queue:
        cell = row, column = queue.popleft()
        for step in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            if not layout.walls[step] and step not in routes:
                routes[step] = [*routes[cell], step]
                queue.append(step)
    return routes
