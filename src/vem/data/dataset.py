"""The Dataset: flat arrays, one row per observation, episodes one after another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vem.data.action_columns import ActionColumn
from vem.data.checks import require_rows
from vem.data.encoding import Encoder


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
    """What each action column means; empty: plain numbers within the bounds."""
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
    """float32, (rows, action size); zeros where not ``valid``."""
    rewards: np.ndarray
    """float32, (rows,); zero where not ``valid``."""
    valid: np.ndarray
    """bool, (rows,)."""
    terminal: np.ndarray
    """bool, (rows,); only on valid rows."""
    info: DataInfo

    def __post_init__(self) -> None:
        """Refuse arrays that do not have this form."""
        require_rows(self.observations, self.actions, self.rewards, self.valid, self.terminal)

    @property
    def num_rows(self) -> int:
        """Rows, final observations included."""
        return len(self.rewards)

    @property
    def num_transitions(self) -> int:
        """Rows with an action: what training draws from."""
        return int(self.valid.sum())

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
        return np.flatnonzero(~self.valid)

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
        return len(self.episode_ends)

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
        digest = hashlib.sha256()
        for column in (self.observations, self.actions, self.rewards, self.valid, self.terminal):
            digest.update(str((column.shape, column.dtype.str)).encode())
            digest.update(np.ascontiguousarray(column).data)
        return digest.hexdigest()
