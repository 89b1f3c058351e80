import functools

import numpy as np
import pytest

from vem.errors import SettingsError
from vem.theory import operators
from vem.theory.examples import Toy, interval
from vem.theory.mdp import MDP, stochastic_transitions
from vem.theory.studies import behavior_study, horizon_study, readings_study, standard_error, tradeoff_study

SMALL = Toy(num_mdps=6, num_rollouts=60, rollout_steps=30, num_pairs=20)


def column(table, name, **where):
    return [row[name] for row in table if all(row[key] == value for key, value in where.items())]


def test_interval_by_hand():
    # Mean 2, standard deviation 1, Student's t for 2 degrees of freedom 4.3027.
    found = interval("x", np.array([1.0, 2.0, 3.0]))
    assert found == pytest.approx({"x": 2, "x_low": 2 - 4.30265 / 3**0.5, "x_high": 2 + 4.30265 / 3**0.5}, rel=1e-5)
    assert interval("x", np.array([1.0])) == {"x": 1, "x_low": 1, "x_high": 1}


@pytest.fixture(scope="module")
def horizon():
    return horizon_study(SMALL)


@pytest.fixture(scope="module")
def behavior():
    return behavior_study(SMALL)


def test_horizon_table_has_the_papers_grid(horizon):
    assert [(row["max_steps"], row["expectile"]) for row in horizon] == [
        (n, tau) for n in (1, 2, 3, 4) for tau in (0.6, 0.7, 0.8, 0.9)
    ]


def test_horizon_speeds_up_from_zero_but_not_the_supremum_and_adds_noise_but_no_bias(horizon):
    for tau in (0.6, 0.9):
        speeds = column(horizon, "rate_from_zero", expectile=tau)
        assert speeds == sorted(speeds, reverse=True)
        bound = operators.contraction_bound(tau, 0.9)
        np.testing.assert_allclose(column(horizon, "rate_supremum", expectile=tau), bound, atol=1e-9)
        np.testing.assert_allclose(column(horizon, "rate_bound", expectile=tau), bound)
        assert np.ptp(column(horizon, "bias", expectile=tau)) < 1e-8
        noise = column(horizon, "deviation", expectile=tau)
        assert noise == sorted(noise)
        np.testing.assert_allclose(column(horizon, "best_steps", expectile=tau), [1, 2, 3, 4])
    biases = column(horizon, "bias", max_steps=2)
    assert biases == sorted(biases, reverse=True)
    assert min(np.subtract(biases, column(horizon, "bias_in_support", max_steps=2))) > 0.1


def test_behavior_table_rewards_better_data(behavior):
    assert len(behavior) == 16
    for measure in ("rate_from_zero", "bias", "deviation"):
        along = column(behavior, measure, expectile=0.6)
        assert along == sorted(along)
    assert column(behavior, "bias", expectile=0.8) == column(behavior, "bias_in_support", expectile=0.8)


def test_studies_repeat_exactly_and_differ_by_seed():
    tiny = Toy(num_mdps=2, num_rollouts=5, rollout_steps=12, num_pairs=3)
    assert behavior_study(tiny) == behavior_study(tiny)
    assert behavior_study(tiny) != behavior_study(Toy(2, num_rollouts=5, rollout_steps=12, num_pairs=3, seed=1))


def test_every_parameter_reaches_the_tables():
    toy = Toy(
        num_mdps=2,
        num_states=3,
        num_actions=2,
        discount=0.5,
        transitions=stochastic_transitions,
        step_size=0.4,
        num_rollouts=5,
        rollout_steps=6,
        num_pairs=3,
    )
    table = horizon_study(toy, expectiles=[0.3], max_steps=[5], num_removed=0, temperature=0.1)
    assert len(table) == 1
    assert table[0]["rate_bound"] == pytest.approx(1 - 2 * 0.4 * 0.5 * 0.3)
    assert table[0]["bias"] == table[0]["bias_in_support"]
    assert table[0]["max_steps"] == 5


def test_standard_error_stands_for_the_size_of_the_dataset():
    behavior = np.array([[0.8, 0.2], [0.5, 0.5]])
    # 200 transitions: 100 a state, so 80, 20, 50 and 50 samples.
    expected = 3 / np.sqrt([[80, 20], [50, 50]])
    np.testing.assert_allclose(standard_error(behavior, 200, 3.0), expected)
    # An action is never less known than one sample would leave it.
    np.testing.assert_allclose(standard_error(behavior, 1, 3.0), 3)


