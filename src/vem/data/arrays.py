"""Arrays → Dataset: the one builder in which every reader ends."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vem.data import checks, episodes
from vem.data.action_columns import ActionColumn, Discrete, discrete_column, recognize, require_codes
from vem.data.columns import Column
from vem.data.dataset import DataInfo, Dataset, RowBlock
from vem.errors import DataError, DataWarning
from vem.tasks import resolve_task


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
    discrete: Discrete = None,
    action_columns: Sequence[ActionColumn] = (),
    source: str = "arrays",
    task: str | None = None,
    environment: str | None = None,
    rules: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
) -> Dataset:
    """A Dataset from recorded steps (sᵢ, aᵢ, rᵢ) in order, one row per step, episodes one after another.

    ``terminals`` marks steps after which the MDP ended, ``timeouts`` steps after which only the recording
    ended, and ``next_observations`` holds each step's own successor; all three may be missing.

    ``split`` says which steps end an episode: ``"terminals"`` every terminal; ``"first-success"`` the
    first terminal of a recording, whose remaining rows are dropped; ``"time-limits"`` only the end of a
    recording. ``time_limit`` says what follows a recording that was cut: ``"bootstrap"`` its final
    observation, for which a step without recorded successor gives up its action; ``"end"`` nothing, R_T =
    r_T as in the paper. ``teleports`` says what to do with jumps far outside the file's own step sizes:
    ``"split"`` the episode there, or ``"keep"`` them. ``action_bounds`` is (low, high); by default [−1, 1]
    if all actions lie there, else the data's own range.

    ``discrete`` says which columns of the actions hold choices rather than numbers: True all, False none, or their
    indices; by default all if the actions are of an integer type, and one choice a step may have shape (rows,).
    Values 0 … n − 1 are their own codes. ``action_columns`` says it all instead: kinds, bounds and labels, with codes
    in the actions.

    ``task`` says which benchmark task the data is of (``antmaze-medium-play``, ``door``), ``environment`` in
    which Gymnasium id policies are evaluated. Without them ``metadata``, what the file says of itself, and then
    ``name`` decide, as ``vem.tasks.resolve_task`` describes.
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
    )
    rows = prepared.gather(0, prepared.num_recorded)
    if not rows.valid.any():
        raise prepared.nothing_valid()
    info = dataclasses.replace(prepared.info, action_columns=tuple(action_columns))
    if info.action_columns:
        require_codes(rows.actions, info.action_columns)
        choices = {index: column.labels for index, column in enumerate(action_columns) if column.kind == "discrete"}
        action_bounds = ([column.low for column in action_columns], [column.high for column in action_columns])
    else:
        recognized = recognize(rows.actions, rows.valid, prepared.is_whole_type, discrete)
        rows, choices = rows._replace(actions=recognized.actions), recognized.choices
        if recognized.warning:
            info = dataclasses.replace(info, warnings=(*info.warnings, recognized.warning))
    info = complete_info(info, rows.actions, rows.rewards, rows.valid, action_bounds, choices)
    for message in info.warnings:
        warnings.warn(f"{name}: {message}", DataWarning, stacklevel=2)
    return Dataset(*rows, info=info)


