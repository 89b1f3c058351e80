"""A local Minari dataset → Dataset: T + 1 observations for T steps, terminations apart from truncations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from vem.data.actions import choices_of, space_bounds
from vem.data.arrays import as_float32, from_arrays, located
from vem.data.dataset import Dataset
from vem.data.files import kept_metadata, refuse_pipe
from vem.data.spaces import from_space, space_columns
from vem.errors import DataError


class PickedRows:
    """``values[rows]`` without a copy, sliced by rows like an array."""

    def __init__(self, values: np.ndarray, rows: np.ndarray):
        self.values, self.rows = values, rows
        self.shape, self.dtype = (len(rows), *values.shape[1:]), values.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.values[self.rows[rows]]


def read_minari(dataset_id: str, **rules: Any) -> Dataset:
    """The Dataset of a Minari id on this machine; ``rules`` are those of ``from_arrays``.

    Dict observations are flattened in the order of their sorted keys, recorded as
    ``info.rules["observation_keys"]``. What the actions are, the dataset's action space says. Minari's metadata,
    the environment's id and the reference scores among it, become ``info.metadata``. They belong to Minari's own
    task and are not D4RL's, even where the names look alike.
    """
    source = f"minari:{dataset_id}"
    with located(source):
        dataset = _open(dataset_id)
        observations, rows, columns, keys = _join(dataset)
        described, known = space_columns(dataset.action_space), None
        if any(choices_of(described)):
            rules = {"action_columns": described, **{name: rule for name, rule in rules.items() if name != "discrete"}}
        else:
            # The space says that these are numbers, however whole they look.
            known, rules = space_bounds(dataset.action_space), {"discrete": False, **rules}
        return from_arrays(
            observations=PickedRows(observations, rows),
            next_observations=PickedRows(observations, rows + 1),
            **columns,
            source=source,
            metadata=_metadata(dataset),
            known=known,
            rules={"observation_keys": keys} if keys else None,
            **{"name": dataset_id, **rules},
        )


def stored_metadata(dataset_id: str) -> dict[str, Any]:
    """What the file metadata.json of a Minari dataset on this machine says; FileNotFoundError without one.

    Where the spaces are missing, Minari would make the environment to learn them: whatever the file names would run.
    """
    from minari.storage import get_dataset_path

    path = get_dataset_path(dataset_id) / "data" / "metadata.json"
    try:
        refuse_pipe(path)
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is damaged ({error}); fetch the dataset again.") from None
    if not isinstance(stored, dict) or not all(
        isinstance(stored.get(name), str) for name in ("observation_space", "action_space")
    ):
        raise DataError(f"{path}: names no observation_space or action_space; record the dataset with both.")
    return stored


def _open(dataset_id: str) -> Any:
    try:
        import minari
    except ImportError:
        raise DataError("Minari is not installed; install it with: pip install 'vem[minari]'.") from None
    try:
        stored_metadata(dataset_id)
        dataset = minari.load_dataset(dataset_id)
    except FileNotFoundError:
        held = ", ".join(sorted(minari.list_local_datasets())[:12]) or "none"
        raise DataError(
            f"not on this machine; fetch it with: minari download {dataset_id}. Local datasets: {held}."
        ) from None
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"Minari cannot open it ({error}); check the id with: minari list local.") from None
    return dataset


def _join(dataset: Any) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], list[str]]:
    """All observations, the row of each step among them, the other columns, and the flattened keys."""
    num_steps, num_episodes = dataset.total_steps, dataset.total_episodes
    actions = np.empty((num_steps, len(space_columns(dataset.action_space))), np.float32)
    rewards = np.empty(num_steps, np.float32)
    terminals, timeouts = np.zeros(num_steps, np.bool_), np.zeros(num_steps, np.bool_)
    rows = np.empty(num_steps, np.intp)
    observations = np.empty((0, 0), np.float32)
    keys: list[str] = []
    start = number = 0
    for episode in _episodes(dataset):
        leaves = dict(_leaves("", episode.observations))
        if number == 0:
            keys = [key for key in leaves if key]
            size = sum(leaf.shape[1] for leaf in leaves.values())
            observations = np.empty((num_steps + num_episodes, size), np.float32)
        length = len(episode.rewards)
        stop = start + length
        taken = from_space(dataset.action_space, episode.actions)
        counts = {"observations": {len(leaf) for leaf in leaves.values()}, "actions": {len(taken)}}
        if counts != {"observations": {length + 1}, "actions": {length}} or stop > num_steps:
            raise DataError(
                f"episode {number} has {length} rewards, {len(taken)} actions and "
                f"{counts['observations']} observations; T steps need T + 1 observations. Record the "
                "dataset again."
            )
        first, last = start + number, stop + number
        np.concatenate([as_float32(leaf) for leaf in leaves.values()], 1, out=observations[first : last + 1])
        rows[start:stop] = np.arange(first, last)
        actions[start:stop] = as_float32(taken)
        rewards[start:stop] = as_float32(np.asarray(episode.rewards))
        terminals[start:stop] = episode.terminations
        timeouts[start:stop] = episode.truncations
        # The end of an episode is an end, whether or not a flag says so.
        timeouts[max(start, stop - 1) : stop] = True
        start, number = stop, number + 1
    columns = {"actions": actions, "rewards": rewards, "terminals": terminals, "timeouts": timeouts}
    columns = {name: column[:start] for name, column in columns.items()}
    return observations, rows[:start], columns, keys


def _episodes(dataset: Any) -> Iterator[Any]:
    try:
        yield from dataset.iterate_episodes()
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise DataError(f"an episode cannot be read ({error}); the dataset is damaged, fetch it again.") from None


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Each array inside a nested observation as (rows, size), with its path, in the order of sorted keys."""
    if isinstance(value, dict | tuple):
        entries = sorted(value.items()) if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            yield from _leaves(f"{prefix}/{key}" if prefix else str(key), entry)
        return
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.ndim == 0 or (array.ndim == 1 and array.dtype.kind != "f"):
        raise DataError(
            f"observation '{prefix or 'observations'}' is made of {array.dtype} {array.shape}; only "
            "vectors of real numbers are supported."
        )
    yield prefix, array.reshape(len(array), -1)


def _metadata(dataset: Any) -> dict[str, Any]:
    stored = {"environment": dataset.env_spec.id if dataset.env_spec else None, **dataset.storage.metadata}
    return kept_metadata(
        (key, lambda value=value: value) for key, value in stored.items() if key not in ("env_spec", "eval_env_spec")
    )
