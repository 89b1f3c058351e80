"""The built-in data: PointMaze recorded on the spot by a noisy waypoint controller between random cells.

Only the one evaluation goal is rewarded, and no episode visits both the start cell and the goal: the task is
solved only by a policy that stitches recordings together.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.data.dataset import Dataset
from vem.data.hdf5 import read_hdf5
from vem.errors import DataError, SettingsError
from vem.extras import require
from vem.storage import cache_directory, replace_file
from vem.tasks import TASKS, Task, find_task

if TYPE_CHECKING:
    from vem.envs.pointmaze import PointMazeEnv

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
        raise SettingsError(f"num_rows is {num_rows}: a recording needs at least one row.")
    if seed < 0:
        raise SettingsError(f"seed is {seed}: expected zero or a positive number.")
    env: Any = envs.make(task.environment)
    columns: dict[str, list[Any]] = {column: [] for column in _COLUMNS}
    for episode in _episodes(env.unwrapped, np.random.default_rng(seed)):
        rows = episode[: num_rows - len(columns["rewards"])]
        # A last episode that is cut was cut by the recording, not by the task.
        rows[-1] = rows[-1] | {"timeouts": not rows[-1]["terminals"]}
        for column, values in columns.items():
            values.extend(row[column] for row in rows)
        if len(columns["rewards"]) == num_rows:
            break
    env.close()
    types = _COLUMNS | {"actions": env.action_space.dtype}
    return {column: np.array(columns[column], dtype) for column, dtype in types.items()}


def _episodes(env: PointMazeEnv, rng: np.random.Generator) -> Iterator[list[dict[str, Any]]]:
    from vem.envs.waypoints import CENTER_NOISE, behavior_in

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
    """Refuse a place without room before minutes of recording."""
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
    """Return the recording as a Dataset, made on first use and kept under ``cache_dir``.

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
            # Minari asks for an author and a link to the code; a recording on the user's machine has neither.
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
        known = ", ".join(task for task in TASKS if task.startswith("pointmaze-"))
        raise DataError(f"{name!r} is not a built-in maze: expected one of {known}.")
    return task


def _goal(task: Task) -> tuple[float, float]:
    from vem.envs import maze_layout

    return maze_layout(task.environment).goal
