import numpy as np
import pytest

from vem.evaluation.statistics import interquartile_mean, over_seeds, stratified_interval


def test_interquartile_mean_is_the_mean_of_the_middle_half():
    assert interquartile_mean(np.array([1000.0, 1, 2, 3, 4, -50, 5, 6])) == pytest.approx((2 + 3 + 4 + 5) / 4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_interquartile_mean_of_fewer_than_four_is_the_mean(count):
    values = np.array([1.0, 5.0, 90.0])[:count]
    assert interquartile_mean(values) == pytest.approx(values.mean())


def test_over_seeds_gives_every_seed_the_same_weight():
    spread = over_seeds([np.array([0.0, 0.0, 3.0]), np.array([4.0, 6.0]), np.array([9.0] * 10)])
    assert spread.mean == pytest.approx(5.0)
    assert spread.std == pytest.approx(4.0)
    assert spread.interquartile_mean == pytest.approx(5.0)


def test_over_seeds_trims_seeds_and_not_episodes():
    spread = over_seeds([np.array([0.0, 8.0]), np.array([-100.0, -100]), np.array([5.0, 7.0]), np.array([99.0, 101])])
    assert spread.interquartile_mean == pytest.approx((4 + 6) / 2)


def test_one_seed_has_no_spread_between_seeds():
    spread = over_seeds([np.array([1.0, 2.0, 3.0])])
    assert spread.std is None
    assert spread.interval is not None


def test_one_episode_has_no_interval():
    assert over_seeds([np.array([1.0]), np.array([2.0])]).interval is None


def test_the_interval_is_stratified_so_that_differences_between_seeds_do_not_widen_it():
    assert over_seeds([np.zeros(5), np.full(5, 10.0)]).interval == (5.0, 5.0)


def test_the_interval_is_that_of_a_mean():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    interval = over_seeds([values]).interval
    assert interval is not None
    half_width = 1.96 * values.std() / np.sqrt(400)
    assert interval == pytest.approx((values.mean() - half_width, values.mean() + half_width), abs=0.1 * half_width)


def test_a_wider_confidence_gives_a_wider_interval_and_the_same_call_the_same_one():
    strata = [np.arange(10.0), np.arange(20.0)]
    statistic = lambda *strata, axis=-1: strata[0].mean(axis) + strata[1].mean(axis)
    narrow, wide = (stratified_interval(strata, statistic, confidence) for confidence in (0.5, 0.99))
    assert narrow is not None
    assert wide is not None
    assert wide[0] < narrow[0] < 4.5 + 9.5 < narrow[1] < wide[1]
    assert stratified_interval(strata, statistic, 0.99) == wide
