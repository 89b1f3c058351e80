"""Plans over recorded trajectories: what each row could still earn, by following the trajectory and leaving it well.

Section 3.2 of the paper. Every plan here is a backward recursion along the rows in which row t maps the return of row
t+1 to its own by

    x ↦ max(floor_t, offset_t + slope_t · x).

Such maps compose to maps of the same kind, so a plan over whole episodes is one blocked scan over the flat rows, and
a plan over at most n steps takes log₂ n compositions. The last row of an episode is a constant map, which keeps
episodes apart without any special case. Rows are the last axis; critics, seeds or expectiles may lead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

NEVER = -1e30
"""Stands for −∞ where −∞ would meet a zero slope."""

LANES = 1024
"""Blocks of rows that one plan works on side by side."""

SLICE_ROWS = 1024
"""Rows that networks value at a time: their hidden layers then stay in the processor's cache."""


class Backup(NamedTuple):
    """x ↦ max(floor, offset + slope·x), one such map for each row.

    ``floor`` and ``offset`` have a first axis of one entry, or of two: then the first entry decides which side of the
    maximum is taken and the second is carried along with it.
    """

    floor: jax.Array
    offset: jax.Array
    slope: jax.Array


class Steps(NamedTuple):
    """What a plan needs of the data, row by row."""

    rewards: jax.Array
    continues: jax.Array
    """γ, or 0 where the step ended the MDP."""
    valid: jax.Array


def _select(first: jax.Array, second: jax.Array) -> jax.Array:
    """The larger by its first entry; on ties the first, which is the shorter rollout."""
    return jnp.where(first[:1] >= second[:1], first, second)


def _apply(backup: Backup, later: jax.Array) -> jax.Array:
    return _select(backup.floor, backup.offset + backup.slope * later)


def _compose(earlier: Backup, later: Backup) -> Backup:
    """The map of following ``later`` and then ``earlier``."""
    return Backup(
        floor=_select(earlier.floor, earlier.offset + earlier.slope * later.floor),
        offset=earlier.offset + earlier.slope * later.offset,
        slope=earlier.slope * later.slope,
    )


def _shift(rows: jax.Array, count: int) -> jax.Array:
    """Row t takes the place of row t − count; past the last row, zeros (that row is constant, so they are not used)."""
    count = min(count, rows.shape[-1])
    return jnp.pad(rows[..., count:], [(0, 0)] * (rows.ndim - 1) + [(0, count)])


def _window(backup: Backup, num_steps: int) -> Backup:
    """For each row the composition of ``num_steps`` maps from that row on, by repeated doubling."""
    result, covered, power, width = None, 0, backup, 1
    while True:
        if num_steps & width:
            shifted = jax.tree.map(lambda rows, by=covered: _shift(rows, by), power)
            result = power if result is None else _compose(result, shifted)
            covered += width
        if covered == num_steps:
            assert result is not None
            return result
        power = _compose(power, jax.tree.map(lambda rows, by=width: _shift(rows, by), power))
        width *= 2


def _whole(backup: Backup) -> jax.Array:
    """Each row's return when its trajectory is followed to the end: x_t = backup_t(x_{t+1}).

    Rows are cut into lanes. One pass composes each lane into a single map, a short scan links the lanes, and a second
    pass runs the recursion itself in all lanes at once.
    """
    num_rows = backup.slope.shape[-1]
    length = -(-num_rows // LANES)

    def lanes(rows: jax.Array) -> jax.Array:
        padded = jnp.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, LANES * length - num_rows)])
        return jnp.moveaxis(padded.reshape(*rows.shape[:-1], LANES, length), -1, 0)

    by_step = jax.tree.map(lanes, backup)
    identity = Backup(
        floor=jnp.full_like(by_step.floor[0], NEVER),
        offset=jnp.zeros_like(by_step.offset[0]),
        slope=jnp.ones_like(by_step.slope[0]),
    )
    total, _ = jax.lax.scan(lambda later, step: (_compose(step, later), None), identity, by_step, reverse=True)
    by_lane = jax.tree.map(lambda rows: jnp.moveaxis(rows, -1, 0), total)
    start = jnp.zeros_like(by_lane.floor[0])
    _, entering = jax.lax.scan(lambda x, lane: (_apply(lane, x), x), start, by_lane, reverse=True)
    entering = jnp.moveaxis(entering, 0, -1)

    def follow(later: jax.Array, step: Backup) -> tuple[jax.Array, jax.Array]:
        now = _apply(step, later)
        return now, now

    _, returns = jax.lax.scan(follow, entering, by_step, reverse=True)
    return jnp.moveaxis(returns, 0, -1).reshape(*entering.shape[:-1], -1)[..., :num_rows]


