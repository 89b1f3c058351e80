"""The built-in data: PointMaze recorded on the spot by a noisy waypoint controller between random cells.

Only the one evaluation goal is rewarded, and no episode visits both the start cell and the goal: the task is
solved only by a policy that stitches trajectories together.
"""

from __future__ import annotations

import math
import shutil
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.data.dataset import Dataset
from vem.data.files import read_hdf5
from vem.envs.mazes import MazeLayout
from vem.errors import DataError, SettingsError, require
from vem.storage import cache_directory, replace_file
from vem.tasks import TASKS, Task, find_task

if TYPE_CHECKING:
    from vem.envs.mazes import PointMazeEnv


DEFAULT_NAME = "pointmaze-medium"
DEFAULT_NUM_ROWS = 100_000

RECIPE = "noisy waypoint controller between random cells, one rewarded goal, no episode from start to goal"
_RECIPE_VERSION = 1
_MAX_EPISODE_STEPS = 100
_LEAST_ROW_BYTES = 30
"""A little less than a compressed row takes."""
_ELSEWHERE = "choose another place, or set VEM_CACHE for built-in data."
_COLUMNS = {
    "observations": np.float32,
    "actions": np.float32,
    "rewards": np.float32,
    "terminals": np.bool_,
    "timeouts": np.bool_,
    "next_observations": np.float32,
}


def record_maze(name: str = DEFAULT_NAME, num_rows: int = DEFAULT_NUM_ROWS, seed: int = 0) -> dict[str, np.ndarray]:
    """Return ``num_rows`` recorded steps as D4RL's columns; equal arguments give equal rows.

    ``timeouts`` marks an episode that arrived where it was going, or was cut after 100 steps;
    ``terminals`` one that reached the goal. ``next_observations`` holds what followed each step.
    """
    from vem import envs

    task = _maze_task(name)
    if num_rows < 1:
        raise SettingsError(f"num_rows is {num_rows}: a trajectory needs at least one row.")
    if seed < 0:
        raise SettingsError(f"seed is {seed}: expected zero or a positive number.")
    env: Any = envs.make(task.environment)
    columns: dict[str, list[Any]] = {column: [] for column in _COLUMNS}
    for episode in _episodes(env.unwrapped, np.random.default_rng(seed)):
        rows = episode[: num_rows - len(columns["rewards"])]
        # A last episode that is cut was cut by the trajectory, not by the task.
        rows[-1] = rows[-1] | {"timeouts": not rows[-1]["terminals"]}
        for column, values in columns.items():
            values.extend(row[column] for row in rows)
        if len(columns["rewards"]) == num_rows:
            break
    env.close()
    types = _COLUMNS | {"actions": env.action_space.dtype}
    return {column: np.array(columns[column], dtype) for column, dtype in types.items()}


def _episodes(env: PointMazeEnv, rng: np.random.Generator) -> Iterator[list[dict[str, Any]]]:

    layout = env.layout
    behavior = behavior_in(env, rng)
    cells = np.array([layout.center(cell) for cell in layout.free_cells if cell != layout.goal_cell])
    env.reset(seed=0)
    while True:
        start = cells[rng.integers(len(cells))] + rng.uniform(-CENTER_NOISE, CENTER_NOISE, 2)
        env.set_state(start, np.zeros(2))
        behavior.reset()
        episode = []
        observation, terminal, is_over = env.observe(), False, False
        while not is_over:
            action = behavior.act(observation)
            following, reward, terminal, _, _ = env.step(action)
            is_over = terminal or behavior.has_arrived or len(episode) + 1 == _MAX_EPISODE_STEPS
            row = (observation, action, reward, terminal, is_over and not terminal, following)
            episode.append(dict(zip(_COLUMNS, row, strict=True)))
            observation = following
        if not (terminal and _visits(episode, layout)):
            yield episode


def _visits(episode: list[dict[str, Any]], layout: Any) -> bool:
    """Whether an episode was ever in the start cell."""
    return any(layout.cell(*row["observations"][:2]) == layout.start_cell for row in episode)


def write_maze(path: str | Path, name: str = DEFAULT_NAME, num_rows: int = DEFAULT_NUM_ROWS, seed: int = 0) -> Path:
    """Record, and return the path of an HDF5 file in D4RL's layout; it appears whole or not at all."""
    path = Path(path)
    task = _maze_task(name)
    require_space(path, num_rows)
    rows = record_maze(name, num_rows, seed)
    rows["infos/goal"] = np.broadcast_to(np.array(_goal(task), np.float32), (num_rows, 2))
    facts = {"name": task.name, "environment": task.environment, "recipe": RECIPE}
    content = hdf5_bytes(rows, facts | {"recipe_version": _RECIPE_VERSION, "seed": seed})
    try:
        replace_file(path, content)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); {_ELSEWHERE}") from None
    return path


