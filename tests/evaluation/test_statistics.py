"""Statistics over seeds, episodes and tasks against numbers worked out by hand."""

import itertools

import numpy as np
import pytest

from vem.evaluation.statistics import interquartile_mean, over_seeds, over_tasks, stratified_interval

SCORES = {
    "vem": {"a": [80.0, 90.0, 100.0], "b": [10.0, 20.0, 30.0]},
    "bc": {"a": [50.0, 60.0, 70.0], "b": [20.0, 20.0, 20.0]},
}


@pytest.mark.parametrize(
    ("values", "middle"),
    [([1000.0, 1, 2, 3, 4, -50, 5, 6], 3.5), ([1.0], 1.0), ([1.0, 5.0], 3.0), ([1.0, 5.0, 90.0], 32.0)],
)
def test_interquartile_mean_is_the_mean_of_the_middle_half_or_of_fewer_than_four(values, middle):
    assert interquartile_mean(np.array(values)) == pytest.approx(middle)


def test_over_seeds_gives_every_seed_the_same_weight():
    spread = over_seeds([np.array([0.0, 0.0, 3.0]), np.array([4.0, 6.0]), np.array([9.0] * 10)])
    assert (spread.mean, spread.std, spread.interquartile_mean) == pytest.approx((5.0, 4.0, 5.0))


def test_over_seeds_trims_seeds_and_not_episodes():
    spread = over_seeds([np.array([0.0, 8.0]), np.array([-100.0, -100]), np.array([5.0, 7.0]), np.array([99.0, 101])])
    assert spread.interquartile_mean == pytest.approx((4 + 6) / 2)


def test_what_one_seed_and_one_episode_do_not_tell():
    spread = over_seeds([np.array([1.0, 2.0, 3.0])])
    assert spread.std is None
    assert spread.interval is not None
    assert over_seeds([np.array([1.0]), np.array([2.0])]).interval is None


def test_the_interval_is_stratified_so_that_differences_between_seeds_do_not_widen_it():
    assert over_seeds([np.zeros(5), np.full(5, 10.0)]).interval == (5.0, 5.0)


def test_the_interval_is_that_of_a_mean():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    half_width = 1.96 * values.std() / np.sqrt(400)
    ends = (values.mean() - half_width, values.mean() + half_width)
    assert over_seeds([values]).interval == pytest.approx(ends, abs=0.1 * half_width)


def test_a_wider_confidence_gives_a_wider_interval_and_the_same_call_the_same_one():
    strata = [np.arange(10.0), np.arange(20.0)]
    statistic = lambda *strata, axis=-1: strata[0].mean(axis) + strata[1].mean(axis)
    narrow, wide = (stratified_interval(strata, statistic, confidence) for confidence in (0.5, 0.99))
    assert wide[0] < narrow[0] < 4.5 + 9.5 < narrow[1] < wide[1]
    assert stratified_interval(strata, statistic, 0.99) == wide


def test_mean_and_interquartile_mean_of_runs():
    # Of 8 runs the middle 4 are left: 4, 5, 6 and 7.
    found = over_tasks({"x": {"a": [-900.0, 4.0, 6.0, 8.0], "b": [5.0, 7.0, 900.0, 0.0]}}).aggregates["x"]
    assert found.interquartile_mean.value == pytest.approx(5.5)
    assert found.mean.value == pytest.approx((-220.5 + 228.0) / 2)


def test_every_task_counts_alike_in_the_mean():
    found = over_tasks({"x": {"a": [0.0] * 9, "b": [10.0]}}).aggregates["x"]
    assert found.mean.value == 5.0
    assert found.mean.interval is None  # one seed says nothing about others


def test_the_interval_resamples_seeds_within_their_task():
    still = over_tasks({"x": {"a": [0.0] * 3, "b": [100.0] * 3}}).aggregates["x"]
    assert still.mean.interval == still.interquartile_mean.interval == (50.0, 50.0)


