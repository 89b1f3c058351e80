"""The pool: every row is drawn as often as any other, and nothing else about training changes."""

import shutil
import threading

import jax
import numpy as np
import pytest

from small_runs import quick_compilation, tiny_settings
from vem.algorithms.vem import target_values
from vem.data.arrays import from_arrays
from vem.data.dataset import RowBlock
from vem.data.load import load
from vem.data.shards import resident, write_shards
from vem.errors import DataError, SettingsError
from vem.storage import read_tensors
from vem.training.pool import Pool, PoolPlan, Renewal, choose_pool_rows
from vem.training.request import make_request
from vem.training.rows import find_units, put_rows
from vem.training.run import Run

NUM_STEPS = 60


def episodes(num_rows=2000, longest=60, seed=0):
    """A dataset of about so many rows in episodes of different lengths; the first observation is the row's number."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest, num_rows // (longest // 2))
    num_steps = int(lengths.sum())
    last = np.cumsum(lengths) - 1
    observations = np.stack([np.arange(num_steps), random.normal(size=num_steps)], axis=1).astype(np.float32)
    following = observations.copy()
    following[:-1] = observations[1:]
    following[last, 0] = -1
    flags = np.zeros((2, num_steps), bool)
    flags[0, last[::3]], flags[1, last] = True, True
    return from_arrays(
        observations,
        random.uniform(-2, 2, (num_steps, 1)).astype(np.float32),
        random.uniform(-1, 1, num_steps).astype(np.float32),
        *flags,
        following,
        name="numbered",
        teleports="keep",
        action_bounds=(-2, 2),
    )


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("programs")):
        yield


@pytest.fixture(scope="module")
def dataset():
    return episodes()


@pytest.fixture(scope="module")
def sharded(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("shards") / "numbered.shards"
    sizes = {"observation_size": 2, "action_size": 1}
    return load(
        write_shards(
            path, lambda first: [dataset.block(0, dataset.num_rows)], dataset.info, **sizes, action_bounds=(-2, 2)
        )
    )


# ---- the pool itself ----


def make_pool(dataset, period=2, section_rows=100, num_sections=5, num_steps=2000, seed=0):
    plan = PoolPlan(section_rows, num_sections, (Renewal(period, 1),))
    return Pool(dataset, plan, [num_steps], find_units(dataset), seed)


@pytest.mark.parametrize("longest", [60, 400])  # the second has episodes longer than a section
def test_every_row_is_drawn_equally_often(longest):
    dataset = episodes(longest=longest)
    num_batches, batch = 600, 100
    pool, random = make_pool(dataset, num_steps=num_batches), np.random.default_rng(1)
    steps = np.flatnonzero(dataset.valid)
    counts = np.zeros(len(steps), int)
    for done in range(num_batches):
        rows = pool.at(0, done)
        index = np.asarray(rows.drawable)[random.integers(0, rows.drawable.size, batch)]
        assert np.asarray(rows.valid)[index].all()
        np.add.at(counts, np.asarray(rows.observations)[index, 0].astype(int), 1)
    pool.close()
    total = num_batches * batch
    expected = total / len(steps)
    # Independent draws have χ²/n = 1 ± 0.03. Rows that are in the pool for the last time when it ends add a little.
    assert 0.85 < np.mean((counts - expected) ** 2 / expected) < 1.25
    # No part of the trajectory is favored: each tenth within 4 standard errors and the draws of one stay in the pool.
    num_stays = num_batches / 2 * 100 / dataset.num_rows
    for part in np.array_split(counts, 10):
        share = len(part) / len(steps)
        assert abs(part.sum() - total * share) < 4 * np.sqrt(total * share) + total * share / num_stays
    # Rewards drawn are rewards recorded, in the mean.
    rewards = dataset.rewards[steps]
    assert abs(np.average(rewards, weights=counts) - rewards.mean()) < 4 * rewards.std() / np.sqrt(total)


def test_the_pool_holds_whole_episodes_in_the_units_of_all_data(dataset, sharded):
    settings = {"normalize_observations": True, "normalize_rewards": True, "reward_scale": 2.0, "reward_shift": 0.5}
    whole, units = put_rows(dataset, **settings), find_units(sharded, **settings)
    np.testing.assert_allclose(units.observation_mean, whole.observation_mean, rtol=1e-5)
    np.testing.assert_allclose(units.observation_deviation, whole.observation_deviation, rtol=1e-5)
    np.testing.assert_allclose(units.value_unit, whole.value_unit, rtol=1e-5)
    np.testing.assert_allclose(units.largest_reward, np.abs(whole.rewards).max(), rtol=1e-5)
    span = {"return_span": 1000.0}
    np.testing.assert_allclose(find_units(sharded, **span).value_unit, put_rows(dataset, **span).value_unit, rtol=1e-6)

    pool = Pool(sharded, PoolPlan(100, 5, (Renewal(2, 1),)), [20], units, 0)
    for done in range(20):
        rows = pool.at(0, done)
        valid, numbers = np.asarray(rows.valid), np.asarray(rows.observations)[:, 0].astype(int)
        at = np.flatnonzero(valid)
        step = np.flatnonzero(dataset.valid)[numbers[at]]  # step n of the trajectory is this row of the dataset
        for name in ("actions", "continues", "rewards"):
            np.testing.assert_allclose(getattr(rows, name)[at], getattr(whole, name)[step], rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(rows.observations)[at + 1], dataset.observations[step + 1])
        assert (np.diff(np.flatnonzero(~valid)) <= 100).all()
        assert set(np.asarray(rows.drawable)) <= set(at)
        assert rows.drawable.size == pool.at(0, done).drawable.size
    pool.close()


# ---- runs ----


def run_of(directory, dataset, method="vem", pool_rows=None, seeds=1, steps=NUM_STEPS, **settings):
    changes = {"policy": "guided", "horizon": 3} if method == "vem-guided" else {}
    name = method.removesuffix("-guided")
    settings = tiny_settings(name, **changes, **settings)
    config = make_request("numbered", name, settings=settings, seeds=seeds, steps=steps, pool_rows=pool_rows)
    return Run.create(directory, config, dataset)


def assert_same_policies(one, other):
    for first, second in zip(one.policy_paths, other.policy_paths, strict=True):
        tensors, others = read_tensors(first)[0], read_tensors(second)[0]
        assert tensors.keys() == others.keys()
        for name in tensors:
            np.testing.assert_array_equal(tensors[name], others[name])


@pytest.fixture
def short_chunks(monkeypatch):
    """Chunks of ten steps, so that there are some."""
    for module in ("loop", "pool", "run"):
        monkeypatch.setattr(f"vem.training.{module}.LONGEST_CHUNK", 10)
    monkeypatch.setattr("vem.training.pool.REFRESH_SHARE", 10.0)


def test_a_pool_of_all_rows_changes_no_bit(tmp_path, dataset, sharded):
    plain = run_of(tmp_path / "plain", dataset).train()
    run = run_of(tmp_path / "shards", sharded, pool_rows=sharded.num_rows).train()
    assert run.config.pool_rows is None
    assert_same_policies(plain, run)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("vem-guided", "awr", "bail", "bcq-em")]


@pytest.mark.parametrize("method", ["vem", "iql", *SLOW])
def test_methods_train_with_a_pool_and_resume_to_the_bit(tmp_path, sharded, method, short_chunks):
    def copy_on_the_way(run, progress):
        if not (tmp_path / "part").exists() and progress.steps >= 0.7 * NUM_STEPS:
            run.checkpoint(progress)
            shutil.copytree(run.directory, tmp_path / "part", ignore=lambda *_: [".lock"])

    whole = run_of(tmp_path / "whole", sharded, method, pool_rows=400).train([copy_on_the_way])
    plan = whole.plan.pool
    assert plan.num_rows <= 400
    assert any(plan.renewed(i, at) for i, s in enumerate(whole.algorithm.stages) for at in range(0, s.num_steps, 5))
    part = Run.open(tmp_path / "part", sharded).begin()
    assert 0 < part.steps_done < NUM_STEPS
    assert_same_policies(whole, part.train())


def test_rows_that_come_in_are_valued_by_the_next_refresh(tmp_path, short_chunks):
    many = episodes(num_rows=20_000)
    # Networks that hardly move: every row's value in the memory is known, however long ago it was computed.
    still = {"value_lr": 1e-12, "target_rate": 1e-12, "initial_values": "random", "value_share": 0.9}
    run = run_of(tmp_path / "run", many, pool_rows=3_125, **still)
    _, algorithm, plan = run.plan
    assert (algorithm.stages[0].fresh_rows, plan.section_rows, plan.num_sections) == (1024, 1024, 3)
    seen = []
    for progress in run.progress():
        if progress.stage.name != "value":
            break
        rows = run.pool.at(0, run.pool._position[1])
        state = jax.tree.map(lambda leaf: leaf[0], progress.snapshot.state)
        expected = target_values(run.settings, state, rows, rows.observations)
        np.testing.assert_allclose(progress.snapshot.memory.values[0], expected, atol=1e-5)
        seen.append(np.asarray(rows.observations[:, 0]))
    assert len(seen) > 2 * plan.num_sections
    assert not np.isin(seen[-1], seen[0]).all()


def test_a_flipped_byte_stops_training_with_one_clear_error_and_loses_nothing(tmp_path, dataset, short_chunks):
    path = tmp_path / "numbered.shards"
    many = episodes(num_rows=20_000)
    sizes = {"observation_size": 2, "action_size": 1}
    write_shards(path, lambda first: [many.block(0, many.num_rows)], many.info, **sizes)
    sharded = load(path)
    run = run_of(tmp_path / "run", sharded, "bc", pool_rows=200, steps=2000)

    def damage(run, progress):
        if progress.steps == 20:
            for file in path.glob("*.bin"):
                content = bytearray(file.read_bytes())
                content[:: max(1, len(content) // 50)] = bytes(b ^ 1 for b in content[:: max(1, len(content) // 50)])
                file.write_bytes(content)

    with pytest.raises(DataError, match=r"does not have its checksum: the file was changed or is damaged"):
        run.train([damage])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("vem-pool")]
    assert Run.open(tmp_path / "run", sharded).config.pool_rows == 200


def test_the_pool_is_chosen_where_shards_do_not_fit(dataset, sharded, monkeypatch):
    assert choose_pool_rows(None, sharded) is None
    monkeypatch.setattr("vem.training.pool.fits", lambda dataset: False)
    monkeypatch.setattr("vem.training.pool.POOL_ROWS", 300)
    assert choose_pool_rows(None, sharded) == 300
    assert choose_pool_rows(None, dataset) is None
    assert choose_pool_rows(500, dataset) == 500
    for wrong in (True, 0, 63, 1.5):
        with pytest.raises(SettingsError, match="--pool-rows is"):
            make_request("x", pool_rows=wrong)


def test_shards_are_read_and_checked_before_they_are_held(sharded):
    held = resident(sharded)
    for name in RowBlock._fields:
        assert not isinstance(getattr(held, name), np.memmap)
        np.testing.assert_array_equal(getattr(held, name), getattr(sharded, name))
