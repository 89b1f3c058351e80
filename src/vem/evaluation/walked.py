"""AntMaze data by D4RL's recipe: a controller leads a walking ant from waypoint to waypoint through the maze.

The next waypoint is in the next cell of a shortest route to the recording's own target; actions get noise of 0.2. The
ant is not stopped where it was going: every recording lasts one step longer than an evaluation episode. Rewards and
terminals are those of the one evaluation goal, whatever the target was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vem.data.recorder import COLUMNS, Recipe, RecordEpisode, Report, write_recording
from vem.errors import DataError
from vem.evaluation.walkers import Walk, load_walker
from vem.tasks import TASKS, Task, find_task

WALKED_TASKS = tuple(name for name in TASKS if name.startswith("antmaze-"))
DEFAULT_NUM_ROWS = 1_000_000
ACTION_NOISE = 0.2
WAYPOINT_NOISE = 1.0
"""A waypoint is the cell's center + U(0, 1) in each axis, and so is a start."""
TARGETS = {
    "medium": ((2, 6), (5, 1), (6, 5)),
    "large": ((1, 6), (3, 5), (3, 10), (5, 2), (7, 4), (7, 6), (7, 9)),
}
"""D4RL's hand-picked target cells (row, column) of the ``play`` datasets."""


def write_walked(
    path: str | Path,
    name: str,
    walker: str | Path,
    num_rows: int = DEFAULT_NUM_ROWS,
    seed: int = 0,
    report: Report = lambda what, done, total: None,
) -> Path:
    """Record ``name`` (``antmaze-medium-play``, …) and return the file's path; equal arguments give equal rows.

    ``walker`` is the file of a policy that walks in a direction (``vem.evaluation.walkers``).
    """
    task = walked_task(name)
    loaded = load_walker(walker)
    targets = "hand-picked" if task.name.endswith("-play") else "random"
    ends = "start and target fixed" if task.name == "antmaze-umaze" else f"random starts and {targets} targets"
    text = (
        f"waypoint controller over the walker {loaded.name}, action noise {ACTION_NOISE}, {ends}, rewards of the "
        "evaluation goal; D4RL's recipe"
    )
    recipe = Recipe(task, text, num_rows, seed, loaded.fingerprint)
    return write_recording(path, recipe, walking(task, loaded.walk), report=report)


def walking(task: Task, walk: Walk) -> RecordEpisode:
    """What records the episodes of a task: D4RL's columns, ``infos/goal``, and ``infos/target``, where it was sent."""

    def record(env: Any, seed: int, episode: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([seed, episode])
        base = env.unwrapped
        env.reset(seed=int(rng.integers(2**31)))
        start, target = draw_ends(task, base.layout, rng)
        if start is not None:
            qpos = base.data.qpos.copy()
            qpos[:2] = start
            base.set_state(qpos, base.data.qvel.copy())
        controller = WaypointController(base.layout, target, rng)
        count = task.max_steps + 1
        observations, actions = np.zeros((count + 1, task.observation_size)), np.zeros((count, task.action_size))
        observations[0] = base.observe()
        for step in range(count):
            action = walk(observations[step], controller.way(observations[step, :2]))
            actions[step] = np.clip(action + ACTION_NOISE * rng.standard_normal(task.action_size), -1, 1)
            observations[step + 1] = base.step(actions[step].astype(np.float32))[0]
        goal = np.array(base.layout.goal)
        reached = np.hypot(*(observations[1:, :2] - goal).T) <= base.layout.goal_radius
        rows = {
            "observations": observations[:-1],
            "actions": actions,
            "rewards": reached,
            "terminals": reached,
            "timeouts": np.arange(count) == count - 1,
        }
        ends = {"infos/goal": goal, "infos/target": target}
        return {column: np.asarray(rows[column], dtype) for column, dtype in COLUMNS.items()} | {
            column: np.tile(np.asarray(point, np.float32), (count, 1)) for column, point in ends.items()
        }

    return record


def draw_ends(task: Task, layout: Any, rng: np.random.Generator) -> tuple[np.ndarray | None, np.ndarray]:
    """Start (None: the environment's own) and target of a recording, as the task's name says."""
    from vem.envs.layouts import ANT_GOAL_SPREAD

    free = layout.free_cells
    if task.name == "antmaze-umaze":
        start, cells = None, [layout.goal_cell]
    else:
        cells = list(TARGETS[task.name.split("-")[1]]) if task.name.endswith("-play") else free
        starts = [cell for cell in free if cell not in cells] if task.name.endswith("-play") else free
        start = np.array(layout.center(starts[rng.integers(len(starts))])) + rng.uniform(0, WAYPOINT_NOISE, 2)
    center = np.array(layout.center(cells[rng.integers(len(cells))]))
    return start, center + sum(rng.uniform(0, spread, 2) for spread in ANT_GOAL_SPREAD)


class WaypointController:
    """The upper half: where to walk next on a shortest route of cells to a target."""

    def __init__(self, layout: Any, target: np.ndarray, rng: np.random.Generator) -> None:
        from vem.envs.waypoints import routes_from

        self._layout, self._target, self._rng = layout, target, rng
        self._routes = routes_from(layout, layout.cell(*target))
        self._cell = layout.cell(*target)

    def way(self, position: np.ndarray) -> np.ndarray:
        """Waypoint − position."""
        cell = self._layout.cell(*position)
        if cell in self._routes:  # an ant that leans over a wall is still where it was
            self._cell = cell
        route = self._routes[self._cell]
        if len(route) <= 2:
            return self._target - position
        noise = self._rng.uniform(0, WAYPOINT_NOISE, 2)
        return np.array(self._layout.center(route[-2])) + noise - position


def count_arrivals(path: str | Path) -> tuple[int, int]:
    """How many recordings of such a file came within 0.5 m of where they were sent, and how many there are."""
    import h5py

    with h5py.File(path) as file:
        columns = [np.asarray(file[name]) for name in ("observations", "infos/target", "timeouts")]
    observations, targets, timeouts = columns
    ends = np.flatnonzero(timeouts)
    ends = ends if len(ends) and ends[-1] == len(timeouts) - 1 else np.append(ends, len(timeouts) - 1)
    near = np.hypot(*(observations[:, :2] - targets).T) <= 0.5
    arrived = np.add.reduceat(near, np.concatenate([[0], ends[:-1] + 1])) > 0
    return int(arrived.sum()), len(arrived)


def walked_task(name: str) -> Task:
    """The task of that name; DataError lists those that can be made."""
    task = find_task(name)
    if task is None or task.name not in WALKED_TASKS:
        raise DataError(f"{name!r} is no AntMaze data: expected one of {', '.join(WALKED_TASKS)}.")
    return task
