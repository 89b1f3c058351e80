"""Roll-outs of an actor in a benchmark environment, written as a file in D4RL's layout.

Each episode has seeds of its own, so the rows depend on the seed and not on where a trajectory was stopped: it goes on
from the parts that are there.
"""

from __future__ import annotations

import io
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vem.data.mazes import hdf5_bytes, require_space
from vem.errors import DataError, SettingsError
from vem.storage import replace_file
from vem.tasks import Task

RECIPE_VERSION = 1
COLUMNS = {
    "observations": np.float32,
    "actions": np.float32,
    "rewards": np.float32,
    "terminals": np.bool_,
    "timeouts": np.bool_,
}
PART_ROWS = 20_000
"""Rows after which a part is written."""

Act = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""(observation, the episode's random numbers) → action."""
RecordEpisode = Callable[[Any, int, int], dict[str, np.ndarray]]
"""(environment, seed, the episode's number) → the episode's rows, as columns."""
Report = Callable[[str, int, int], None]


class Recipe(NamedTuple):
    """What a trajectory is of: all that its rows depend on, but the actor's numbers."""

    task: Task
    text: str
    """How it was made, for readers of the file."""
    num_rows: int
    seed: int
    origin: str = ""
    """Fingerprint of the data that the actor was made from, if any."""

    @property
    def key(self) -> str:
        """The same for parts of one trajectory; a longer trajectory begins with a shorter one."""
        made = zlib.crc32(f"{self.text}{self.origin}".encode())
        return f"{self.task.name}-seed{self.seed}-version{RECIPE_VERSION}-{made:08x}"

    def check(self) -> None:
        """SettingsError if a number makes no sense."""
        if self.num_rows < 1:
            raise SettingsError(f"num_rows is {self.num_rows}: a trajectory needs at least one row.")
        if self.seed < 0:
            raise SettingsError(f"seed is {self.seed}: expected zero or a positive number.")


def write_trajectory(
    path: str | Path,
    recipe: Recipe,
    record: RecordEpisode,
    demonstrations: dict[str, np.ndarray] | None = None,
    *,
    report: Report,
) -> Path:
    """Record episodes, after the rows of ``demonstrations`` if given, and return the path.

    The file appears whole or not at all.

    What is recorded on the way is kept beside it in ``NAME.parts`` and used by the next call with the same recipe.
    """
    path = Path(path)
    recipe.check()
    require_space(path, recipe.num_rows)
    rows = _record(path.with_name(f"{path.name}.parts"), recipe, record, report)
    if demonstrations is not None:
        rows = {name: np.concatenate([demonstrations[name], values]) for name, values in rows.items()}
    attributes = {"name": recipe.task.name, "environment": recipe.task.environment, "recipe": recipe.text}
    content = hdf5_bytes(rows, attributes | {"recipe_version": RECIPE_VERSION, "seed": recipe.seed})
    try:
        replace_file(path, content)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); choose another place.") from None
    shutil.rmtree(path.with_name(f"{path.name}.parts"), ignore_errors=True)
    return path


def _record(parts: Path, recipe: Recipe, record: RecordEpisode, report: Report) -> dict[str, np.ndarray]:
    """All rows, from the parts that are there and from new episodes."""
    from vem import envs

    found, done, episode = _read_parts(parts, recipe.key)
    env: Any = envs.make(recipe.task.environment)
    pending: list[dict[str, np.ndarray]] = []
    count = 0
    try:
        while done + count < recipe.num_rows:
            rows = record(env, recipe.seed, episode)
            pending.append(rows)
            count, episode = count + len(rows["rewards"]), episode + 1
            if count >= PART_ROWS:
                found.append(_join(pending))
                _write_part(parts / f"{len(found):05d}.npz", recipe.key, episode, found[-1])
                done, count, pending = done + count, 0, []
            report("record", min(done + count, recipe.num_rows), recipe.num_rows)
    finally:
        env.close()
    whole = _join([*found, *pending])
    whole = {name: values[: recipe.num_rows] for name, values in whole.items()}
    # A last episode that is cut was cut by the trajectory, not by the task.
    whole["timeouts"][-1] = not whole["terminals"][-1]
    return whole


def rolling_out(act: Act) -> RecordEpisode:
    """What records episodes of an actor from the task's own start to its own end."""
    return lambda env, seed, episode: record_episode(env, act, seed, episode)


def record_episode(env: Any, act: Act, seed: int, episode: int) -> dict[str, np.ndarray]:
    """One episode as D4RL's columns; it depends on the seed and the episode's number alone."""
    rng = np.random.default_rng([seed, episode])
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    columns: dict[str, list[Any]] = {
        name: [] for name in ("observations", "actions", "rewards", "terminals", "timeouts")
    }
    terminal = truncated = False
    while not (terminal or truncated):
        action = np.asarray(act(observation, rng), np.float32)
        following, reward, terminal, truncated, _ = env.step(action)
        row = (observation, action, reward, terminal, truncated and not terminal)
        for values, value in zip(columns.values(), row, strict=True):
            values.append(value)
        observation = following
    return {name: np.asarray(columns[name], dtype) for name, dtype in COLUMNS.items()}


def _join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _write_part(path: Path, key: str, episode: int, rows: dict[str, np.ndarray]) -> None:
    content = io.BytesIO()
    np.savez(content, key=np.asarray(key), next_episode=np.asarray(episode), **rows)  # type: ignore[arg-type]
    try:
        replace_file(path, content.getvalue())
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); make room and start again.") from None


def _read_parts(folder: Path, key: str) -> tuple[list[dict[str, np.ndarray]], int, int]:
    """The parts of this recipe, their rows, and the number of the next episode; others and damaged ones are left."""
    parts: list[dict[str, np.ndarray]] = []
    episode = 0
    for path in sorted(folder.glob("*.npz")) if folder.is_dir() else []:
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
                if str(stored["key"]) != key or path.stem != f"{len(parts) + 1:05d}":
                    break
                parts.append({name: stored[name] for name in stored.files if name not in ("key", "next_episode")})
                episode = int(stored["next_episode"])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            break
    return parts, sum(len(part["rewards"]) for part in parts), episode
