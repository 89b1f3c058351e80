"""Arrays → Dataset: the one builder in which every reader ends."""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from vem.data.actions import (
    ActionColumn,
    Bounds,
    Discrete,
    action_limits,
    bounds_to_json,
    choices_of,
    discrete_column,
    known_bounds,
    recognize,
    require_codes,
)
from vem.data.dataset import DataInfo, Dataset, RowBlock, with_bounds
from vem.errors import DataError, DataWarning, SettingsError
from vem.tasks import resolve_task

# Arrays that start where a device of the host can read them in place, so that training needs no second copy.


ALIGNMENT = 64
"""Bytes; JAX copies arrays that do not start at a multiple of it."""


def aligned(array: np.ndarray) -> np.ndarray:
    """The array itself if it is contiguous and aligned, else a copy that is."""
    if array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An aligned array without values."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + size].view(dtype).reshape(shape)


# One recorded quantity, read in blocks of rows from an array or an open HDF5 file.


BLOCK_BYTES = 2 << 20
MOST_NAMES = 1_000
"""Names of a file that are looked at for a misspelled one."""


class Column:
    """Rows of one quantity, handed out as float32 blocks so that no second copy of the data is ever made.

    ``values`` is a NumPy array or anything that looks like one and slices by rows, such as an HDF5 dataset.
    """

    def __init__(self, name: str, values: Any):
        self.name = name
        if values is None:
            raise DataError(f"column '{name}' is missing; observations, actions and rewards are needed.")
        if not (hasattr(values, "shape") and isinstance(getattr(values, "dtype", None), np.dtype)):
            try:
                values = np.asarray(values)
            except (ValueError, TypeError, RuntimeError) as error:
                raise DataError(
                    f"column '{name}' is no array ({_first_line(error)}); pass numbers of shape (rows, size)."
                ) from None
        self.values = values
        # An HDF5 dataset without a dataspace has no shape at all.
        self.shape: tuple[int, ...] = values.shape or ()
        kind = {"O": "Python objects", "S": "bytes", "U": "text", "c": "complex numbers", "V": "records"}
        if values.dtype.kind not in "biuf":
            raise DataError(
                f"column '{name}' holds {kind.get(values.dtype.kind, 'values')} ({values.dtype}), not real numbers; "
                "convert it to float32, one row of equal length per step."
            )

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """The rows from ``start`` up to ``stop``, in the column's own type."""
        try:
            return np.asarray(self.values[start:stop])
        except Exception as error:  # whatever the library that holds the file makes of damaged bytes
            raise DataError(
                f"column '{self.name}': rows {start} to {stop} cannot be read ({_first_line(error)}). "
                "The file is damaged; copy or download it again."
            ) from None

    def _starts(self) -> range:
        """First rows of blocks of about two megabytes, in whole chunks of a compressed file."""
        row_bytes = max(1, self.values.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64)))
        rows = max(1, BLOCK_BYTES // row_bytes)
        chunks = getattr(self.values, "chunks", None)
        return range(0, self.num_rows, max(1, round(rows / chunks[0])) * chunks[0] if chunks else rows)

    def blocks(self, overlap: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        """First row and float32 values of each block, with ``overlap`` rows of the next one.

        DataError at the first row with NaN, infinity or a number that float32 cannot hold.
        """
        starts = self._starts()
        for start in starts:
            block = as_float32(self.read(start, start + starts.step + overlap))
            # A finite sum has finite parts, and is much cheaper than a look at each value.
            with np.errstate(invalid="ignore", over="ignore"):
                is_sound = np.isfinite(block.sum()) or np.isfinite(block).all()
            if not is_sound:
                row = start + int(np.argmin(np.isfinite(block.reshape(len(block), -1)).all(axis=1)))
                raise DataError(
                    f"column '{self.name}' holds NaN, infinity or a number beyond float32 at row {row}; remove the "
                    "episode or mend the trajectory."
                )
            yield start, block

    def require_finite(self) -> None:
        """DataError unless all rows are finite."""
        for _ in self.blocks():
            pass

    def gather(self, index: np.ndarray) -> np.ndarray:
        """``column[index]`` as float32 for a non-decreasing ``index``, reading each block at most once."""
        output = aligned_empty((len(index), *self.shape[1:]), np.float32)
        if isinstance(self.values, np.ndarray) and self.values.dtype == np.float32:
            return np.take(self.values, index, axis=0, out=output, mode="clip")
        starts = self._starts()
        limits = np.searchsorted(index, [*starts, self.num_rows])
        for start, first, last in zip(starts, limits[:-1], limits[1:], strict=True):
            if first < last:
                output[first:last] = as_float32(self.read(start, start + starts.step))[index[first:last] - start]
        return output

    def as_matrix(self) -> Column:
        """The column, if it has shape (rows, size) with at least one row and one number in it."""
        if self.shape and self.num_rows == 0:
            raise DataError(f"column '{self.name}' is empty (shape {self.shape}); record at least two steps.")
        if len(self.shape) == 2 and self.shape[1] > 0:
            return self
        remedy = "give one row of numbers for each step"
        if len(self.shape) == 1:
            remedy = f"for one number per step use {self.name}[:, None]"
        elif len(self.shape) > 2:
            remedy = f"flatten each step, e.g. {self.name}.reshape(len({self.name}), -1)"
        raise DataError(f"column '{self.name}' has shape {self.shape} where (rows, size) is expected; {remedy}.")

    def as_vector(self, num_rows: int) -> Column:
        """The column, if it has shape (rows,) or (rows, 1)."""
        if len(self.shape) != 1 and self.shape[1:] != (1,):
            raise DataError(
                f"column '{self.name}' has shape {self.shape}, expected ({num_rows},); give one number per step."
            )
        return self.of_length(num_rows)

    def of_length(self, num_rows: int) -> Column:
        """The column, if it has one row for each observation."""
        if self.num_rows != num_rows:
            raise DataError(
                f"column '{self.name}' has {self.num_rows} rows and 'observations' has {num_rows}: row "
                f"{min(self.num_rows, num_rows)} has no partner. Every column needs one row per step; cut them to the "
                "same length or mend the trajectory."
            )
        return self

    def flags(self, num_rows: int) -> np.ndarray:
        """All of it as booleans; numbers must be 0 or 1."""
        values = self.as_vector(num_rows).read(0, num_rows).reshape(num_rows)
        wrong = ~((values == 0) | (values == 1))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"column '{self.name}' holds {values[row]!r} at row {row} ({int(wrong.sum())} such rows); flags are "
                "0 or 1, so convert it to booleans."
            )
        return values.astype(np.bool_, copy=False)


def as_float32(values: np.ndarray) -> np.ndarray:
    """The values as float32; what float32 cannot hold becomes infinite, which the checks report."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32, copy=False)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def located(source: str) -> Iterator[None]:
    """Put the name of the file in front of what is wrong with it."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{source}: {error}") from None


