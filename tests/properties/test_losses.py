import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vem import losses

LEVELS = st.floats(0.01, 0.99)
NUMBERS = st.floats(-1e6, 1e6)


@given(NUMBERS, LEVELS)
def test_not_negative_and_zero_only_at_zero(number, level):
    difference = np.asarray(number)
    for loss in (losses.expectile_loss, losses.squared_weight_loss, losses.quantile_loss):
        assert loss(difference, level) >= 0
    assert (losses.quantile_loss(difference, level) == 0) == (number == 0)


@given(NUMBERS, LEVELS)
def test_mirrored(number, level):
    difference = np.asarray(number)
    for loss in (losses.expectile_loss, losses.squared_weight_loss, losses.quantile_loss):
        np.testing.assert_allclose(loss(difference, level), loss(-difference, 1 - level), rtol=1e-9)


@given(NUMBERS, NUMBERS, st.floats(0, 1), LEVELS)
def test_convex(first, second, share, level):
    for loss in (losses.expectile_loss, losses.squared_weight_loss, losses.quantile_loss):
        middle = loss(np.asarray(share * first + (1 - share) * second), level)
        chord = share * loss(np.asarray(first), level) + (1 - share) * loss(np.asarray(second), level)
        assert middle <= chord * (1 + 1e-9) + 1e-3


@given(NUMBERS, LEVELS, LEVELS)
def test_a_larger_expectile_steps_higher(number, first, second):
    low, high = sorted((first, second))
    difference = np.asarray(number)
    assert losses.expectile_step(difference, high, 0.5) >= losses.expectile_step(difference, low, 0.5) - 1e-9


@given(LEVELS)
def test_effective_expectile_lies_farther_from_a_half(level):
    effective = losses.effective_expectile(level)
    assert abs(effective - 0.5) >= abs(level - 0.5) - 1e-12
    assert (effective > 0.5) == (level > 0.5) or abs(level - 0.5) < 1e-9
