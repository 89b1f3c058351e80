"""The Dataset: flat arrays, one row per observation, episodes one after another."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field, fields, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vem.data.actions import ActionColumn, Bounds, columns_from_json, require_codes
from vem.data.encoding import Encoder
from vem.errors import DataError, SettingsError
from vem.storage import misfit

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
    """Where the bounds come from: ``given``, ``task``, ``environment`` or ``data`` (``vem.data.actions``)."""
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


def info_from_json(stored: dict[str, Any]) -> DataInfo:
    """The DataInfo that ``dataclasses.asdict`` and JSON left; names that this version does not know are left out.

    A file may hold anything: ValueError, KeyError or TypeError where it holds no such facts.
    """
    known = {entry.name for entry in fields(DataInfo)}
    facts: dict[str, Any] = {name: value for name, value in stored.items() if name in known}
    for name in ("action_low", "action_high", "warnings"):
        if isinstance(facts.get(name), list):
            facts[name] = tuple(facts[name])
    facts["action_columns"] = columns_from_json(facts.get("action_columns", ()))
    if facts.get("encoder") is not None:
        facts["encoder"] = Encoder.from_json(facts["encoder"])
    return sound(DataInfo(**facts))


def sound(facts: Any) -> Any:
    """A dataclass that was read from JSON; ValueError unless its fields hold what their types say."""
    if (part := misfit(facts, type(facts))) is not None:
        raise ValueError(f"{part} is of another kind than it must be")
    return facts


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


def require_rows(
    observations: np.ndarray, actions: np.ndarray, rewards: np.ndarray, valid: np.ndarray, terminal: np.ndarray
) -> None:
    """Refuse arrays that are not the rows of a Dataset; about 40 ms for a million rows of 29 + 8 numbers."""
    numbers = {"observations": observations, "actions": actions, "rewards": rewards}
    flags = {"valid": valid, "terminal": terminal}
    num_rows = len(valid) if np.ndim(valid) else 0
    for name, values in (numbers | flags).items():
        dtype, ndim = (
            np.dtype(np.bool_ if name in flags else np.float32),
            2 if name in ("observations", "actions") else 1,
        )
        if not isinstance(values, np.ndarray) or values.dtype != dtype:
            found = getattr(values, "dtype", type(values).__name__)
            raise _no_dataset(f"'{name}' is {found} where a NumPy array of {dtype} is expected")
        if values.ndim != ndim or len(values) != num_rows or 0 in values.shape:
            expected = f"({num_rows}, size)" if ndim == 2 else f"({num_rows},)"
            raise _no_dataset(f"'{name}' has shape {values.shape} where {expected} is expected, as 'valid' has")
    final = ~valid
    if not final[-1]:
        raise _no_dataset("the last row is valid; it must be the final observation of the last episode")
    if final[0] or (final[1:] & final[:-1]).any():
        row = 0 if final[0] else int(np.argmax(final[1:] & final[:-1])) + 1
        raise _no_dataset(f"row {row} is the final observation of an episode without a step")
    ended = terminal[:-1] & ~final[1:]
    if terminal[-1] or (terminal & final).any() or ended.any():
        row = int(np.argmax((terminal & final) | np.append(ended, False)))
        raise _no_dataset(f"row {row} is terminal and not the last step of its episode")
    for name in ("actions", "rewards"):
        if numbers[name][final].any():
            row = int(np.flatnonzero(final)[np.argmax(numbers[name][final].reshape(final.sum(), -1).any(axis=1))])
            raise _no_dataset(f"'{name}' is not zero at row {row}, which is not valid")
    for name, values in numbers.items():
        # NaN and infinity show in the extremes, which need no memory.
        if not (np.isfinite(values.min()) and np.isfinite(values.max())):
            row = int(np.argmin(np.isfinite(values).reshape(num_rows, -1).all(axis=1)))
            raise _no_dataset(f"'{name}' holds NaN or infinity at row {row}")


def _no_dataset(problem: str) -> DataError:
    return DataError(f"these arrays are no Dataset: {problem}; vem.from_arrays builds one from recorded steps.")


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
    is_checked: InitVar[bool] = False
    """The rows were checked while they were read; shards were when they were written."""

    def __post_init__(self, is_checked: bool) -> None:
        """Refuse arrays that do not have this form."""
        if self.shards is None and not is_checked:
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


# 64-bit hashes of rows and episodes by their bits: which of them repeat others exactly.


class Hashes(NamedTuple):
    """Hashes of a dataset's parts."""

    transitions: np.ndarray
    """Of each valid row with its successor."""
    episodes: np.ndarray
    """Of all rows of each episode, in their order."""