@dataclass(frozen=True)
class Prepared:
    """Recorded steps that were checked and cut into recordings, and not yet read as a whole."""

    states: Column
    moves: Column
    rewards: Column
    successors: Column | None
    terminals: np.ndarray
    recording_ends: np.ndarray
    successor_known: np.ndarray
    info: DataInfo
    """Without action bounds, and with the warnings found so far."""
    is_whole_type: bool
    """Whether the actions are of an integer type."""

    @property
    def num_recorded(self) -> int:
        """Recorded steps."""
        return self.states.num_rows

    def layout(self, start: int, stop: int) -> episodes.Layout:
        """The layout of the recorded steps from ``start`` to ``stop``, which must be whole recordings."""
        part = slice(start, stop)
        return episodes.lay_out(
            self.terminals[part],
            self.recording_ends[part],
            self.successor_known[part],
            split=self.info.rules["split"],
            time_limit=self.info.rules["time_limit"],
        )

    def gather(self, start: int, stop: int) -> RowBlock:
        """The dataset's rows that come from the recorded steps from ``start`` to ``stop``, whole recordings."""
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
        """What to say of recordings without a single transition."""
        return DataError(
            f"no valid transition in {self.num_recorded} rows: each step is the last of its recording and has no "
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
) -> Prepared:
    """The recorded steps, checked in one pass over each column; the arguments are those of ``from_arrays``."""
    checks.require_choice("split", split, episodes.SPLITS)
    checks.require_choice("time_limit", time_limit, episodes.TIME_LIMITS)
    checks.require_choice("teleports", teleports, episodes.TELEPORTS)

    states = checks.require_matrix(_column("observations", observations))
    num_rows = states.num_rows
    moves = _column("actions", actions)
    is_whole_type = moves.values.dtype.kind in "iub"
    moves = checks.require_actions(moves, is_whole_type if discrete is None else discrete is not False)
    checks.require_length(moves, num_rows)
    found: list[str] = []
    sizes = (states.shape[1], moves.shape[1])
    resolved = resolve_task(
        task=task, environment=environment, metadata=metadata, name=name, source=source, sizes=sizes
    )
    if resolved.warning:
        found.append(resolved.warning)
    reward = checks.require_single(_column("rewards", rewards), num_rows)
    checks.require_finite(reward)
    checks.require_finite(moves)
    ends = _flags("terminals", terminals, num_rows)
    limits = _flags("timeouts", timeouts, num_rows)
    successors = None if next_observations is None else _successors(next_observations, states)
    recording_ends, successor_known = _recordings(states, successors, ends, limits, split, teleports, found)
    said = {} if discrete is None else {"discrete": discrete if isinstance(discrete, bool) else list(discrete)}
    info = DataInfo(
        name=name,
        source=source,
        task=resolved.task.name if resolved.task else None,
        task_source=resolved.source,
        environment=resolved.environment,
        rules={"split": split, "time_limit": time_limit, "teleports": teleports, **said, **(rules or {})},
        metadata=metadata or {},
        warnings=tuple(found),
    )
    terminal_rows = np.zeros(num_rows, np.bool_) if ends is None else ends
    parts = (states, moves, reward, successors, terminal_rows, recording_ends, successor_known)
    return Prepared(*parts, info, is_whole_type)


def complete_info(
    info: DataInfo,
    actions: np.ndarray,
    rewards: np.ndarray,
    valid: np.ndarray,
    action_bounds: tuple[Any, Any] | None,
    choices: dict[int, tuple[str, ...]] | None = None,
) -> DataInfo:
    """``info`` with the action bounds, and with the warnings that need all rows; ``choices`` are labels by column."""
    found = list(info.warnings)
    low, high, beyond = _action_limits(actions, valid, action_bounds, choices or {})
    if beyond:
        found.append(beyond)
    if not rewards.any():
        found.append(
            "column 'rewards' is zero in every step, so every policy looks equally good; check the "
            "recording, or label it with a reward."
        )
    columns = info.action_columns
    if columns or choices:
        columns = _describe(columns or [None] * len(low), low, high, choices or {})
    return dataclasses.replace(
        info,
        action_low=tuple(map(float, low)),
        action_high=tuple(map(float, high)),
        action_columns=tuple(columns),
        warnings=tuple(found),
    )


