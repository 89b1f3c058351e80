"""The Dataset: flat arrays, one row per observation, episodes one after another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vem.data.action_columns import ActionColumn, columns_from_json, require_codes
from vem.data.bounds import Bounds
from vem.data.checks import require_rows
from vem.data.encoding import Encoder

if TYPE_CHECKING:
    from vem.data.shards import Shards

SLICE_ROWS = 1 << 18
"""Rows of a column that are looked at together where all of them at once would need a copy."""


class RowBlock(NamedTuple):
    """Some rows of a Dataset, one after another."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    valid: np.ndarray
    terminal: np.ndarray


@dataclass(frozen=True)
class DataInfo:
    """Static facts that travel with the rows: where they came from and what was done to them."""

    name: str
    """The benchmark or file name, e.g. ``antmaze-umaze``."""
    source: str = "arrays"
    """How to load it again: a path, ``minari:ID``, or ``arrays``."""
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    bounds_source: str | None = None
    """Where the bounds come from: ``given``, ``task``, ``environment`` or ``data`` (``vem.data.bounds``)."""
    action_columns: tuple[ActionColumn, ...] = ()
    """What each column of the actions is; empty: all are numbers within the bounds."""
    encoder: Encoder | None = None
    """How the log's own columns become observations and actions, for data read from a table."""
    task: str | None = None
    """Name of the benchmark task (``vem.tasks.task_of`` gives its facts), where known."""
    task_source: str | None = None
    """What said so: ``given`` by the user, the file's ``attributes``, or its ``name``."""
    environment: str | None = None
    """Gymnasium id for evaluation, where known."""
    rules: dict[str, Any] = field(default_factory=dict)
    """The reading rules in force, e.g. ``{"split": "terminals", "time_limit": "bootstrap"}``."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """What the file itself says (attributes, D4RL ``metadata/*``, Minari's metadata). JSON values only."""
    warnings: tuple[str, ...] = ()
    """One sentence for each thing in the data that is legal and probably not meant."""


_JSON_KINDS: dict[tuple[str, ...], tuple[type, ...]] = {
    ("name", "source"): (str,),
    ("task", "task_source", "environment", "bounds_source"): (str, type(None)),
    ("rules", "metadata"): (dict,),
    ("action_low", "action_high", "warnings", "action_columns"): (list, tuple),
}


def info_from_json(stored: dict[str, Any]) -> DataInfo:
    """The DataInfo that ``dataclasses.asdict`` and JSON left; names that this version does not know are left out.

    A file may hold anything: ValueError, KeyError or TypeError where it holds no such facts.
    """
    known = {entry.name for entry in fields(DataInfo)}
    facts: dict[str, Any] = {name: value for name, value in stored.items() if name in known}
    for names, kinds in _JSON_KINDS.items():
        if wrong := next((name for name in names if name in facts and not isinstance(facts[name], kinds)), None):
            raise ValueError(f"{wrong} is {str(facts[wrong])[:40]!r}")
    facts |= {name: tuple(map(float, facts[name])) for name in ("action_low", "action_high") if name in facts}
    facts |= {"warnings": tuple(map(str, facts["warnings"]))} if "warnings" in facts else {}
    facts["action_columns"] = columns_from_json(facts.get("action_columns", ()))
    if facts.get("encoder") is not None:
        facts["encoder"] = Encoder.from_json(facts["encoder"])
    return DataInfo(**facts)


def _bounded(column: ActionColumn, low: float, high: float) -> ActionColumn:
    if column.kind == "discrete":
        low, high = 0.0, len(column.labels) - 1.0
    return replace(column, low=low, high=high)


def with_bounds(info: DataInfo, bounds: Bounds) -> DataInfo:
    """``info`` with these action bounds, also in its action columns; those of a discrete column are its codes'."""
    low, high = tuple(map(float, bounds.low)), tuple(map(float, bounds.high))
    columns = tuple(map(_bounded, info.action_columns, low, high))
    if columns:
        low, high = tuple(column.low for column in columns), tuple(column.high for column in columns)
    return replace(
        info,
        action_low=low,
        action_high=high,
        bounds_source=bounds.source,
        action_columns=columns,
        encoder=replace(info.encoder, outputs=columns) if info.encoder else None,
    )


@dataclass(frozen=True, eq=False)
class Dataset:
    """Recorded trajectories, one row per observation.

    Row ``i``'s successor is row ``i + 1``. An episode of L steps takes L + 1 rows: the last holds its
    final observation and no action (``valid`` is False there; it is never drawn for training).
    ``terminal`` marks the valid row whose step ended the MDP, so that no value follows it; an episode
    without it was cut by a time limit and bootstraps from its true final observation.
    """

    observations: np.ndarray
    """float32, (rows, observation size)."""
    actions: np.ndarray
    """float32, (rows, action size); codes in columns of choices; zeros where not ``valid``."""
    rewards: np.ndarray
    """float32, (rows,); zero where not ``valid``."""
    valid: np.ndarray
    """bool, (rows,)."""
    terminal: np.ndarray
    """bool, (rows,); only on valid rows."""
    info: DataInfo
    shards: Shards | None = None
    """Where the columns are memory maps: the files, which check what is read from them (``vem.data.shards``)."""

    def __post_init__(self) -> None:
        """Refuse arrays that do not have this form."""
        if self.shards is None:  # shards were checked when they were written
            require_rows(self.observations, self.actions, self.rewards, self.valid, self.terminal)
            require_codes(self.actions, self.info.action_columns)

    def column(self, name: str, start: int, stop: int) -> np.ndarray:
        """The rows from ``start`` to ``stop`` of one column: a view, or read from the shards and checked."""
        if self.shards is not None:
            return self.shards.read(name, start, stop)
        return getattr(self, name)[start:stop]

    def block(self, start: int, stop: int) -> RowBlock:
        """The rows from ``start`` to ``stop``: views, or read from the shards and checked."""
        return RowBlock(*(self.column(name, start, stop) for name in RowBlock._fields))

    def slices(self, name: str) -> Iterator[np.ndarray]:
        """One column, slice by slice."""
        for start in range(0, self.num_rows, SLICE_ROWS):
            yield self.column(name, start, min(start + SLICE_ROWS, self.num_rows))

    @property
    def num_rows(self) -> int:
        """Rows, final observations included."""
        return len(self.rewards)

    @property
    def num_transitions(self) -> int:
        """Rows with an action: what training draws from."""
        return self.num_rows - self.num_episodes

    @property
    def observation_size(self) -> int:
        """Length of one observation."""
        return self.observations.shape[1]

    @property
    def action_size(self) -> int:
        """Length of one action."""
        return self.actions.shape[1]

    @property
    def observation_names(self) -> tuple[str, ...]:
        """What each number of an observation is, for data read from a table; empty otherwise."""
        return self.info.encoder.feature_names if self.info.encoder else ()

    @property
    def episode_ends(self) -> np.ndarray:
        """Row index of each episode's final observation."""
        slices = enumerate(self.slices("valid"))
        return np.concatenate([np.flatnonzero(~valid) + index * SLICE_ROWS for index, valid in slices])

    @property
    def episode_starts(self) -> np.ndarray:
        """Row index of each episode's first observation."""
        return np.concatenate([[0], self.episode_ends[:-1] + 1])

    @property
    def episode_lengths(self) -> np.ndarray:
        """Steps (valid rows) of each episode."""
        return self.episode_ends - self.episode_starts

    @property
    def num_episodes(self) -> int:
        """Number of episodes."""
        if self.shards is not None:
            return self.shards.facts.num_episodes
        return self.num_rows - int(np.count_nonzero(self.valid))

    @property
    def episode_returns(self) -> np.ndarray:
        """Undiscounted sum of rewards of each episode."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.episode_starts)

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows."""
        return sum(a.nbytes for a in (self.observations, self.actions, self.rewards, self.valid, self.terminal))

    def __repr__(self) -> str:
        """Name, sizes and task in two lines."""
        return (
            f"Dataset({self.info.name!r}: {self.num_transitions:,} transitions in {self.num_episodes:,} episodes, "
            f"{self.num_rows:,} rows,\n  observations of {self.observation_size} and actions of {self.action_size} "
            f"numbers, task {self.info.task or 'unknown'})"
        )

    def fingerprint(self) -> str:
        """SHA-256 of the rows themselves: equal exactly when training would see the same numbers."""
        if self.shards is not None:
            return self.shards.fingerprint
        return fingerprint(self)


def fingerprint(dataset: Dataset) -> str:
    """SHA-256 of all rows, read slice by slice."""
    digest = hashlib.sha256()
    for name in RowBlock._fields:
        column: np.ndarray = getattr(dataset, name)
        digest.update(str((column.shape, column.dtype.str)).encode())
        for part in dataset.slices(name):
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
