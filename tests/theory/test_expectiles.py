import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from vem.errors import SettingsError
from vem.losses import expectile_loss, quantile_loss
from vem.theory.operators import expectile_of, quantile_of

LEVELS = st.floats(0.01, 0.99)


@st.composite
def distributions(draw):
    count = draw(st.integers(1, 8))
    outcomes = np.array(draw(st.lists(st.floats(-100, 100), min_size=count, max_size=count)))
    weights = np.array(draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))) + 1e-3
    return outcomes, weights / weights.sum()


def test_by_hand():
    # τ(1−v) = (1−τ)v for a fair coin, so v = τ.
    coin, chances = np.array([0.0, 1.0]), np.array([0.5, 0.5])
    assert expectile_of(coin, chances, 0.3) == pytest.approx(0.3)
    assert expectile_of(coin, chances, 0.8) == pytest.approx(0.8)
    # ¾·¼(4−v) = ¼(½v + ¼(v−1))
    assert expectile_of(np.array([0.0, 1.0, 4.0]), np.array([0.5, 0.25, 0.25]), 0.75) == pytest.approx(13 / 6)


@settings(max_examples=100, deadline=None)
@given(distributions(), LEVELS)
def test_expectile_minimizes_its_loss(distribution, level):
    outcomes, chances = distribution
    found = expectile_of(outcomes, chances, level)

    def loss(v):
        return (chances * expectile_loss(outcomes - v, level)).sum()

    searched = optimize.minimize_scalar(loss, bounds=(-101, 101), method="bounded", options={"xatol": 1e-9})
    assert loss(found) <= searched.fun + 1e-9 * (1 + abs(searched.fun))
    assert outcomes.min() - 1e-9 <= found <= outcomes.max() + 1e-9


@settings(max_examples=100, deadline=None)
@given(distributions(), LEVELS)
def test_quantile_minimizes_its_loss(distribution, level):
    outcomes, chances = distribution
    losses = [(chances * quantile_loss(outcomes - v, level)).sum() for v in outcomes]
    found = quantile_of(outcomes, chances, level)
    assert found in outcomes
    assert (chances * quantile_loss(outcomes - found, level)).sum() <= min(losses) + 1e-9


@settings(max_examples=50, deadline=None)
@given(distributions(), LEVELS, st.floats(0.1, 10), st.floats(-10, 10))
def test_expectile_moves_and_scales_with_the_outcomes_and_mirrors(distribution, level, scale, shift):
    outcomes, chances = distribution
    found = expectile_of(outcomes, chances, level)
    assert expectile_of(scale * outcomes + shift, chances, level) == pytest.approx(scale * found + shift, abs=1e-8)
    assert expectile_of(-outcomes, chances, 1 - level) == pytest.approx(-found, abs=1e-8)


def test_outcomes_without_mass_do_not_matter():
    outcomes = np.array([-1e6, 0.0, 1.0, 1e6])
    chances = np.array([0.0, 0.5, 0.5, 0.0])
    assert expectile_of(outcomes, chances, 0.9) == pytest.approx(0.9)
    assert quantile_of(outcomes, chances, 0.9) == 1
    assert quantile_of(outcomes, chances, 0.01) == 0


def test_one_half_is_the_mean_and_the_median():
    outcomes, chances = np.array([3.0, 0.0, 10.0]), np.array([0.2, 0.4, 0.4])
    assert expectile_of(outcomes, chances, 0.5) == pytest.approx(4.6)
    assert quantile_of(outcomes, chances, 0.5) == 3


def test_quantile_reaches_a_level_that_rounding_misses():
    assert quantile_of(np.array([0.0, 1.0, 2.0]), np.array([0.1, 0.2, 0.7]), 0.3) == 1


def test_last_axis_of_a_batch():
    rng = np.random.default_rng(0)
    outcomes, chances = rng.normal(size=(3, 4, 5)), rng.dirichlet(np.ones(5), size=(4,))
    for of in (expectile_of, quantile_of):
        together = of(outcomes, chances, 0.7)
        assert together.shape == (3, 4)
        assert together[2, 1] == pytest.approx(of(outcomes[2, 1], chances[1], 0.7))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.1, float("nan")])
def test_levels_outside_the_open_interval_are_refused(level):
    for of in (expectile_of, quantile_of):
        with pytest.raises(SettingsError, match="strictly between 0 and 1"):
            of(np.zeros(2), np.ones(2) / 2, level)
