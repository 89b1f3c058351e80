import numpy as np
import pytest

from vem.theory import studies
from vem.theory.operators import contraction_bound
from vem.theory.studies import Sizes, column, interval

SIZES = Sizes(
    tradeoff_mdps=20, datasets=10, mdps=6, pairs=20, rollouts=60, rollout_steps=30, readings_mdps=5, claim_mdps=3
)


@pytest.fixture(scope="module")
def tables():
    return {name: study(SIZES, seed=0) for name, study in studies.STUDIES.items()}


def test_interval_by_hand():
    # Mean 2, standard deviation 1, Student's t for 2 degrees of freedom 4.3027.
    measured = interval("x", np.array([1.0, 2.0, 3.0]))
    assert measured == pytest.approx({"x": 2, "x_low": 2 - 4.30265 / 3**0.5, "x_high": 2 + 4.30265 / 3**0.5}, rel=1e-5)


def test_standard_error_stands_for_the_size_of_the_dataset():
    behavior = np.array([[0.8, 0.2], [0.5, 0.5]])
    # 200 transitions: 100 a state, so 80, 20, 50 and 50 samples.
    np.testing.assert_allclose(studies.standard_error(behavior, 200), 1 / np.sqrt([[80, 20], [50, 50]]))
    # An action is never less known than one sample would leave it.
    np.testing.assert_allclose(studies.standard_error(behavior, 1), 1)


def test_tradeoff_lies_between_behavior_and_optimum_and_over_estimates_with_noise(tables):
    table = tables["tradeoff"]
    lowest, best = table[0]["behavior_value"], table[0]["optimal_value"]
    many, few = ({row["expectile"]: row for row in table if row["dataset_size"] == n} for n in (10000, 30))
    assert many[0.5]["value"] == pytest.approx(lowest, abs=0.05)
    assert lowest < many[0.8]["value"] < many[0.99]["value"] < best
    assert many[1.0]["value"] == pytest.approx(best, abs=0.1)
    # Noise cancels in the mean, and is picked up by the maximum.
    assert few[0.5]["value"] == pytest.approx(lowest, abs=0.5)
    assert few[1.0]["value"] > best + (best - lowest)
    assert few[1.0]["value"] > few[0.99]["value"] > few[0.8]["value"]
    assert few[0.8]["error"] < few[1.0]["error"]
    assert all(row["value_low"] < row["value"] < row["value_high"] for row in few.values())


def test_horizon_speeds_up_from_zero_but_not_the_supremum_and_adds_noise_but_no_bias(tables):
    horizon = tables["horizon"]
    assert [(row["max_steps"], row["expectile"]) for row in horizon] == [
        (n, tau) for n in (1, 2, 3, 4) for tau in (0.6, 0.7, 0.8, 0.9)
    ]
    for tau in (0.6, 0.9):
        speeds = column(horizon, "rate_from_zero", expectile=tau)
        assert speeds == sorted(speeds, reverse=True)
        bound = contraction_bound(tau, 0.9)
        np.testing.assert_allclose(column(horizon, "rate_supremum", expectile=tau), bound, atol=1e-9)
        np.testing.assert_allclose(column(horizon, "rate_bound", expectile=tau), bound)
        assert np.ptp(column(horizon, "bias", expectile=tau)) < 1e-8
        noise = column(horizon, "deviation", expectile=tau)
        assert noise == sorted(noise)
        np.testing.assert_allclose(column(horizon, "best_steps", expectile=tau), [1, 2, 3, 4])
    biases = column(horizon, "bias", max_steps=2)
    assert biases == sorted(biases, reverse=True)
    assert min(np.subtract(biases, column(horizon, "bias_in_support", max_steps=2))) > 0.1


def test_behavior_table_rewards_better_data(tables):
    behavior = tables["behavior"]
    assert len(behavior) == 16
    for measure in ("rate_from_zero", "bias", "deviation"):
        along = column(behavior, measure, expectile=0.6)
        assert along == sorted(along)
    assert column(behavior, "bias", expectile=0.8) == column(behavior, "bias_in_support", expectile=0.8)


def test_readings_agree_at_one_half_and_part_below_it(tables):
    table = {row["expectile"]: row for row in tables["readings"]}
    for name in ("expectile_operator", "memory_operator"):
        assert table[0.5][name] == pytest.approx(0, abs=1e-3)
    assert table[0.8]["memory_operator"] == pytest.approx(table[0.8]["expectile_operator"], abs=1e-3)
    assert table[0.2]["memory_operator"] > table[0.2]["expectile_operator"] + 0.1
    # At τ = ½ both plans along trajectories are plain means of the same maxima, and optimistic.
    assert table[0.5]["memory_sampled"] == pytest.approx(table[0.5]["memory_authors"], abs=1e-3)
    assert table[0.5]["memory_sampled"] > 0.1
    assert table[0.2]["memory_authors"] < 0 < table[0.2]["memory_sampled"]
