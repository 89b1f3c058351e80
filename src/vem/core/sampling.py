"""Drawing rows in proportion to their weights.

A regression on weighted rows can weigh a uniform batch, or draw the batch by the weights. Both have the same
expectation, but of a uniform batch only the effective sample counts: with a tenth of it, the second way has the
gradient noise of a batch ten times as large.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

BLOCK = 256
"""Rows whose weights are summed up together: a running sum over all rows would lose small weights to rounding."""
BELOW_ONE = 1 - 1e-6


class Shares(NamedTuple):
    """Running sums of the weights of all rows, in two levels."""

    blocks: jax.Array
    """Of the blocks' totals, (blocks,)."""
    within: jax.Array
    """Inside each block, (blocks, BLOCK)."""


def empty_shares(num_rows: int) -> Shares:
    """Shares of the right shapes for so many rows."""
    return cumulate(jnp.zeros(num_rows))


def cumulate(weights: jax.Array) -> Shares:
    """The running sums of weights ≥ 0, one for each row; at least one must be positive before anything is drawn."""
    padded = jnp.pad(weights, (0, -weights.size % BLOCK)).reshape(-1, BLOCK)
    within = jnp.cumsum(padded, axis=1)
    return Shares(jnp.cumsum(within[:, -1]), within)


def draw_rows(shares: Shares, count: int, key: jax.Array) -> jax.Array:
    """Indices of rows, each drawn with a probability in proportion to its weight; never a row of weight 0."""
    block_key, row_key = jax.random.split(key)
    # The draw stays strictly below the total, so that rounding cannot step past the last positive weight.
    at = jax.random.uniform(block_key, (count,)) * (BELOW_ONE * shares.blocks[-1])
    block = jnp.searchsorted(shares.blocks, at, side="right")
    first, sums = block * BLOCK, shares.within.reshape(-1)
    at = jax.random.uniform(row_key, (count,)) * (BELOW_ONE * sums[first + BLOCK - 1])
    row, step = first, BLOCK // 2
    while step:  # The first row of the block whose running sum is above the draw, by halving.
        row = jnp.where(sums[row + step - 1] <= at, row + step, row)
        step //= 2
    return row