def hdf5_bytes(columns: dict[str, np.ndarray], attributes: dict[str, Any]) -> bytes:
    """An HDF5 file in memory: the library crashes where the disk is full, so it never writes there."""
    require("h5py")
    import h5py

    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        for column, values in columns.items():
            file.create_dataset(column, data=values, compression="gzip", shuffle=True, fletcher32=True)
        file.attrs.update(attributes)
        file.flush()
        return file.id.get_file_image()


def require_space(path: Path, num_rows: int) -> None:
    """Refuse a place without room before minutes of trajectory."""
    place = next((parent for parent in path.absolute().parents if parent.is_dir()), None)
    if place is None:
        return
    needed, free = num_rows * _LEAST_ROW_BYTES, shutil.disk_usage(place).free
    if free < needed:
        raise DataError(
            f"{path}: {num_rows:,} rows need at least {needed / 1e6:.1f} MB and {free / 1e6:.1f} MB are free; "
            f"make room, or {_ELSEWHERE}"
        )


def maze_dataset(
    name: str = DEFAULT_NAME,
    num_rows: int = DEFAULT_NUM_ROWS,
    seed: int = 0,
    cache_dir: str | Path | None = None,
    **rules: Any,
) -> Dataset:
    """Return the trajectory as a Dataset, made on first use and kept under ``cache_dir``.

    ``cache_dir`` is by default ``$VEM_CACHE``, else ``vem`` in the user's cache directory. A cached file that
    cannot be read is made again. ``rules`` are those of ``from_arrays``.
    """
    task = _maze_task(name)
    directory = Path(cache_dir) if cache_dir is not None else cache_directory()
    path = directory / f"{task.name}-rows{num_rows}-seed{seed}-recipe{_RECIPE_VERSION}.hdf5"
    rules = {"name": task.name, **rules}
    if path.exists():
        try:
            return read_hdf5(path, **rules)
        except DataError:
            path.unlink()
    return read_hdf5(write_maze(path, name, num_rows, seed), **rules)


def write_minari(dataset_id: str, name: str = DEFAULT_NAME, num_rows: int = DEFAULT_NUM_ROWS, seed: int = 0) -> Any:
    """Record, and return a new local ``MinariDataset`` called ``dataset_id``, e.g. ``vem/pointmaze-v0``."""
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
    except ImportError as error:
        raise DataError(f"Minari cannot be loaded ({error}): install it with `pip install 'vem[minari]'`.") from error
    from vem import envs

    task = _maze_task(name)
    if dataset_id in minari.list_local_datasets():
        raise DataError(f"A Minari dataset {dataset_id!r} exists already: delete it, or choose another id.")
    rows = record_maze(name, num_rows, seed)
    ends = np.flatnonzero(rows["terminals"] | rows["timeouts"]) + 1
    episodes = []
    for index, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        steps = slice(start, stop)
        final = rows["next_observations"][stop - 1 : stop]
        episodes.append(
            EpisodeBuffer(
                id=index,
                observations=list(np.concatenate((rows["observations"][steps], final)).astype(np.float64)),
                actions=list(rows["actions"][steps]),
                rewards=rows["rewards"][steps].tolist(),
                terminations=rows["terminals"][steps].tolist(),
                truncations=rows["timeouts"][steps].tolist(),
            )
        )
    env = envs.make(task.environment)
    try:
        with warnings.catch_warnings():
            # Minari asks for an author and a link to the code; a trajectory on the user's machine has neither.
            warnings.filterwarnings("ignore", r"`\w+` is set to None", UserWarning)
            return minari.create_dataset_from_buffers(
                dataset_id,
                episodes,
                env=env,
                algorithm_name="WaypointBehavior",
                description=f"{RECIPE}; seed {seed}",
                ref_min_score=task.minimum,
                ref_max_score=task.maximum,
            )
    except ValueError as error:
        raise DataError(f"Minari refused the dataset {dataset_id!r}: {error}.") from error
    finally:
        env.close()


def _maze_task(name: str) -> Task:
    task = find_task(name)
    if task is None or not task.name.startswith("pointmaze-"):
        ways = {"start": ("pointmaze-", "antmaze-"), "end": ("-random", "-cloned")}
        known = [known for known in TASKS if known.startswith(ways["start"]) or known.endswith(ways["end"])]
        raise DataError(f"{name!r} is no data that vem can record: expected one of {', '.join(known)}.")
    return task


def _goal(task: Task) -> tuple[float, float]:
    from vem.envs.mazes import maze_layout

    return maze_layout(task.environment).goal


# A noisy controller that walks a PointMaze from cell to cell: the policy behind the built-in data.


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
