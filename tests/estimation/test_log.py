"""The horizon over which policy and log are compared, and what the log earned in it."""

import numpy as np
import pytest

from vem.data.arrays import from_arrays
from vem.errors import DataError
from vem.estimation.log import find_horizon, read_log, require_starts

DISCOUNT = 0.5


def recorded(lengths, ended, seed=0):
    """Episodes with reward 1 in every step; ``ended`` says which a terminal ended."""
    random = np.random.default_rng(seed)
    count, last = sum(lengths), np.cumsum(lengths) - 1
    terminals, timeouts = np.zeros(count, bool), np.zeros(count, bool)
    terminals[last[np.asarray(ended)]] = True
    timeouts[last[~np.asarray(ended)]] = True
    observations = random.normal(size=(count, 2))
    following = random.normal(size=(count, 2))
    following[:-1][~(terminals | timeouts)[:-1]] = observations[1:][~(terminals | timeouts)[:-1]]
    arrays = (observations, np.zeros((count, 1)), np.ones(count), terminals, timeouts, following)
    return from_arrays(*arrays, name="log", teleports="keep", action_bounds=(-1, 1))


def test_the_horizon_is_the_time_limit():
    assert find_horizon(recorded([7] * 10, [False] * 10), 0.99) == 7


def test_the_horizon_ends_where_discounting_leaves_nothing():
    assert find_horizon(recorded([50] * 4, [False] * 4), DISCOUNT) == 10  # 0.5¹⁰ < 0.001
    assert find_horizon(recorded([3] * 4, [True] * 4), DISCOUNT) == 10
    assert find_horizon(recorded([3] * 4, [True] * 4), 0.0) == 1


def test_a_tenth_of_the_trajectories_may_be_cut_earlier():
    lengths = [2, *[6] * 9]
    assert find_horizon(recorded(lengths, [False] * 10), 0.99) == 6
    assert find_horizon(recorded([2, *lengths], [False] * 11), 0.99) == 2


def test_returns_by_hand():
    log = read_log(recorded([3, 5, 2], [True, False, False]), DISCOUNT, 4)
    # Three steps and the end; four of five steps; two steps that were cut, which tell nothing.
    np.testing.assert_array_equal(log.starts, [0, 4])
    np.testing.assert_array_equal(log.lengths, [3, 4])
    np.testing.assert_allclose(log.start_returns, [1.75, 1.875])
    np.testing.assert_array_equal(log.remaining[:10], [4, 3, 2, 1, 4, 3, 2, 1, 4, 3])
    np.testing.assert_array_equal(log.is_known, [1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(log.returns[4:8], [1.875, 1.75, 1.5, 1.0])
    np.testing.assert_allclose(log.mass[4:8], np.array([15, 14, 12, 8]) / 15)


def test_a_log_of_cut_trajectories_alone_is_refused():
    with pytest.raises(DataError, match="lasts 9 steps or ends before"):
        require_starts(read_log(recorded([3, 3], [False, False]), DISCOUNT, 9), "the data")
