import dataclasses

import jax
import numpy as np
import pytest

from tiny import SMALL, tiny_dataset
from vem.algorithms.base import build, find_method, spec_of
from vem.errors import DivergenceError
from vem.training import loop
from vem.training.request import Trial
from vem.training.rows import put_rows

SWEPT = {"expectile": 0.3, "effective_sample": 0.5}


@pytest.fixture(scope="module")
def dataset():
    return tiny_dataset()


def algorithm_for(dataset, num_steps=120, **settings):
    method = find_method("vem")
    spec = spec_of(dataset)
    return method.make(build(method.config, {**SMALL, **settings}), spec, num_steps)


def run(dataset, trials, **settings):
    algorithm = algorithm_for(dataset, **settings)
    rows = put_rows(dataset, True)
    *_, last = loop.train(algorithm, rows, trials, loop.start(algorithm, trials, SWEPT))
    return jax.device_get(last.snapshot.state)


def leaves(state, trial=0):
    return [np.asarray(leaf[trial]) for leaf in jax.tree.leaves(state)]


def test_a_return_span_scales_rewards_and_values_keep_the_recorded_unit(dataset):
    recorded = dataset.episode_returns
    assert np.ptp(recorded) > 0
    rows = put_rows(dataset, return_span=1000.0)
    returns = np.add.reduceat(np.asarray(rows.rewards, np.float64), dataset.episode_starts)
    np.testing.assert_allclose(np.ptp(returns), 1000, rtol=1e-5)
    np.testing.assert_allclose(returns * float(rows.value_unit), recorded, rtol=1e-5)


def test_a_return_span_leaves_data_whose_returns_are_all_equal(dataset):
    equal = dataclasses.replace(dataset, rewards=np.zeros_like(dataset.rewards))
    assert np.asarray(put_rows(equal, return_span=1000.0).rewards).tolist() == equal.rewards.tolist()


@pytest.mark.parametrize("settings", [{}, {"policy_draw": "uniform"}])
def test_a_policy_without_a_row_to_learn_from_is_an_error_that_names_the_setting(dataset, settings):
    with pytest.raises(DivergenceError, match=r"seed4 has no row to learn from .* --drop-below"):
        run(dataset, [Trial(4, {})], drop_below=1e6, **settings)


def test_every_chunk_is_reported_once_and_stages_follow(dataset):
    algorithm = algorithm_for(dataset, num_steps=130)
    trials = [Trial(0, {})]
    seen = [
        (p.stage.name, p.steps, p.num_steps)
        for p in loop.train(algorithm, put_rows(dataset), trials, loop.start(algorithm, trials, SWEPT))
    ]
    assert seen == [("value", 20, 130), ("value", 40, 130), ("value", 52, 130), ("policy", 130, 130)]


def test_same_seed_same_bits_other_seed_other_bits(dataset):
    first, second = run(dataset, [Trial(3, {})]), run(dataset, [Trial(3, {})])
    for a, b in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)
    other = run(dataset, [Trial(4, {})])
    assert any(not np.array_equal(a, b) for a, b in zip(leaves(first), leaves(other), strict=True))


def test_seeds_side_by_side_equal_seeds_alone(dataset):
    together = run(dataset, [Trial(0, {}), Trial(5, {}), Trial(9, {})])
    alone = run(dataset, [Trial(5, {})])
    for a, b in zip(leaves(together, 1), leaves(alone), strict=True):
        np.testing.assert_array_equal(a, b)


def test_swept_settings_equal_the_same_settings_alone(dataset):
    swept = [Trial(0, {"expectile": tau}) for tau in (0.2, 0.8)]
    together = run(dataset, swept)
    alone = run(dataset, [Trial(0, {"expectile": 0.8})])
    for a, b in zip(leaves(together, 1), leaves(alone), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(leaves(together, 0)[0], leaves(together, 1)[0])


def test_one_compilation_for_each_stage(dataset, monkeypatch):
    programs = []
    compile_chunk = loop.compile_chunk
    monkeypatch.setattr(loop, "compile_chunk", lambda *args: programs.append(compile_chunk(*args)) or programs[-1])
    run(dataset, [Trial(0, {"expectile": tau}) for tau in (0.1, 0.5, 0.9)], num_steps=130)
    assert [program._cache_size() for program in programs] == [1, 1]


def test_cutting_the_loop_elsewhere_changes_nothing(dataset, monkeypatch):
    whole = run(dataset, [Trial(0, {})])
    monkeypatch.setattr(loop, "LONGEST_CHUNK", 7)
    cut = run(dataset, [Trial(0, {})])
    for a, b in zip(leaves(whole), leaves(cut), strict=True):
        np.testing.assert_array_equal(a, b)


def test_going_on_from_a_snapshot_equals_never_stopping(dataset):
    trials = [Trial(0, {}), Trial(1, {})]
    algorithm, rows = algorithm_for(dataset), put_rows(dataset, True)
    never = run(dataset, trials)
    for stop in (1, 2, 3):
        chunks = loop.train(algorithm, rows, trials, loop.start(algorithm, trials, SWEPT))
        for _ in range(stop):
            snapshot = jax.device_get(next(chunks).snapshot)
        *_, last = loop.train(algorithm, rows, trials, snapshot)
        for a, b in zip(jax.tree.leaves(never), jax.tree.leaves(jax.device_get(last.snapshot.state)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_divergence_names_the_trial_and_the_remedy(dataset):
    algorithm = algorithm_for(dataset, value_lr=1e6)
    trials = [Trial(7, {"expectile": 0.9})]
    snapshot = loop.start(algorithm, trials, SWEPT)
    with pytest.raises(DivergenceError, match=r"value_\w+ of seed7-expectile0.9 .* smaller --expectile"):
        list(loop.train(algorithm, put_rows(dataset), trials, snapshot, largest_value=100.0))


def test_rolling_equals_full_where_one_period_reaches_all_rows(dataset):
    full, rolling = (run(dataset, [Trial(0, {})], refresh=kind) for kind in ("full", "rolling"))
    for a, b in zip(leaves(full), leaves(rolling), strict=True):
        np.testing.assert_array_equal(a, b)
