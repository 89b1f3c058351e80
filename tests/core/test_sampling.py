"""Rows drawn in proportion to their weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vem.networks import BLOCK, cumulate, draw_rows


@pytest.mark.parametrize("num_rows", [1, 5, BLOCK, 3 * BLOCK + 7])
def test_shares_of_the_draws_are_those_of_the_weights(num_rows):
    weights = np.random.default_rng(0).exponential(size=num_rows).astype(np.float32) ** 3
    drawn = np.asarray(draw_rows(cumulate(jnp.asarray(weights)), 200_000, jax.random.key(1)))
    found = np.bincount(drawn, minlength=num_rows) / drawn.size
    expected = weights / weights.sum()
    assert found.size == num_rows
    np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(expected.max() / drawn.size))


def test_rows_of_weight_zero_are_never_drawn():
    weights = np.zeros(4 * BLOCK, np.float32)
    weights[[3, BLOCK - 1, 2 * BLOCK, 3 * BLOCK + 1]] = [1, 2, 3, 4]
    drawn = np.asarray(draw_rows(cumulate(jnp.asarray(weights)), 100_000, jax.random.key(0)))
    assert set(drawn) == {3, BLOCK - 1, 2 * BLOCK, 3 * BLOCK + 1}


def test_small_weights_among_many_large_ones_keep_their_share():
    """One running sum in single precision over all rows would lose these to rounding."""
    num_rows = 2**20
    weights = np.ones(num_rows, np.float32)
    small = np.arange(num_rows // 2, num_rows)
    weights[small] = 0.01
    drawn = np.asarray(draw_rows(cumulate(jnp.asarray(weights)), 2_000_000, jax.random.key(0)))
    share = np.mean(drawn >= num_rows // 2)
    assert share == pytest.approx(0.01 / 1.01, rel=0.05)
    inside = drawn[drawn >= num_rows // 2] - num_rows // 2
    halves = np.bincount(inside % 2, minlength=2) / inside.size
    np.testing.assert_allclose(halves, 0.5, atol=0.02)