def _run(backup: Backup, num_steps: int | None) -> jax.Array:
    if num_steps is None:
        return _whole(backup)
    return _apply(_window(backup, num_steps), jnp.full_like(backup.offset, NEVER))


def _backup(floor: jax.Array, offset: jax.Array, slope: jax.Array, at_end: jax.Array, valid: jax.Array) -> Backup:
    """The map of a step on valid rows and the constant ``at_end`` on final observations."""
    shape = jnp.broadcast_shapes(floor.shape, offset.shape)
    return Backup(
        floor=jnp.broadcast_to(jnp.where(valid, floor, NEVER), shape),
        offset=jnp.broadcast_to(jnp.where(valid, offset, at_end), shape),
        slope=jnp.broadcast_to(jnp.where(valid, slope, 0), shape[1:]),
    )


def one_step(values: jax.Array, steps: Steps) -> jax.Array:
    """R_t = r_t + γ·V(s_{t+1})."""
    return jnp.where(steps.valid, steps.rewards + steps.continues * _shift(values, 1), values)


def episodic_maximum(values: jax.Array, steps: Steps, num_steps: int | None = None, least_steps: int = 1) -> jax.Array:
    """R of every row by the paper's algorithm 2: eq. 5, which unrolled is eq. 6.

        R[T] = V(s[T])                                # of the final observation
        for t in reversed(range(T)):
            R[t] = r[t] + γ[t]·max(R[t + 1], V(s[t + 1]))

    where γ[t] is 0 if the step ended the task. Unrolled, R_t is the largest r_t + … + γⁿ⁻¹·r_{t+n−1} + γⁿ·V(s_{t+n})
    with n from ``least_steps`` (the paper's: 1) up to ``num_steps`` (n_max) or to the episode's end; a row with fewer
    steps left than ``least_steps`` follows its trajectory to the end.
    """
    floor = one_step(values, steps)[None]
    backup = _backup(floor, steps.rewards, steps.continues, jnp.asarray(NEVER, values.dtype), steps.valid)
    if least_steps == 1:
        return jnp.where(steps.valid, _run(backup, num_steps)[0], values)
    left = None if num_steps is None else num_steps - least_steps
    best = values if left == 0 else jnp.where(steps.valid, jnp.maximum(values, _run(backup, left)[0]), values)
    return n_step(best, steps, least_steps)


def crossed_maximum(values: jax.Array, steps: Steps, num_steps: int | None = None) -> jax.Array:
    """The authors' double selection for two groups of critics, ``values`` of shape (2, rows).

    Group g picks the rollout length n by its own values; the return at that n is read off the other group's values,
    and is never less than the group's own one-step return.
    """
    own = one_step(values, steps)
    floor = jnp.stack([own, own[::-1]])
    backup = _backup(floor, steps.rewards, steps.continues, jnp.asarray(NEVER, values.dtype), steps.valid)
    crossed = _run(backup, num_steps)[1]
    return jnp.where(steps.valid, jnp.maximum(crossed, own), values)