def resembling_names(held: Iterable[str], columns: Mapping[str, object]) -> list[str]:
    """One sentence for each name in a file that is none of the columns and resembles one that is missing (None)."""
    missing = [name for name, values in columns.items() if values is None]
    return [
        f"column '{name}' is not read; if it is meant to be '{close[0]}', which is missing, rename it."
        for name in islice(held, MOST_NAMES)
        if name not in columns and (close := difflib.get_close_matches(name.lower(), missing, n=1, cutoff=0.8))
    ]


# Recorded rows → episodes: where trajectories end, which rows stay, which are final observations.


SPLITS = ("terminals", "first-success", "time-limits")
TIME_LIMITS = ("bootstrap", "end")
TELEPORTS = ("split", "keep")

JUMP_FACTOR = 10.0
JUMP_QUANTILE = 0.99
NUM_STRETCHES = 8
STRETCH_ROWS = 8_192
MATCH_TOLERANCE = 1e-4


class Layout(NamedTuple):
    """Where each row of a Dataset comes from."""

    rows: np.ndarray
    """Recorded row of each dataset row, never decreasing."""
    valid: np.ndarray
    """False on the final observation of each episode."""
    terminal: np.ndarray
    """The step ended the MDP; only on valid rows."""
    from_next: np.ndarray
    """The observation comes from ``next_observations`` of the recorded row."""


def jump_thresholds(observations: Column) -> np.ndarray:
    """For each dimension d, 10 × the 99 % quantile of |s_{t+1,d} − s_{t,d}|; infinite where that is zero.

    The quantile comes from the whole file, or from eight evenly spaced stretches of a long one. It measures
    ordinary steps as long as fewer than one row in a hundred is an unmarked reset.
    """
    num_rows = observations.num_rows
    if num_rows <= NUM_STRETCHES * STRETCH_ROWS:
        stretches = [(0, num_rows)]
    else:
        starts = np.linspace(0, num_rows - STRETCH_ROWS, NUM_STRETCHES).astype(int)
        stretches = [(start, start + STRETCH_ROWS) for start in starts]
    with np.errstate(all="ignore"):
        steps = [np.abs(np.diff(as_float32(observations.read(*stretch)), axis=0)) for stretch in stretches]
        quantile = np.quantile(np.concatenate(steps), JUMP_QUANTILE, axis=0) if num_rows > 1 else np.zeros(1)
    return np.where(quantile > 0, JUMP_FACTOR * quantile, np.inf).astype(np.float32)