def hash_dataset(dataset: Dataset) -> Hashes:
    """The hashes of all transitions and episodes; equal for equal bits, and hardly ever for others."""
    observed, acted = (
        np.concatenate([_hash_rows(part) for part in dataset.slices(name)]) for name in ("observations", "actions")
    )
    step = mix(observed, acted, dataset.rewards.view(np.uint32), dataset.valid, dataset.terminal)
    successor = np.roll(observed, -1)
    # An episode's hash is the sum of its rows' hashes, each mixed with the row's place in the episode.
    starts, num_rows = dataset.episode_starts, dataset.episode_lengths + 1
    place = np.arange(dataset.num_rows) - np.repeat(starts, num_rows)
    return Hashes(mix(step, successor)[dataset.valid], np.add.reduceat(mix(step, place), starts))


def mix(*columns: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row of several integer columns, by multiplying, shifting and xor."""
    hashes = np.full(len(columns[0]), 0x9E3779B97F4A7C15, np.uint64)
    for column in columns:
        hashes ^= column.astype(np.uint64)
        hashes *= np.uint64(0xFF51AFD7ED558CCD)
        hashes ^= hashes >> np.uint64(32)
    return hashes


def _hash_rows(values: np.ndarray) -> np.ndarray:
    """A hash of each float32 row's bits, one column at a time."""
    return mix(*(values[:, column].view(np.uint32) for column in range(values.shape[1])))


# Whole trajectories kept apart from training, by a rule that depends on the data alone.


LARGEST_SHARE = 0.9
ORDINARY_STEP = 0.99
STEP_FACTOR = 3.0
"""An episode that begins within 3 × the 99 % quantile of a step from where the last one ended goes on with it."""

RUNS_OF_TERMINALS = 0.2
"""Share of episodes of one step above which terminals come in runs."""


class Parts(NamedTuple):
    """A dataset in two parts; no trajectory, and no copy of an episode, is in both."""

    training: Dataset
    held_out: Dataset | None
    """None: nothing is held out."""


def check_hold_out(share: float) -> float:
    """``share``, if it is a share of the trajectories that can be held out."""
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    if not is_number or not 0 <= share <= LARGEST_SHARE:
        raise SettingsError(
            f"--hold-out is {share!r}; give the share of trajectories to keep apart, from 0 (none) to {LARGEST_SHARE}"
        )
    return float(share)


def part_dataset(dataset: Dataset, share: float) -> Parts:
    """The dataset without the held-out trajectories, and those."""
    if not share:
        return Parts(dataset, None)
    if dataset.shards is not None:
        raise SettingsError(
            f"--hold-out keeps trajectories apart of data read as a whole, and {dataset.info.name} is of shards; "
            "train on the file that the shards were made from, or convert two files: one to train on, one for "
            "vem estimate --data"
        )
    is_out = held_out_episodes(dataset, share)
    return Parts(take_episodes(dataset, ~is_out), take_episodes(dataset, is_out))


def held_out_episodes(dataset: Dataset, share: float) -> np.ndarray:
    """Which episodes are held out: those of about ``share`` of the trajectories, at least one and not all.

    Trajectories that hold a copy of the same episode stay together. Their order is that of a hash of what they hold.
    """
    hashes = hash_dataset(dataset).episodes
    trajectory = trajectories_of(dataset)
    group = _joined(trajectory, hashes)
    num_groups = int(group.max()) + 1
    if num_groups < 2:
        copies = "copies of one another" if trajectory.max() else "one trajectory"
        raise DataError(
            f"nothing of {dataset.info.name} can be held out: its {dataset.num_episodes:,} episodes are {copies}; "
            "give more trajectories, or train without --hold-out"
        )
    keys = np.zeros(num_groups, np.uint64)
    np.add.at(keys, group, hashes)
    sizes = np.bincount(group[_first_of(trajectory)], minlength=num_groups)
    target, held, chosen = share * sizes.sum(), 0, np.zeros(num_groups, np.bool_)
    for index in np.argsort(mix(keys), kind="stable"):
        # A group that would take more than the share is passed over, unless nothing is held out yet.
        if held + sizes[index] <= max(target, 1):
            chosen[index] = True
            held += int(sizes[index])
    if not held:
        chosen[np.argmin(sizes)] = True
    return chosen[group]


def trajectories_of(dataset: Dataset) -> np.ndarray:
    """The number of the trajectory that each episode belongs to, from 0.

    An episode goes on with the one before if it begins where that ended, to the bit. Where trajectories go on after
    terminals, as those of AntMaze that stay at the goal, many episodes have one step, and an episode goes on with one
    that a terminal ended if it begins within an ordinary step of there.
    """
    ends = dataset.episode_ends
    if len(ends) == 1:
        return np.zeros(1, np.int64)
    final, first = dataset.observations[ends[:-1]], dataset.observations[ends[:-1] + 1]
    goes_on = np.all(final == first, axis=1)
    terminal = dataset.terminal[ends - 1]
    if np.mean(terminal & (dataset.episode_lengths == 1)) > RUNS_OF_TERMINALS:
        is_near = np.all(np.abs(first - final) <= STEP_FACTOR * _ordinary_steps(dataset), axis=1)
        goes_on |= terminal[:-1] & is_near
    return np.concatenate([[0], np.cumsum(~goes_on)])


def take_episodes(dataset: Dataset, chosen: np.ndarray) -> Dataset:
    """The dataset of the chosen episodes alone."""
    return _take_rows(dataset, np.flatnonzero(np.repeat(chosen, dataset.episode_lengths + 1)))


def _take_rows(dataset: Dataset, rows: np.ndarray, **changes: Any) -> Dataset:
    columns = {name: np.asarray(getattr(dataset, name)[rows]) for name in RowBlock._fields}
    return replace(dataset, **{**columns, **changes}, shards=None)


def _ordinary_steps(dataset: Dataset, most_rows: int = 65_536) -> np.ndarray:
    valid = np.flatnonzero(dataset.valid)
    valid = valid[:: max(1, len(valid) // most_rows)]
    steps = np.abs(dataset.observations[valid + 1] - dataset.observations[valid])
    return np.quantile(steps, ORDINARY_STEP, axis=0)


def _first_of(trajectory: np.ndarray) -> np.ndarray:
    """The first episode of each trajectory."""
    return np.flatnonzero(np.diff(trajectory, prepend=-1))


def _joined(trajectory: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """The group of each episode: trajectories, joined where they hold equal episodes."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, same = np.unique(hashes, return_inverse=True)
    num_trajectories = int(trajectory.max()) + 1
    size = num_trajectories + int(same.max()) + 1
    # Trajectories and contents are the nodes, and each episode is an edge.
    edges = coo_array((np.ones(len(same)), (trajectory, num_trajectories + same)), shape=(size, size))
    _, component = connected_components(edges, directed=False)
    _, group = np.unique(component[trajectory], return_inverse=True)
    return group


# A part of a dataset that stands for the whole where looking at all rows would take long.


SAMPLE_ROWS = 20_000


def sample_episodes(dataset: Dataset, num_rows: int = SAMPLE_ROWS) -> Dataset:
    """Whole episodes, drawn at random but always the same, of about ``num_rows`` rows; all if there are fewer."""
    if dataset.num_rows <= num_rows:
        return dataset
    lengths = dataset.episode_lengths + 1
    order = np.random.default_rng(0).permutation(len(lengths))
    kept = np.zeros(len(lengths), bool)
    kept[order[: max(1, int(np.searchsorted(np.cumsum(lengths[order]), num_rows)))]] = True
    return take_episodes(dataset, kept)


# Changes of a whole Dataset that some programs make before learning.


def repeat_terminals(dataset: Dataset) -> Dataset:
    """Every terminal step twice in a row, as the authors' program stores it.

    The first copy no longer ends the episode, so a terminal reward of r counts as r + γ·r there.
    """
    rows = np.repeat(np.arange(dataset.num_rows), np.where(dataset.terminal, 2, 1))
    info = replace(dataset.info, rules={**dataset.info.rules, "repeat_terminals": True})
    is_first = np.append(rows[1:] == rows[:-1], False)
    return _take_rows(dataset, rows, info=info, terminal=dataset.terminal[rows] & ~is_first)


# Where rows are cut when not all of them are looked at together: at the ends of episodes, wherever possible.


class Stretch(NamedTuple):
    """Rows one after another, from ``start`` to ``stop``."""

    start: int
    stop: int
    is_cut: bool = False
    """The last row is a step of an episode that goes on; here it serves as the final observation."""

    @property
    def num_rows(self) -> int:
        """Rows of the stretch."""
        return self.stop - self.start


def whole_episodes(ends: np.ndarray, most_rows: int) -> Iterator[Stretch]:
    """All rows in stretches of whole episodes, of ``most_rows`` at most unless a single episode is longer.

    ``ends`` are the rows of the final observations, ascending.
    """
    start = 0
    while start <= ends[-1]:
        last = max(_last_end(ends, start, start + most_rows), int(ends[np.searchsorted(ends, start)]))
        yield Stretch(start, last + 1)
        start = last + 1


def cut_stretches(ends: np.ndarray, most_rows: int) -> list[Stretch]:
    """All rows in stretches of ``most_rows`` at most: whole episodes, and parts of those that are longer.

    The last row of a part is its final observation and the first row of the next part, so that no step is lost.
    """
    stretches = []
    for whole in whole_episodes(ends, most_rows):
        start = whole.start
        while whole.stop - start > most_rows:
            stretches.append(Stretch(start, start + most_rows, is_cut=True))
            start += most_rows - 1
        stretches.append(Stretch(start, whole.stop))
    return stretches


def pack(stretches: list[Stretch], ends: np.ndarray, section_rows: int, seed: int) -> Iterator[list[Stretch]]:
    """Endless sections of ``section_rows`` rows at most, filled with stretches in random order.

    Each stretch comes once an epoch. One that does not fit is parted between two episodes, if it can be, and the
    rest begins the next section.
    """
    section: list[Stretch] = []
    room = section_rows
    for epoch in count():
        for index in np.random.default_rng((seed, epoch)).permutation(len(stretches)).tolist():
            left: Stretch | None = stretches[index]
            while left is not None:
                head, left = _part(left, ends, room)
                if head is not None:
                    section.append(head)
                    room -= head.num_rows
                if left is not None:
                    yield section
                    section, room = [], section_rows


def _part(stretch: Stretch, ends: np.ndarray, room: int) -> tuple[Stretch | None, Stretch | None]:
    """What fits into ``room`` rows of a stretch, and the rest of it."""
    if stretch.num_rows <= room:
        return stretch, None
    last = _last_end(ends, stretch.start, stretch.start + room)
    if last < stretch.start:
        return None, stretch
    return Stretch(stretch.start, last + 1), stretch._replace(start=last + 1)


def _last_end(ends: np.ndarray, start: int, stop: int) -> int:
    """The last final observation before the row ``stop``, or ``start − 1`` if none is at or after ``start``."""
    index = int(np.searchsorted(ends, stop)) - 1
    return max(int(ends[index]), start - 1) if index >= 0 else start - 1


# Facts about all rows of a Dataset, computed in passes over slices of them.


FACTS_SLICE_ROWS = 1 << 18


@dataclass(frozen=True)
class Facts:
    """What methods ask about all rows."""

    num_episodes: int
    longest_episode: int
    """Rows of the longest episode, its final observation included."""
    typical_steps: int
    """Steps of the episode that the median transition is in."""
    least_reward: float
    largest_reward: float
    unrewarded: float
    """Share of the steps after which their own trajectory earns nothing more than the smallest reward."""
    observation_mean: tuple[float, ...]
    observation_deviation: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """The facts as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Facts:
        """The facts that ``to_json`` gave."""
        vectors = {name: tuple(stored[name]) for name in ("observation_mean", "observation_deviation")}
        return sound(cls(**{**stored, **vectors}))


def facts_of(dataset: Dataset) -> Facts:
    """The facts of a dataset: two passes over the rewards and one over the observations."""
    ends = dataset.episode_ends
    lengths = np.diff(ends, prepend=-1) - 1
    low, high = reward_range(dataset)
    mean, deviation = observation_moments(dataset)
    return Facts(
        num_episodes=len(ends),
        longest_episode=int(lengths.max()) + 1,
        typical_steps=typical_steps(lengths),
        least_reward=low,
        largest_reward=high,
        unrewarded=unrewarded_share(dataset),
        observation_mean=tuple(mean.tolist()),
        observation_deviation=tuple(deviation.tolist()),
    )


def typical_steps(lengths: np.ndarray) -> int:
    """Steps of the episode that the median transition is in."""
    lengths = np.sort(lengths)
    return int(lengths[np.searchsorted(np.cumsum(lengths), lengths.sum() / 2)])


def reward_range(dataset: Dataset) -> tuple[float, float]:
    """The smallest and the largest reward of a step."""
    low, high = np.inf, -np.inf
    for rewards, valid in zip(dataset.slices("rewards"), dataset.slices("valid"), strict=True):
        low = min(low, float(np.min(rewards, where=valid, initial=np.inf)))
        high = max(high, float(np.max(rewards, where=valid, initial=-np.inf)))
    return low, high


def unrewarded_share(dataset: Dataset) -> float:
    """Share of the steps after which their own trajectory earns nothing more than the smallest reward of all.

    It says how much joining of trajectories there is to do: 0 where every step is rewarded, near 1 where few
    trajectories reach a goal. Data whose rewards are all equal have nothing to join: 0.
    """
    low, high = reward_range(dataset)
    if low == high:
        return 0.0
    least, unrewarded = low + 1e-6 * (high - low), 0
    for part in whole_episodes(dataset.episode_ends, FACTS_SLICE_ROWS):
        rewards, valid = (dataset.column(name, part.start, part.stop) for name in ("rewards", "valid"))
        earned = np.concatenate([[0], np.cumsum(valid & (rewards > least))])
        last = np.flatnonzero(~valid)
        rows = np.arange(len(valid))
        left = earned[last[np.searchsorted(last, rows)]] - earned[rows]
        unrewarded += int(np.count_nonzero(left[valid] == 0))
    return unrewarded / dataset.num_transitions


def observation_moments(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each observation dimension over all rows, in float64."""
    count, mean, squares = 0, np.zeros(dataset.observation_size), np.zeros(dataset.observation_size)
    for part in dataset.slices("observations"):
        own_mean = part.mean(0, dtype=np.float64)
        own_squares = part.var(0, dtype=np.float64) * len(part)
        total = count + len(part)
        difference = own_mean - mean
        squares += own_squares + difference**2 * (count * len(part) / total)
        mean += difference * (len(part) / total)
        count = total
    return mean, np.sqrt(squares / count)
