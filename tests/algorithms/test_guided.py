"""Guided policies: which moves a guide learns from, which dimensions they have, and when they are chosen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from chain import reaches_goal, record
from small_runs import tiny_dataset, tiny_settings
from vem.algorithms import guided, vem
from vem.algorithms.base import Spec, spec_of
from vem.algorithms.vem import VEM
from vem.data.arrays import from_arrays
from vem.data.dataset import unrewarded_share
from vem.errors import RunError, SettingsError
from vem.training.request import make_request
from vem.training.rows import draw_batch, put_rows
from vem.training.run import Run


def walk(lengths=(60, 60, 7), seed=0, terminal=False):
    """Trajectories of a walker: position, heading angle that wraps, a leg that swings, a constant."""
    random = np.random.default_rng(seed)
    columns, rewards, terminals, timeouts = [], [], [], []
    for length in lengths:
        t = np.arange(length)
        position = random.uniform(0, 5) + 0.1 * t * random.choice([-1, 1]) + 0.01 * random.normal(size=length)
        angle = (random.uniform(0, 6) + 0.3 * t + np.pi) % (2 * np.pi) - np.pi
        leg = np.sin(1.3 * t + random.uniform(0, 6))
        columns.append(np.stack([position, angle, leg, np.full(length, 2.0)], axis=1))
        rewards.append((t == 3) * 0.1)
        terminals.append(np.zeros(length, bool))
        timeouts.append(t == length - 1)
        if terminal:
            terminals[-1][-1], timeouts[-1][-1], rewards[-1][-1] = True, False, 1.0
    observations = np.concatenate(columns).astype(np.float32)
    actions = random.uniform(-1, 1, (len(observations), 1)).astype(np.float32)
    rest = (np.concatenate(part) for part in (rewards, terminals, timeouts))
    return from_arrays(observations, actions, *rest, name="walk", teleports="keep", action_bounds=([-1.0], [1.0]))


def rows_of(dataset):
    return put_rows(dataset, normalize_observations=True)


def test_moves_never_cross_the_end_of_an_episode():
    dataset = walk((9, 4, 6))
    ends = guided.episode_ends(jnp.asarray(dataset.valid))
    expected = dataset.episode_ends[np.searchsorted(dataset.episode_ends, np.arange(dataset.num_rows))]
    np.testing.assert_array_equal(ends, expected)
    spec = spec_of(dataset)
    algorithm = vem.make(VEM(policy="guided", horizon=5, value_hidden=(4,), policy_hidden=(4,)), spec, 12)
    rows = rows_of(dataset)
    state = algorithm.init(jax.random.key(0), {"expectile": jnp.asarray(0.3)})
    for stage in algorithm.stages[1:]:
        state, memory = stage.refresh(state, stage.empty(), rows, jnp.asarray(0), jax.random.key(1))
        batch = draw_batch(stage, memory, rows, jax.random.key(2))
        assert dataset.valid[np.asarray(batch.rows)].all()
        index = np.asarray(stage.successor(memory, batch.rows, jax.random.fold_in(jax.random.key(2), 1)))
        assert (index > np.asarray(batch.rows)).all()
        assert (index <= expected[np.asarray(batch.rows)]).all()
        np.testing.assert_allclose(batch.next_observations, rows.observe(rows.observations[index]), rtol=1e-6)


def test_moves_have_the_dimensions_that_travel():
    rows = rows_of(walk((200, 200, 200)))
    scale = guided.fit_move_scale(rows, guided.episode_ends(rows.valid), 25)
    assert scale[0] > 0  # position
    assert (np.asarray(scale[1:]) == 0).all()  # a wrapping angle, a swinging leg, a constant


def test_where_nothing_travels_all_that_varies_is_taken():
    random = np.random.default_rng(0)
    observations = random.normal(size=(300, 3)).astype(np.float32)
    observations[:, 2] = 1.0
    ends = np.arange(300) % 50 == 49
    dataset = from_arrays(
        observations, observations[:, :1], observations[:, 0], None, ends, name="noise", teleports="keep"
    )
    rows = rows_of(dataset)
    scale = np.asarray(guided.fit_move_scale(rows, guided.episode_ends(rows.valid), 10))
    assert (scale[:2] > 0).all()
    assert scale[2] == 0


@pytest.mark.parametrize("terminal", [False, True])
def test_moves_that_a_time_limit_cut_are_not_drawn(terminal):
    dataset, horizon = walk((30, 30, 4), terminal=terminal), 10
    config = VEM(policy="guided", horizon=horizon, value_hidden=(4,), effective_sample=1.0)
    rows = rows_of(dataset)
    algorithm = vem.make(config, spec_of(dataset), 3)
    stage = algorithm.stages[1]
    state = algorithm.init(jax.random.key(0), {"expectile": jnp.asarray(0.3), "effective_sample": jnp.asarray(1.0)})
    _, memory = stage.refresh(state, stage.empty(), rows, jnp.asarray(0), jax.random.key(0))
    drawn = np.unique(stage.draw(memory, rows, 4000, jax.random.key(1)))
    left = np.asarray(memory.ends) - np.arange(dataset.num_rows)
    usable = dataset.valid if terminal else dataset.valid & (left >= horizon)
    np.testing.assert_array_equal(drawn, np.flatnonzero(usable))


@pytest.mark.parametrize("lengths", [(1,), (1, 1, 1), (2, 1, 3)])
def test_trajectories_shorter_than_the_horizon_train(lengths, tmp_path):
    settings = tiny_settings("vem", policy="guided", horizon=5)
    run = Run.create(tmp_path / "run", make_request("tiny", settings=settings, steps=6), tiny_dataset(lengths))
    for progress in run.progress():
        assert all(np.isfinite(values).all() for values in progress.metrics.values())
    assert np.isfinite(run.policy.act(np.zeros((2, 3), np.float32))).all()


def test_the_choice_follows_from_the_data():
    sparse, dense = Spec(3, 2, 1000, 400, unrewarded=0.9), Spec(3, 2, 1000, 400, unrewarded=0.0)
    config, notes = VEM().complete(sparse)
    assert (config.policy, config.horizon, config.discount, config.value_share) == ("guided", 25, 0.99, 0.25)
    assert any("90 %" in note for note in notes)
    rare, _ = VEM().complete(sparse._replace(unrewarded=0.98))
    assert rare.discount == 0.9925
    config, notes = VEM().complete(dense)
    assert (config.policy, config.horizon, config.discount) == ("regression", None, 0.99)
    assert config.complete(sparse) == (config, ())
    assert VEM(policy="guided", horizon=3, discount=0.9).complete(dense)[0].horizon == 3
    assert VEM(schedule="joint", policy_draw="uniform").complete(sparse)[0].policy == "regression"
    assert VEM().complete(sparse._replace(typical_steps=2))[0].policy == "regression"


def test_the_share_of_steps_without_a_reward_ahead():
    rewards = np.array([0, 1, 0, 0, 0, 0, 0, 0], np.float32)
    ends = np.array([0, 0, 0, 1, 0, 0, 0, 1], bool)
    zeros = np.zeros((8, 1), np.float32)
    make = lambda rewards: from_arrays(zeros, zeros, rewards, ends, None, name="sparse", teleports="keep")
    assert unrewarded_share(make(rewards)) == 6 / 8
    assert unrewarded_share(make(rewards - 1)) == 6 / 8  # a cost of each step until the goal is as sparse
    assert unrewarded_share(make(np.arange(8, dtype=np.float32))) == 0
    with pytest.warns(UserWarning, match="zero in every step"):
        assert unrewarded_share(make(0 * rewards)) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": "guided", "schedule": "joint", "policy_draw": "uniform"},
        {"policy": "guided", "policy_draw": "uniform"},
        {"policy": "regression", "horizon": 5},
    ],
)
def test_what_does_not_go_together_is_refused(settings):
    with pytest.raises(SettingsError):
        make_request("tiny", settings=settings)


def test_it_finds_the_way_that_trajectories_only_show_in_parts(tmp_path):
    """Trajectories of four steps walk either way; the goal is ten steps off."""
    dataset = record(300, share_right=0.3, num_steps=4)
    settings = {"policy": "guided", "horizon": 2, "value_hidden": (32, 32), "policy_hidden": (32, 32)}
    settings |= {"batch_size": 64, "steps_per_refresh": 50, "discount": 0.9}
    settings |= {"effective_sample": 0.2, "expectile": 0.9, "target_rate": 0.05, "value_lr": 1e-3}
    config = make_request("chain", settings=settings, seeds=2, steps=3000)
    run = Run.create(tmp_path / "run", config, dataset).train()
    assert all(reaches_goal(policy) for policy in run.policies)
    moves = run.policies[0].guide(np.linspace(0.1, 0.8, 8, dtype=np.float32)[:, None])
    assert (moves > 0).all()


def test_acting_is_executing_what_the_guide_says(tmp_path):
    config = make_request("tiny", settings=tiny_settings("vem", policy="guided", horizon=3), steps=8)
    policy = Run.create(tmp_path / "run", config, tiny_dataset()).train().policy
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    moves = policy.guide(observations)
    assert policy.guide.execute(observations, moves) == pytest.approx(policy.act(observations), abs=1e-5)
    assert policy.guide.execute(observations[0], moves[0]) == pytest.approx(policy.act(observations[0]), abs=1e-5)
    assert not np.allclose(policy.guide.execute(observations, -moves), policy.act(observations), atol=1e-4)
    with pytest.raises(RunError, match="give one each"):
        policy.guide.execute(observations, moves[0])