def _recordings(
    states: Column,
    successors: Column | None,
    terminals: np.ndarray | None,
    timeouts: np.ndarray | None,
    split: str,
    teleports: str,
    found: list[str],
) -> tuple[np.ndarray, np.ndarray]:
    """The last row of each recording, and the rows whose own successor is recorded and can be believed."""
    num_rows = states.num_rows
    nothing = np.zeros(num_rows, np.bool_)
    terminal = nothing if terminals is None else terminals
    recording_ends = nothing.copy() if timeouts is None else timeouts.copy()
    recording_ends[-1] = True
    if timeouts is None and successors is None:
        recording_ends |= terminal
    keep_jumps = np.full(states.shape[1], np.inf, np.float32)
    thresholds = episodes.jump_thresholds(states) if teleports == "split" else keep_jumps
    jumps, breaks = episodes.find_resets(states, successors, thresholds)
    unmarked = breaks & ~recording_ends & ~terminal
    if timeouts is not None and unmarked.any():
        found.append(
            "column 'next_observations' differs from the following row of 'observations' at "
            f"{unmarked.sum()} steps that neither 'terminals' nor 'timeouts' marks, first at row "
            f"{np.argmax(unmarked)}: unmarked resets, treated as time limits. Mark them in 'timeouts'."
        )
    recording_ends |= breaks
    # A jump right after a terminal is an ordinary reset in a file whose timeouts mark time limits only.
    already = recording_ends | terminal if split == "terminals" else recording_ends
    jumps &= ~already
    surprising = jumps & ~terminal
    if surprising.any():
        found.append(
            f"column 'observations' jumps at {surprising.sum()} steps inside an episode, first after row "
            f"{np.argmax(surprising)}, by more than {episodes.JUMP_FACTOR:g} times the 99 % quantile of "
            "its steps: unmarked resets, treated as time limits. Mark them in 'timeouts', or, if they "
            "are real, keep them with teleports='keep' (--teleports keep on the command line)."
        )
    recording_ends |= jumps
    successor_known = nothing.copy() if successors is None else ~jumps
    return recording_ends, successor_known


def _action_limits(
    actions: np.ndarray, valid: np.ndarray, bounds: tuple[Any, Any] | None, choices: dict[int, tuple[str, ...]]
) -> tuple[np.ndarray, np.ndarray, str | None]:
    """Bounds of all columns: those of numbers as ``checks.action_limits`` finds them, those of choices 0 and n − 1."""
    if not choices:
        return checks.action_limits(actions, valid, bounds)
    is_choice = np.isin(np.arange(actions.shape[1]), list(choices))
    if bounds is not None:
        low, high = (checks.require_bound(value, len(is_choice)) for value in bounds)
        bounds = (np.where(is_choice, -np.inf, low), np.where(is_choice, np.inf, high))
    # Without their own numbers, choices leave no trace in the others' bounds.
    low, high, beyond = checks.action_limits(np.where(is_choice, np.float32(0), actions), valid, bounds)
    for index, labels in choices.items():
        low[index], high[index] = 0, len(labels) - 1
    return low, high, beyond


def _describe(
    given: Sequence[ActionColumn | None], low: np.ndarray, high: np.ndarray, choices: dict[int, tuple[str, ...]]
) -> tuple[ActionColumn, ...]:
    columns = []
    for index, column in enumerate(given):
        name = f"action {index}" if column is None else column.name
        if index in choices:
            columns.append(discrete_column(name, choices[index]))
        else:
            columns.append(ActionColumn(name, "box", float(low[index]), float(high[index])))
    return tuple(columns)


def _column(name: str, values: Any) -> Column:
    if values is None:
        raise DataError(f"column '{name}' is missing; observations, actions and rewards are needed.")
    return values if isinstance(values, Column) else Column(name, values)


def _flags(name: str, values: Any, num_rows: int) -> np.ndarray | None:
    if values is None:
        return None
    return checks.require_flags(name, checks.require_vector(_column(name, values), num_rows))


def _successors(values: Any, states: Column) -> Column:
    column = checks.require_matrix(_column("next_observations", values))
    checks.require_length(column, states.num_rows)
    if column.shape != states.shape:
        raise DataError(
            f"column 'next_observations' has shape {column.shape}, 'observations' {states.shape}; they must agree."
        )
    return column