def test_tradeoff_lies_between_behavior_and_optimum_and_over_estimates_with_noise():
    table = tradeoff_study(Toy(num_mdps=20), expectiles=(0.5, 0.8, 0.99), dataset_sizes=(30, 10**9))
    lowest, best = table[0]["behavior_value"], table[0]["optimal_value"]
    many, few = ({row["expectile"]: row for row in table if row["dataset_size"] == n} for n in (10**9, 30))
    assert many[0.5]["value"] == pytest.approx(lowest, abs=1e-3)
    assert lowest < many[0.8]["value"] < many[0.99]["value"] < best
    assert many[1.0]["value"] == pytest.approx(best, abs=1e-3)
    # Noise cancels in the mean, and is picked up by the maximum.
    assert few[0.5]["value"] == pytest.approx(lowest, abs=0.3)
    assert few[1.0]["value"] > best + (best - lowest)
    assert few[1.0]["value"] > few[0.99]["value"] > few[0.8]["value"]
    assert few[0.8]["error"] < few[1.0]["error"]
    assert all(row["value_low"] < row["value"] < row["value_high"] for row in few.values())


def test_without_noise_every_size_gives_the_exact_fixed_point():
    table = tradeoff_study(Toy(num_mdps=3), expectiles=(0.7,), dataset_sizes=(10, 1000), noise=0, num_datasets=2)
    assert column(table, "value", dataset_size=10) == column(table, "value", dataset_size=1000)
    assert column(table, "error", expectile=1.0) == pytest.approx([0, 0], abs=1e-9)


def test_readings_agree_at_one_half_and_part_below_it():
    table = {row["expectile"]: row for row in readings_study(Toy(num_mdps=5), expectiles=(0.2, 0.5, 0.8))}
    for name in ("expectile_operator", "memory_operator"):
        assert table[0.5][name] == pytest.approx(0, abs=1e-3)
    assert table[0.8]["memory_operator"] == pytest.approx(table[0.8]["expectile_operator"], abs=1e-3)
    assert table[0.2]["memory_operator"] > table[0.2]["expectile_operator"] + 0.1
    # At τ = ½ both plans along trajectories are plain means of the same maxima, and optimistic.
    assert table[0.5]["memory_sampled"] == pytest.approx(table[0.5]["memory_authors"], abs=1e-3)
    assert table[0.5]["memory_sampled"] > 0.1
    assert table[0.2]["memory_authors"] < 0 < table[0.2]["memory_sampled"]


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (functools.partial(horizon_study, SMALL, expectiles=[1.0]), "strictly between 0 and 1"),
        (functools.partial(horizon_study, Toy(step_size=0.9)), "step size is 0.9"),
        (functools.partial(horizon_study, SMALL, max_steps=[0]), "at least 1"),
        (functools.partial(horizon_study, SMALL, num_removed=3), "one must remain"),
        (functools.partial(behavior_study, SMALL, max_steps=31), "at least as long as the plan"),
        (functools.partial(behavior_study, SMALL, temperatures=[-1]), "temperature"),
        (functools.partial(behavior_study, Toy(num_mdps=0)), "number of MDPs"),
        (functools.partial(behavior_study, Toy(num_pairs=0)), "pairs"),
        (functools.partial(tradeoff_study, SMALL, dataset_sizes=[0]), "at least 1"),
        (functools.partial(tradeoff_study, SMALL, noise=-1), "noise"),
        (functools.partial(readings_study, SMALL, max_steps=15), "too many rollouts"),
    ],
)
def test_settings_that_mean_nothing_are_refused(study, message):
    with pytest.raises(SettingsError, match=message):
        study()


def test_toy_is_drawn_as_the_paper_says():
    mdp, best, best_actions, _ = Toy(num_mdps=3).draw()
    assert isinstance(mdp, MDP)
    assert mdp.rewards.shape == (3, 5, 3)
    assert mdp.discount == 0.9
    assert np.isin(mdp.transitions, (0, 1)).all()
    np.testing.assert_allclose(best_actions.max(-1), best)