def test_the_interval_is_that_of_all_resamples():
    """With 3 seeds there are 27 resamples of a task, all equally likely: their exact quantiles are known."""
    seeds = np.array([0.0, 30.0, 90.0])
    means = sorted(np.mean(draw) for draw in itertools.product(seeds, repeat=3))
    exact = np.quantile(means, [0.025, 0.975], method="inverted_cdf")
    interval = over_tasks({"x": {"a": seeds}}).aggregates["x"].mean.interval
    assert interval == pytest.approx(tuple(exact))


def test_the_probability_of_improvement_counts_pairs_and_halves_of_ties():
    found = over_tasks(SCORES)
    # a: every run is better. b: 10 < 20 thrice, 20 = 20 thrice, 30 > 20 thrice, so one half.
    assert found.improvement("vem", "bc").value == pytest.approx(0.75)
    assert found.improvement("bc", "vem").value == pytest.approx(0.25)
    assert found.improvement("vem", "vem").value == 0.5
    # At worst all three resampled seeds of b are 10.
    assert found.improvements["bc"].interval == pytest.approx((0.5, 1.0))


def test_a_profile_is_the_share_of_runs_above_each_threshold():
    found = over_tasks(SCORES)
    profile = found.profile("vem", np.array([-1.0, 10.0, 25.0, 80.0, 100.0]))
    assert profile.shares == pytest.approx([1, 5 / 6, 4 / 6, 2 / 6, 0])
    assert np.all(profile.low <= profile.shares)
    assert np.all(profile.shares <= profile.high)
    assert (profile.low[0], profile.high[-1]) == (1.0, 0.0)
    assert profile.low[2] == 0.5  # no resampled seed of b above 25
    assert over_tasks({"x": {"a": [1.0]}}).profile("x").low is None


def test_a_profile_goes_from_the_lowest_to_the_highest_score_and_over_0_to_100():
    assert over_tasks(SCORES).thresholds[[0, -1]].tolist() == [0, 100]
    assert over_tasks({"x": {"a": [-5.0, 130.0]}}).thresholds[[0, -1]].tolist() == [-5, 130]


def test_the_best_and_those_within_its_interval_are_marked():
    scores = {
        "bc": {"a": [10.0, 11.0, 12.0], "b": [0.0, 1.0, 2.0]},
        "vem": {"a": [80.0, 90.0, 100.0], "b": [10.0, 20.0, 30.0]},
        "iql": {"a": [79.0, 88.0, 99.0], "b": [11.0, 19.0, 30.0]},
    }
    assert over_tasks(scores).marks == {"bc": "", "vem": "best", "iql": "close"}


def test_only_tasks_that_all_have_are_averaged_and_the_rest_is_said():
    scores = {
        "vem": {"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [900.0, 900.0]},
        "bc": {"a": [1.0, 2.0], "b": [3.0, 4.0], "c": []},
        "cql": {"a": [700.0, 800.0]},
        "gone": {},
    }
    found = over_tasks(scores, ["One more thing."])
    assert (found.methods, found.tasks) == (["vem", "bc"], ["a", "b"])
    assert found.aggregates["vem"] == found.aggregates["bc"]
    assert found.left_out == [
        "Methods left out, with scores on fewer than half of the datasets: cql (1 of 3), gone (0 of 3).",
        "Datasets left out, on which a method has no score: c (bc).",
        "One more thing.",
    ]
    assert found.is_enough
    assert all(sentence in str(found) for sentence in found.left_out)


@pytest.mark.parametrize("scores", [{}, {"x": {}}, {"x": {"a": [1.0]}}, {"x": {"a": [1.0]}, "y": {"b": [1.0]}}])
def test_one_method_or_one_task_is_not_enough(scores):
    assert not over_tasks(scores).is_enough


def test_the_table_by_hand():
    found = over_tasks({"vem": {"a": [4.0], "b": [6.0]}, "bc": {"a": [1.0], "b": [6.0]}})
    assert str(found).splitlines() == [
        "score over 2 datasets, one seed each: a, b",
        "method  IQM [95 %]  mean [95 %]  P(vem is better) [95 %]",
        "vem          5.0 *          5.0",
        "bc           3.5            3.5                     0.75",
        "* best   ≈ within the best one's interval; intervals resample the seeds of each dataset",
    ]
    assert found.to_json()["improvement"] == {"first": "vem", "over": {"bc": {"value": 0.75, "interval": None}}}
