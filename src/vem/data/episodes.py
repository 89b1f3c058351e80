"""Recorded rows → episodes: where recordings end, which rows stay, which are final observations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vem.data.checks import FiniteCheck
from vem.data.columns import Column, as_float32

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
    observations: Column, next_observations: Column | None, thresholds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Jumps and breaks: True at row t where a reset seems to lie between the rows t and t + 1.

    A jump is a step from sₜ to sₜ₊₁ that exceeds a threshold in some dimension; a break is a next
    observation of row t that is not sₜ₊₁ (none without ``next_observations``). Checks on the way that all
    rows are finite.
    """
    jumps, breaks = np.zeros((2, observations.num_rows), np.bool_)
    finite, finite_next = FiniteCheck(observations.name), FiniteCheck("next_observations")
    before = before_next = None
    for start, block in observations.blocks():
        finite.see(start, block)
        following = None
        if next_observations is not None:
            following = as_float32(next_observations.read(start, start + len(block)))
            finite_next.see(start, following)
        if finite.count or finite_next.count:
            continue
        inside = slice(start, start + len(block) - 1)
        jumps[inside] = _leaps(block[:-1], block[1:], thresholds)
        if before is not None:
            jumps[start - 1] = _leaps(before, block[:1], thresholds)[0]
        if following is not None:
            breaks[inside] = _differ(following[:-1], block[1:])
            if before_next is not None:
                breaks[start - 1] = _differ(before_next, block[:1])[0]
            before_next = following[-1:].copy()
        before = block[-1:].copy()
    finite.finish()
    finite_next.finish()
    return jumps, breaks


def _leaps(before: np.ndarray, after: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    steps = np.subtract(after, before)
    return np.any(np.abs(steps, out=steps) > thresholds, axis=1)


def _differ(successor: np.ndarray, observation: np.ndarray) -> np.ndarray:
    return np.any(np.abs(successor - observation) > MATCH_TOLERANCE * (1 + np.abs(observation)), axis=1)


def lay_out(
    terminals: np.ndarray,
    recording_ends: np.ndarray,
    successor_known: np.ndarray,
    *,
    split: str,
    time_limit: str,
) -> Layout:
    """The layout of the dataset under the named rules.

    ``recording_ends`` marks the last row of each recording, for whatever reason; ``successor_known`` the
    rows whose own next observation is recorded. Under ``time_limit="bootstrap"`` a recording's last row
    without known successor gives its observation as the final one and loses its action. An episode that
    ends by a terminal without known successor repeats its last observation, which nothing bootstraps from.
    """
    recording_ends = recording_ends.copy()
    recording_ends[-1] = True
    keep = np.ones(len(terminals), np.bool_)
    if split == "terminals":
        ended = terminals
    elif split == "time-limits":
        ended = terminals & recording_ends
    else:
        seen = np.cumsum(terminals)
        first_rows = np.flatnonzero(np.concatenate([[True], recording_ends[:-1]]))
        seen_before_recording = (seen - terminals)[first_rows]
        recording = np.cumsum(recording_ends) - recording_ends
        keep = (seen - terminals) == seen_before_recording[recording]
        ended = terminals & keep
    last = (recording_ends | ended) & keep
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
