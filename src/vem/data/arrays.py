"""Arrays → Dataset: the one builder in which every reader ends."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from vem.data import checks, episodes
from vem.data.action_columns import ActionColumn
from vem.data.bounds import Bounds, action_limits, bounds_to_json, known_bounds
from vem.data.columns import Column
from vem.data.dataset import DataInfo, Dataset
from vem.data.encoding import Encoder
from vem.errors import DataError, DataWarning
from vem.tasks import Resolved, resolve_task


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
    ``"split"`` the episode there, or ``"keep"`` them. ``action_bounds`` is (low, high), each a number,
    one for each dimension, or None; without them the bounds are ``known``, those of the recorded action space, else the
    task's or the environment's, else the data's own range.

    ``task`` says which benchmark task the data is of (``antmaze-medium-play``, ``door``), ``environment`` in
    which Gymnasium id policies are evaluated. Without them ``metadata``, what the file says of itself, and then
    ``name`` decide, as ``vem.tasks.resolve_task`` describes.
    """
    checks.require_choice("split", split, episodes.SPLITS)
    checks.require_choice("time_limit", time_limit, episodes.TIME_LIMITS)
    checks.require_choice("teleports", teleports, episodes.TELEPORTS)

    states = checks.require_matrix(_column("observations", observations))
    num_rows = states.num_rows
    moves = checks.require_matrix(_column("actions", actions))
    checks.require_length(moves, num_rows)
    found: list[str] = []
    sizes = (states.shape[1], moves.shape[1])
    resolved = resolve_task(
        task=task, environment=environment, metadata=metadata, name=name, source=source, sizes=sizes
    )
    if resolved.warning:
        found.append(resolved.warning)
    reward = checks.require_vector(_column("rewards", rewards), num_rows)
    checks.require_finite(Column("rewards", reward))
    checks.require_finite(moves)
    ends = _flags("terminals", terminals, num_rows)
    limits = _flags("timeouts", timeouts, num_rows)
    successors = None if next_observations is None else _successors(next_observations, states)

    recording_ends, successor_known = _recordings(states, successors, ends, limits, split, teleports, found)
    terminal_rows = np.zeros(num_rows, np.bool_) if ends is None else ends
    layout = episodes.lay_out(terminal_rows, recording_ends, successor_known, split=split, time_limit=time_limit)
    if not layout.valid.any():
        raise DataError(
            f"no valid transition in {num_rows} rows: each step is the last of its recording and has no "
            "known successor. Check 'timeouts', record 'next_observations', or use time_limit='end' (--time-limit end)."
        )

    observed = states.gather(layout.rows)
    if successors is not None:
        observed[layout.from_next] = successors.gather(layout.rows[layout.from_next])
    acted = moves.gather(layout.rows)
    acted[~layout.valid] = 0
    rewarded = Column("rewards", reward).gather(layout.rows)
    rewarded[~layout.valid] = 0

    return assemble(
        observed,
        acted,
        rewarded,
        layout,
        resolved=resolved,
        action_bounds=action_bounds,
        known=known,
        found=found,
        name=name,
        source=source,
        rules={"split": split, "time_limit": time_limit, "teleports": teleports, **(rules or {})},
        metadata=metadata or {},
    )


def assemble(
    observations: np.ndarray,
    actions: np.ndarray,
    rewards: np.ndarray,
    layout: episodes.Layout,
    *,
    resolved: Resolved,
    rules: dict[str, Any],
    found: list[str],
    action_bounds: tuple[Any, Any] | None = None,
    known: Bounds | None = None,
    action_columns: tuple[ActionColumn, ...] = (),
    encoder: Encoder | None = None,
    **facts: Any,
) -> Dataset:
    """The Dataset of rows that are laid out already; decides the bounds and says what was ``found``.

    The action columns are the encoder's, if there is one; the bounds are written into them.

    Rows that are not valid must hold zeros for the action and the reward. ``facts`` are other fields of ``DataInfo``.
    """
    action_columns = encoder.outputs if encoder else action_columns
    limits = action_limits(
        actions,
        layout.valid,
        action_bounds,
        known or known_bounds(resolved, actions.shape[1]),
        [column.name for column in action_columns],
    )
    if action_bounds is not None:
        rules = {**rules, "action_bounds": bounds_to_json(action_bounds, actions.shape[1])}
    if limits.warning:
        found.append(limits.warning)
    if not rewards.any():
        found.append(
            "column 'rewards' is zero in every step, so every policy looks equally good; check the "
            "recording, or label it with a reward."
        )
    low, high = map(float, limits.low), map(float, limits.high)
    if action_columns:
        action_columns = tuple(map(_bounded, action_columns, low, high))
        low, high = (c.low for c in action_columns), (c.high for c in action_columns)
    for message in found:
        warnings.warn(f"{facts['name']}: {message}", DataWarning, stacklevel=3)
    return Dataset(
        observations=observations,
        actions=actions,
        rewards=rewards,
        valid=layout.valid,
        terminal=layout.terminal,
        info=DataInfo(
            action_low=tuple(low),
            action_high=tuple(high),
            bounds_source=limits.source,
            action_columns=action_columns,
            encoder=dataclasses.replace(encoder, outputs=action_columns) if encoder else None,
            task=resolved.task.name if resolved.task else None,
            task_source=resolved.source,
            environment=resolved.environment,
            rules=rules,
            warnings=tuple(found),
            **facts,
        ),
    )


def _bounded(column: ActionColumn, low: float, high: float) -> ActionColumn:
    """The column with its bounds; those of a discrete one are its codes'."""
    if column.kind == "discrete":
        low, high = 0.0, len(column.labels) - 1.0
    return dataclasses.replace(column, low=low, high=high)


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
