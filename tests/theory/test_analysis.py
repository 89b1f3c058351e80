import numpy as np
import pytest

from vem.errors import DivergenceError, SettingsError
from vem.theory.operators import contraction_rate, distance, fixed_point, random_pairs, rate_toward, update_deviation


def halve(values):
    """A map with fixed point (2, 4) and rate ½."""
    return np.array([1.0, 2.0]) + values / 2


def test_certified_bound_covers_the_true_error():
    for tolerance in (1.0, 1e-3, 1e-9):
        found = fixed_point(halve, np.array([100.0, -100.0]), 0.5, tolerance)
        assert abs(found.values - [2, 4]).max() <= found.error_bound <= tolerance


def test_certified_bound_covers_the_true_error_with_a_loose_rate():
    found = fixed_point(halve, np.array([100.0, -100.0]), 0.95, 1e-6)
    assert abs(found.values - [2, 4]).max() <= found.error_bound <= 1e-6


def test_bound_holds_for_the_worst_process_of_a_batch():
    limits = np.array([[1.0], [1000.0]])
    found = fixed_point(lambda values: limits + 0.9 * (values - limits), np.zeros((2, 1)), 0.9, 1e-6)
    assert abs(found.values - limits).max() <= found.error_bound <= 1e-6


def test_a_fixed_point_as_start_is_certified_at_once():
    assert fixed_point(halve, np.array([2.0, 4.0]), 0.5).num_applications == 1


def test_a_tolerance_below_rounding_still_ends_with_an_honest_bound():
    found = fixed_point(lambda values: 1e6 + 0.99 * values, np.zeros(1), 0.99, tolerance=1e-12)
    assert abs(found.values - 1e8).max() <= found.error_bound
    assert found.error_bound > 1e-12


def test_operators_that_do_not_contract_as_claimed_are_refused():
    with pytest.raises(DivergenceError, match="does not contract"):
        fixed_point(lambda values: 2 * values, np.ones(2), 0.9)
    with pytest.raises(DivergenceError, match="does not contract"):
        fixed_point(halve, np.array([100.0, 0.0]), 0.4)
    with pytest.raises(DivergenceError):
        fixed_point(lambda values: values * np.nan, np.ones(2), 0.9)
    with pytest.raises(SettingsError, match=r"\[0, 1\)"):
        fixed_point(halve, np.zeros(2), 1.0)


def test_contraction_rate_of_a_known_map():
    matrix = np.array([[0.5, 0.3], [0.1, 0.2]])
    first, second = random_pairs(np.random.default_rng(0), 200, (2,), 10)
    # The largest row sum; the constant shifts among the pairs reach it.
    assert contraction_rate(lambda values: values @ matrix.T, first, second) == pytest.approx(0.8)
    assert contraction_rate(halve, first, second) == pytest.approx(0.5)


def test_contraction_rate_keeps_the_batch_apart():
    rates = np.array([[0.3], [0.6]])
    pairs = random_pairs(np.random.default_rng(0), 10, (2, 4), 10)
    np.testing.assert_allclose(contraction_rate(lambda values: rates * values, *pairs), [0.3, 0.6])


def test_rate_toward_a_limit():
    assert rate_toward(halve, np.zeros(2), np.array([2.0, 4.0])) == pytest.approx(0.5)


def test_distance_is_the_largest_over_states():
    np.testing.assert_allclose(distance(np.array([[1.0, -5.0], [0.0, 0.0]]), np.zeros(2)), [5, 0])


def test_update_deviation_by_hand():
    # State 0 is off by 1 and −1, state 1 by 2: √(1 + 4).
    targets, states = np.array([2.0, 0.0, 5.0]), np.array([0, 0, 1])
    assert update_deviation(targets, states, np.array([1.0, 3.0, 9.0])) == pytest.approx(np.sqrt(5))
