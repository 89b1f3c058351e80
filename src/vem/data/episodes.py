"""Recorded rows → episodes: where recordings end, which rows stay, which are final observations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vem.data.checks import FiniteCheck
from vem.data.columns import Column

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
        steps = [np.abs(np.diff(observations.read(*stretch).astype(np.float32), axis=0)) for stretch in stretches]
        quantile = np.quantile(np.concatenate(steps), JUMP_QUANTILE, axis=0) if num_rows > 1 else np.zeros(1)
    return np.where(quantile > 0, JUMP_FACTOR * quantile, np.inf).astype(np.float32)


def find_jumps(observations: Column, thresholds: np.ndarray | None) -> np.ndarray:
    """True at row t if the step from t to t + 1 exceeds a threshold in some dimension.

    Checks on the way that all rows are finite.
    """
    finite = FiniteCheck(observations.name)
    jumps = np.zeros(observations.num_rows, np.bool_)
    previous = None
    for start, block in observations.blocks():
        finite.see(start, block)
        if thresholds is not None and not finite.count:
            if previous is not None:
                jumps[start - 1] = (np.abs(block[0] - previous) > thresholds).any()
            steps = np.subtract(block[1:], block[:-1])
            jumps[start : start + len(steps)] = (np.abs(steps, out=steps) > thresholds).any(axis=1)
            previous = block[-1].copy()
    finite.finish()
    return jumps


def find_breaks(observations: Column, next_observations: Column) -> np.ndarray:
    """True at row t if ``next_observations[t]`` is not ``observations[t + 1]``: a reset lies between them.

    The last row counts as a break. Checks on the way that all next observations are finite.
    """
    finite = FiniteCheck(next_observations.name)
    breaks = np.ones(observations.num_rows, np.bool_)
    for start, block in next_observations.blocks():
        finite.see(start, block)
        following = observations.read(start + 1, start + 1 + len(block)).astype(np.float32)
        block = block[: len(following)]
        apart = np.abs(block - following) > MATCH_TOLERANCE * (1 + np.abs(following))
        breaks[start : start + len(following)] = apart.any(axis=1)
    finite.finish()
    return breaks


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