def find_resets(
    states: Column, successors: Column | None, thresholds: np.ndarray, has_timeouts: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Jumps and breaks: True at row t where a reset seems to lie between the rows t and t + 1.

    A jump is a step from sₜ to sₜ₊₁ that exceeds a threshold in some dimension; it is real in a file with timeouts
    whose next observation of row t is sₜ₊₁ to the bit. A break is a next observation that is not sₜ₊₁. Checks on the
    way that all rows are finite.
    """
    jumps, breaks = np.zeros((2, states.num_rows), np.bool_)
    for start, block in states.blocks(overlap=1):
        before, after = block[:-1], block[1:]
        inside = slice(start, start + len(before))
        jumps[inside] = _leaps(before, after, thresholds)
        if successors is not None:
            ahead = as_float32(successors.read(inside.start, inside.stop))
            breaks[inside] = np.any(np.abs(ahead - after) > MATCH_TOLERANCE * (1 + np.abs(after)), axis=1)
            if has_timeouts:
                jumps[inside] &= np.any(ahead != after, axis=1)
    if successors is not None:
        successors.require_finite()
    return jumps, breaks


def _leaps(before: np.ndarray, after: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    steps = np.subtract(after, before)
    return np.any(np.abs(steps, out=steps) > thresholds, axis=1)


def lay_out(
    terminals: np.ndarray,
    trajectory_ends: np.ndarray,
    successor_known: np.ndarray,
    *,
    split: str,
    time_limit: str,
) -> Layout:
    """The layout of the dataset under the named rules.

    ``trajectory_ends`` marks the last row of each trajectory, for whatever reason; ``successor_known`` the
    rows whose own next observation is recorded. Under ``time_limit="bootstrap"`` a trajectory's last row
    without known successor gives its observation as the final one and loses its action. An episode that
    ends by a terminal without known successor repeats its last observation, which nothing bootstraps from.
    """
    trajectory_ends = trajectory_ends.copy()
    trajectory_ends[-1] = True
    keep = np.ones(len(terminals), np.bool_)
    if split == "terminals":
        ended = terminals
    elif split == "time-limits":
        ended = terminals & trajectory_ends
    else:
        seen = np.cumsum(terminals)
        first_rows = np.flatnonzero(np.concatenate([[True], trajectory_ends[:-1]]))
        seen_before_trajectory = (seen - terminals)[first_rows]
        trajectory = np.cumsum(trajectory_ends) - trajectory_ends
        keep = (seen - terminals) == seen_before_trajectory[trajectory]
        ended = terminals & keep
    last = (trajectory_ends | ended) & keep
    if time_limit == "end":
        ended = last
    becomes_final = last & ~ended & ~successor_known

    index = np.repeat(np.arange(len(terminals)), keep * (1 + (last & ~becomes_final)))
    # A row that is emitted twice is a step first and a final observation second.
    final = becomes_final[index]
    final[1:] |= index[1:] == index[:-1]
    follows_final = np.concatenate([[True], final[:-1]])
    wanted = ~(final & follows_final)
    index, final = index[wanted], final[wanted]
    return Layout(
        rows=index,
        valid=~final,
        terminal=ended[index] & ~final,
        from_next=final & successor_known[index],
    )


LARGEST_RATIO = 1e7
"""Times the usual reward; float32 has seven digits."""
SAMPLED_REWARDS = 1 << 20


def from_arrays(
    observations: Any,
    actions: Any,
    rewards: Any,
    terminals: Any = None,
    timeouts: Any = None,
    next_observations: Any = None,
    *,
    name: str = "arrays",
    split: str = "terminals",
    time_limit: str = "bootstrap",
    teleports: str = "split",
    action_bounds: tuple[Any, Any] | None = None,
    known: Bounds | None = None,
    discrete: Discrete = None,
    action_columns: Sequence[ActionColumn] = (),
    source: str = "arrays",
    task: str | None = None,
    environment: str | None = None,
    rules: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    remarks: Sequence[str] = (),
) -> Dataset:
    """A Dataset from recorded steps (sᵢ, aᵢ, rᵢ) in order, one row per step, episodes one after another.

    ``terminals`` marks steps after which the MDP ended, ``timeouts`` steps after which only the trajectory
    ended, and ``next_observations`` holds each step's own successor; all three may be missing.

    ``split`` says which steps end an episode: ``"terminals"`` every terminal; ``"first-success"`` the
    first terminal of a trajectory, whose remaining rows are dropped; ``"time-limits"`` only the end of a
    trajectory. ``time_limit`` says what follows a trajectory that was cut: ``"bootstrap"`` its final
    observation, for which a step without recorded successor gives up its action; ``"end"`` nothing, R_T =
    r_T as in the paper. ``teleports`` says what to do with jumps far outside the file's own step sizes:
    ``"split"`` the episode there, or ``"keep"`` them. ``action_bounds`` is (low, high), each a number,
    one for each dimension, or None; without them the bounds are ``known``, those of the recorded action space, else the
    task's or the environment's, else the data's own range.

    ``discrete`` says which columns of the actions hold choices rather than numbers: True all, False none, or their
    indices; by default all if the actions are of an integer type, and one choice a step may have shape (rows,).
    Values 0 … n − 1 are their own codes. ``action_columns`` says it all instead: kinds, bounds and labels, with codes
    in the actions.

    ``task`` says which benchmark task the data is of (``antmaze-medium-play``, ``door``), ``environment`` in
    which Gymnasium id policies are evaluated. Without them ``metadata``, what the file says of itself, and then
    ``name`` decide, as ``vem.tasks.resolve_task`` describes. ``remarks`` are sentences of the reader, which become
    warnings.
    """
    prepared = prepare(
        observations,
        actions,
        rewards,
        terminals,
        timeouts,
        next_observations,
        name=name,
        split=split,
        time_limit=time_limit,
        teleports=teleports,
        discrete=discrete,
        source=source,
        task=task,
        environment=environment,
        rules=rules,
        metadata=metadata,
        remarks=remarks,
    )
    rows = prepared.gather(0, prepared.num_recorded)
    if not rows.valid.any():
        raise prepared.nothing_valid()
    info = dataclasses.replace(prepared.info, action_columns=tuple(action_columns))
    if not action_columns:
        recognized = recognize(rows.actions, rows.valid, prepared.is_whole_type, discrete)
        rows = rows._replace(actions=recognized.actions)
        found = (recognized.warning,) if recognized.warning else ()
        columns = _described(recognized.choices, rows.actions.shape[1])
        info = dataclasses.replace(info, action_columns=columns, warnings=(*info.warnings, *found))
    elif action_bounds is None:
        action_bounds = ([column.low for column in action_columns], [column.high for column in action_columns])
    known = known or known_bounds(info.task, environment, rows.actions.shape[1])
    return assemble(rows, info, action_bounds, known)


def assemble(
    rows: RowBlock, info: DataInfo, action_bounds: tuple[Any, Any] | None = None, known: Bounds | None = None
) -> Dataset:
    """The Dataset of all its rows; decides the bounds and warns of what was found."""
    require_codes(rows.actions, info.action_columns)
    info = complete_info(info, rows.actions, rows.rewards, rows.valid, action_bounds, known)
    for message in info.warnings:
        warnings.warn(f"{info.name}: {message}", DataWarning, stacklevel=3)
    return Dataset(*rows, info=info, is_checked=True)


@dataclass(frozen=True)
class Prepared:
    """Recorded steps that were checked and cut into trajectories, and not yet read as a whole."""

    states: Column
    moves: Column
    rewards: Column
    successors: Column | None
    terminals: np.ndarray
    trajectory_ends: np.ndarray
    successor_known: np.ndarray
    info: DataInfo
    """Without action bounds, and with the warnings found so far."""
    is_whole_type: bool
    """Whether the actions are of an integer type."""

    @property
    def num_recorded(self) -> int:
        """Recorded steps."""
        return self.states.num_rows

    def layout(self, start: int, stop: int) -> Layout:
        """The layout of the recorded steps from ``start`` to ``stop``, which must be whole trajectories."""
        part = slice(start, stop)
        return lay_out(
            self.terminals[part],
            self.trajectory_ends[part],
            self.successor_known[part],
            split=self.info.rules["split"],
            time_limit=self.info.rules["time_limit"],
        )

    def gather(self, start: int, stop: int) -> RowBlock:
        """The dataset's rows that come from the recorded steps from ``start`` to ``stop``, whole trajectories."""
        layout = self.layout(start, stop)
        index = layout.rows + start
        observed = self.states.gather(index)
        if self.successors is not None:
            observed[layout.from_next] = self.successors.gather(index[layout.from_next])
        acted = self.moves.gather(index)
        acted[~layout.valid] = 0
        rewarded = self.rewards.gather(index).reshape(-1)
        rewarded[~layout.valid] = 0
        return RowBlock(observed, acted, rewarded, layout.valid, layout.terminal)

    def nothing_valid(self) -> DataError:
        """What to say of trajectories without a single transition."""
        return DataError(
            f"no valid transition in {self.num_recorded} rows: each step is the last of its trajectory and has no "
            "known successor. Check 'timeouts', record 'next_observations', or use time_limit='end' (--time-limit end)."
        )


def prepare(
    observations: Any,
    actions: Any,
    rewards: Any,
    terminals: Any = None,
    timeouts: Any = None,
    next_observations: Any = None,
    *,
    name: str = "arrays",
    split: str = "terminals",
    time_limit: str = "bootstrap",
    teleports: str = "split",
    discrete: Discrete = None,
    source: str = "arrays",
    task: str | None = None,
    environment: str | None = None,
    rules: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    remarks: Sequence[str] = (),
) -> Prepared:
    """The recorded steps, checked in one pass over each column; the arguments are those of ``from_arrays``."""
    said: dict[str, Any] = {"split": split, "time_limit": time_limit, "teleports": teleports}
    for (rule, value), choices in zip(said.items(), (SPLITS, TIME_LIMITS, TELEPORTS), strict=True):
        if value not in choices:
            raise SettingsError(f"{rule}={value!r} is unknown; choose one of {', '.join(choices)}.")
    states = _column("observations", observations).as_matrix()
    num_rows = states.num_rows
    moves = _column("actions", actions)
    is_whole_type = moves.values.dtype.kind in "iub"
    if len(moves.shape) == 1 and moves.num_rows and (is_whole_type if discrete is None else discrete is not False):
        moves = Column("actions", moves.read(0, moves.num_rows)[:, None])  # one choice a step
    moves = moves.as_matrix().of_length(num_rows)
    found = list(remarks)
    sizes = (states.shape[1], moves.shape[1])
    resolved = resolve_task(
        task=task, environment=environment, metadata=metadata, name=name, source=source, sizes=sizes
    )
    if resolved.warning:
        found.append(resolved.warning)
    reward = _column("rewards", rewards).as_vector(num_rows)
    reward.require_finite()
    moves.require_finite()
    ends, limits = (
        None if values is None else _column(column, values).flags(num_rows)
        for column, values in (("terminals", terminals), ("timeouts", timeouts))
    )
    successors = None if next_observations is None else _successors(next_observations, states)
    trajectory_ends, successor_known = _trajectories(states, successors, ends, limits, split, teleports, found)
    if discrete is not None:
        said["discrete"] = discrete if isinstance(discrete, bool) else list(discrete)
    info = DataInfo(
        name=name,
        source=source,
        task=resolved.task.name if resolved.task else None,
        task_source=resolved.source,
        environment=resolved.environment,
        rules={**said, **(rules or {})},
        metadata=metadata or {},
        warnings=tuple(found),
    )
    terminal_rows = np.zeros(num_rows, np.bool_) if ends is None else ends
    parts = (states, moves, reward, successors, terminal_rows, trajectory_ends, successor_known)
    return Prepared(*parts, info, is_whole_type)


def complete_info(
    info: DataInfo,
    actions: np.ndarray,
    rewards: np.ndarray,
    valid: np.ndarray,
    action_bounds: tuple[Any, Any] | None,
    known: Bounds | None = None,
) -> DataInfo:
    """``info`` with the action bounds, and with the warnings that need all rows; as it is if it has bounds already."""
    if info.action_low and action_bounds is None:
        return info
    found, size = list(info.warnings), actions.shape[1]
    names = [column.name for column in info.action_columns]
    known = known or known_bounds(info.task, None, size)
    given = action_bounds
    if choices := choices_of(info.action_columns):
        # Codes have bounds of their own and must leave no trace in those of the numbers.
        is_choice = np.asarray(choices) > 0
        actions = np.where(is_choice, np.float32(0), actions)
        if given is not None:
            low, high = bounds_to_json(given, size)
            given = (
                [-1.0 if choice else bound for choice, bound in zip(choices, low, strict=True)],
                [1.0 if choice else bound for choice, bound in zip(choices, high, strict=True)],
            )
    limits = action_limits(actions, valid, given, known, names)
    if limits.warning:
        found.append(limits.warning)
    if not rewards.any():
        found.append(
            "column 'rewards' is zero in every step, so every policy looks equally good; check the "
            "trajectory, or label it with a reward."
        )
    elif remark := _outlying_reward(rewards):
        found.append(remark)
    rules = {} if action_bounds is None else {"action_bounds": bounds_to_json(action_bounds, size)}
    info = dataclasses.replace(info, rules={**info.rules, **rules}, warnings=tuple(found))
    return with_bounds(info, limits)


def _outlying_reward(rewards: np.ndarray) -> str | None:
    """One sentence if a reward is so large that float32 cannot tell the others from zero beside it."""
    sample = np.abs(rewards[:: max(1, len(rewards) // SAMPLED_REWARDS)])
    sample = np.sort(sample[sample > 0])
    low, high = float(rewards.min()), float(rewards.max())
    usual, largest = float(sample[int(0.99 * (len(sample) - 1))]) if len(sample) else np.inf, max(-low, high)
    if largest <= LARGEST_RATIO * usual:
        return None
    row = int(np.argmax(rewards == (high if high == largest else low)))
    return (
        f"column 'rewards' holds {float(rewards[row]):g} at row {row} of the dataset, and 99 % of the others are "
        f"within ±{usual:.3g}: beside it they vanish. Check the trajectory; a sentinel or an overflow is no reward."
    )


def _trajectories(
    states: Column,
    successors: Column | None,
    terminals: np.ndarray | None,
    timeouts: np.ndarray | None,
    split: str,
    teleports: str,
    found: list[str],
) -> tuple[np.ndarray, np.ndarray]:
    """The last row of each trajectory, and the rows whose own successor is recorded and can be believed."""
    num_rows = states.num_rows
    nothing = np.zeros(num_rows, np.bool_)
    terminal = nothing if terminals is None else terminals
    trajectory_ends = nothing.copy() if timeouts is None else timeouts.copy()
    trajectory_ends[-1] = True
    if timeouts is None and successors is None:
        trajectory_ends |= terminal
    keep_jumps = np.full(states.shape[1], np.inf, np.float32)
    thresholds = jump_thresholds(states) if teleports == "split" else keep_jumps
    jumps, breaks = find_resets(states, successors, thresholds, timeouts is not None)
    unmarked = breaks & ~trajectory_ends & ~terminal
    if timeouts is not None and unmarked.any():
        found.append(
            "column 'next_observations' differs from the following row of 'observations' at "
            f"{unmarked.sum()} steps that neither 'terminals' nor 'timeouts' marks, first at row "
            f"{np.argmax(unmarked)}: unmarked resets, treated as time limits. Mark them in 'timeouts'."
        )
    trajectory_ends |= breaks
    # A jump right after a terminal is an ordinary reset in a file whose timeouts mark time limits only.
    already = trajectory_ends | terminal if split == "terminals" else trajectory_ends
    jumps &= ~already
    surprising = jumps & ~terminal
    if surprising.any():
        found.append(
            f"column 'observations' jumps at {surprising.sum()} steps inside an episode, first after row "
            f"{np.argmax(surprising)}, by more than {JUMP_FACTOR:g} times the 99 % quantile of "
            "its steps: unmarked resets, treated as time limits. Mark them in 'timeouts' (of a table: map episode or "
            "time), or, if they are real, keep them with teleports='keep' (--teleports keep on the command line)."
        )
    trajectory_ends |= jumps
    successor_known = nothing.copy() if successors is None else ~jumps
    return trajectory_ends, successor_known


def _described(choices: dict[int, tuple[str, ...]], size: int) -> tuple[ActionColumn, ...]:
    """The columns of actions some of which are choices; empty if none is. The bounds of numbers are not known yet."""
    names = [f"action {index}" for index in range(size)] if choices else []
    box = lambda name: ActionColumn(name, "box", 0.0, 0.0)
    return tuple(discrete_column(n, choices[i]) if i in choices else box(n) for i, n in enumerate(names))


def _column(name: str, values: Any) -> Column:
    return values if isinstance(values, Column) else Column(name, values)


def _successors(values: Any, states: Column) -> Column:
    column = _column("next_observations", values).as_matrix().of_length(states.num_rows)
    if column.shape != states.shape:
        raise DataError(
            f"column 'next_observations' has shape {column.shape}, 'observations' {states.shape}; they must agree."
        )
    return column