def n_step(values: jax.Array, steps: Steps, num_steps: int) -> jax.Array:
    """R_t = Σ_{i<n} γⁱ·r_{t+i} + γⁿ·V(s_{t+n}), with n = ``num_steps`` or the steps left, if fewer."""
    never = jnp.full_like(values, NEVER)[None]
    backup = _backup(never, steps.rewards, steps.continues, values, steps.valid)
    return _apply(_window(backup, num_steps), _shift(values, num_steps)[None])[0]


def lambda_return(values: jax.Array, steps: Steps, td_lambda: float) -> jax.Array:
    """R_t = r_t + γ·((1−λ)·V(s_{t+1}) + λ·R_{t+1}), from the value of the final observation on; λ = ``td_lambda``."""
    never = jnp.full_like(values, NEVER)[None]
    offset = steps.rewards + (1 - td_lambda) * steps.continues * _shift(values, 1)
    return _whole(_backup(never, offset, td_lambda * steps.continues, values, steps.valid))[0]


def monte_carlo(values: jax.Array, steps: Steps) -> jax.Array:
    """R_t = r_t + γ·R_{t+1}: the recorded discounted return, and the value of what follows a cut trajectory."""
    return lambda_return(values, steps, td_lambda=1.0)


def value_rows(
    value: Callable[[jax.Array], jax.Array], observations: jax.Array, num_lines: int, slice_rows: int = SLICE_ROWS
) -> jax.Array:
    """``value`` of all observations, computed slice by slice: shape (lines, rows).

    ``value`` maps (rows, observation size) to (lines, rows).
    """
    num_rows = observations.shape[0]
    blank = jnp.zeros((num_lines, num_rows))
    return _value_slices(value, observations, blank, 0, _count_slices(num_rows, slice_rows), slice_rows)


def refresh_values(
    value: Callable[[jax.Array], jax.Array],
    observations: jax.Array,
    values: jax.Array,
    index: jax.Array,
    num_fresh: int | None,
    slice_rows: int = SLICE_ROWS,
    is_zero_at_first: bool = False,
) -> jax.Array:
    """``values`` with the slices computed anew that refresh number ``index`` is about.

    The first refresh values all rows, each later one the next slices that cover ``num_fresh`` rows, cyclically;
    none: all of them. If all values are zero at first, the first refresh leaves the zeros that are there.
    """
    total = _count_slices(observations.shape[0], slice_rows)
    rolling = total if num_fresh is None else min(total, -(-num_fresh // slice_rows))
    num_slices = jnp.where(index == 0, 0 if is_zero_at_first else total, rolling)
    return _value_slices(value, observations, values, (index - 1) * rolling, num_slices, slice_rows)


def rolling_rows(num_fresh: int | None, slice_rows: int = SLICE_ROWS) -> int | None:
    """Rows of the slices that a refresh after the first computes anew; None: all."""
    return None if num_fresh is None else -(-num_fresh // slice_rows) * slice_rows


def _value_slices(
    value: Callable[[jax.Array], jax.Array],
    observations: jax.Array,
    values: jax.Array,
    first_slice: jax.Array | int,
    num_slices: jax.Array | int,
    slice_rows: int,
) -> jax.Array:
    num_rows = observations.shape[0]
    slice_rows = min(slice_rows, num_rows)
    total = _count_slices(num_rows, slice_rows)

    def value_slice(index: jax.Array, values: jax.Array) -> jax.Array:
        start = jnp.minimum(((first_slice + index) % total) * slice_rows, num_rows - slice_rows)
        rows = jax.lax.dynamic_slice_in_dim(observations, start, slice_rows)
        return jax.lax.dynamic_update_slice_in_dim(values, value(rows), start, axis=1)

    return jax.lax.fori_loop(0, num_slices, value_slice, values)


def _count_slices(num_rows: int, slice_rows: int) -> int:
    """How many slices cover all rows."""
    return -(-num_rows // min(slice_rows, num_rows))
