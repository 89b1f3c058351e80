"""Where one method is a special case of another, both give the same numbers."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from small_runs import tiny_dataset
from vem.algorithms import awr, bail, bc, bcq, iql, td3bc, vem
from vem.algorithms.base import Spec, draw_uniformly
from vem.networks import policy_mean
from vem.training.rows import gather, put_rows

KEY = jax.random.key(7)
NUM_STEPS = 40


@pytest.fixture(scope="module")
def rows():
    return put_rows(tiny_dataset((13, 11, 16)))


@pytest.fixture(scope="module")
def spec(rows):
    return Spec(3, 2, rows.rewards.size)


def swept(**values):
    return {name: jnp.asarray(value) for name, value in values.items()}


def test_vem_with_monte_carlo_memory_is_awr(rows, spec):
    """Same returns; value losses equal up to AWR's unit of the critic; weights equal up to one constant."""
    discount, hidden = 0.9, (8, 8)
    awr_settings = awr.AWR(
        td_lambda=1.0, discount=discount, value_hidden=hidden, policy_hidden=hidden, largest_weight=100.0
    )
    vem_settings = vem.VEM(
        plan="monte-carlo",
        discount=discount,
        num_critics=1,
        schedule="joint",
        policy_draw="uniform",
        refresh="full",
        advantage="standardized",
        clip_quantile=None,
        weight="exponential",
        temperature=3.0,
        value_hidden=hidden,
        policy_hidden=hidden,
        log_std_low=float(np.log(0.4)) - 1,
        log_std_high=float(np.log(0.4)) + 1,
        initial_values="random",
    )
    ours, theirs = vem.make(vem_settings, spec, 1), awr.make(awr_settings, spec, 1)
    their_state = theirs.init(KEY, swept(temperature=3.0))
    critics = theirs.export(their_state)["critics"]
    our_state = ours.init(KEY, swept(expectile=0.5, temperature=3.0))
    policy = our_state.policy._replace(actor=their_state.actor)
    our_state = our_state._replace(critics=critics, targets=critics, policy=policy)

    def one_update(algorithm, state, batch):
        stage = algorithm.stages[0]
        state, memory = stage.refresh(state, stage.empty(), rows, jnp.asarray(0), KEY)
        return memory, stage.update(state, memory, batch, KEY)[1]

    our_update = jax.jit(partial(one_update, ours))
    their_update = jax.jit(partial(one_update, theirs))
    ratios = []
    for number in range(3):
        batch = gather(rows, draw_uniformly((), rows, 16, jax.random.key(number)))
        our_memory, our_metrics = our_update(our_state, batch)
        their_memory, their_metrics = their_update(their_state, batch)
        np.testing.assert_allclose(our_memory.returns[0], their_memory.returns, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            our_metrics["value_loss"] * (1 - discount) ** 2, their_metrics["value_loss"], rtol=1e-4
        )
        ratios.append(float(our_metrics["policy_loss"] / their_metrics["policy_loss"]))
        assert their_metrics["effective_share"] < 0.99
        np.testing.assert_allclose(our_metrics["effective_share"], their_metrics["effective_share"], rtol=1e-3)
    # AWR subtracts the mean advantage, VEM's standardized advantage keeps it: a constant factor of all weights.
    constant = np.exp(float(their_memory.mean / their_memory.deviation) / 3.0)
    np.testing.assert_allclose(ratios, constant, rtol=1e-3)


def test_bail_that_keeps_every_row_is_cloning_by_squared_error(rows, spec):
    settings = bail.BAIL(kept=1.0, policy_hidden=(8,), value_hidden=(8,), batch_size=16)
    algorithm = bail.make(settings, spec, 2)
    stage = algorithm.stages[1]
    assert stage.batch_size == 16
    state = algorithm.init(KEY, {})
    _, selected = jax.jit(stage.refresh)(state, stage.empty(), rows, jnp.asarray(0), KEY)
    assert bool(selected[rows.drawable].all())
    batch = gather(rows, draw_uniformly((), rows, stage.batch_size, KEY))
    moved, metrics = jax.jit(stage.update)(state, selected, batch, KEY)
    loss = lambda actor: jnp.mean((policy_mean(actor, batch.observations) - batch.actions) ** 2)
    value, gradient = jax.value_and_grad(loss)(state.actor)
    optimizer = optax.adam(settings.policy_lr)
    step, _ = optimizer.update(gradient, optimizer.init(state.actor))
    assert float(metrics["policy_loss"]) == pytest.approx(float(value), rel=1e-5)
    for ours, theirs in zip(
        jax.tree.leaves(moved.actor), jax.tree.leaves(optax.apply_updates(state.actor, step)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_bail_keeps_the_wanted_share(rows, spec):
    scores = jnp.asarray(np.random.default_rng(0).standard_normal(spec.num_rows), jnp.float32)
    kept = bail.select(scores, rows, 0.25)[rows.drawable]
    assert int(kept.sum()) == NUM_STEPS // 4
    assert float(scores[rows.drawable][kept].min()) >= float(scores[rows.drawable][~kept].max())


@pytest.mark.parametrize(
    ("num_above", "num_tied", "expected"), [(4, 36, 4), (4, 8, 12), (0, 40, 40), (0, 36, 36), (10, 30, 10)]
)
def test_bail_keeps_or_leaves_ties_together(rows, spec, num_above, num_tied, expected):
    """10 of 40 rows are wanted; some score 1, some 0, which are level at the border, the others −1."""
    assert NUM_STEPS == 40
    scores = np.full(spec.num_rows, -1.0, np.float32)
    scores[np.asarray(rows.drawable)[: num_above + num_tied]] = 0
    scores[np.asarray(rows.drawable)[:num_above]] = 1
    assert int(bail.select(jnp.asarray(scores), rows, 0.25)[rows.drawable].sum()) == expected


def test_bcq_em_of_one_step_has_the_target_of_bcq(rows, spec):
    small = {"generator_hidden": (8,), "value_hidden": (8,), "policy_hidden": (8,), "generator_rate": 1e-12}
    episodic = bcq.make_episodic(bcq.BCQEM(num_plan_steps=1, **small), spec, 1)
    plain = bcq.make(bcq.BCQ(batch_size=NUM_STEPS, **small), spec, 1)
    state = episodic.init(KEY, swept(perturbation=0.05, minimum_weight=0.75))
    stage = episodic.stages[0]
    _, memory = jax.jit(stage.refresh)(state, stage.empty(), rows, jnp.asarray(0), KEY)

    def latents(key, *shape):
        return jnp.clip(jax.random.normal(key, (*shape, 4)), -0.5, 0.5)

    values = jax.jit(bcq.state_values)(state, rows.observations, latents(KEY, spec.num_rows, 10))
    np.testing.assert_allclose(memory.values[0], values, rtol=1e-4, atol=1e-5)
    drawn = rows.drawable
    expected = rows.rewards[drawn] + 0.99 * rows.continues[drawn] * values[drawn + 1]
    np.testing.assert_allclose(memory.returns[0, drawn], expected, rtol=1e-4, atol=1e-5)

    # BCQ's own update uses the same function of the same state, with latents of its own.
    batch = gather(rows, draw_uniformly((), rows, NUM_STEPS, KEY))
    _, metrics = jax.jit(plain.stages[0].update)(state, (), batch, KEY)
    goal_key = jax.random.split(KEY, 3)[1]
    following = jax.jit(bcq.state_values)(state, batch.next_observations, latents(goal_key, NUM_STEPS, 10))
    goals = batch.rewards + 0.99 * batch.continues * following
    recorded = jnp.stack(
        [bcq.apply_networks(state.critics, bcq.join(batch.observations, batch.actions))[i] for i in (0, 1)]
    )
    assert float(metrics["critic_loss"]) == pytest.approx(float(((goals - recorded) ** 2).mean(1).sum()), rel=1e-4)


def test_bcq_em_plans_at_least_one_step(rows, spec):
    small = {"generator_hidden": (8,), "value_hidden": (8,), "policy_hidden": (8,)}
    state, returns = None, {}
    for length in (1, 3, None):
        algorithm = bcq.make_episodic(bcq.BCQEM(num_plan_steps=length, **small), spec, 1)
        state = algorithm.init(KEY, swept(perturbation=0.05, minimum_weight=0.75))
        stage = algorithm.stages[0]
        returns[length] = jax.jit(stage.refresh)(state, stage.empty(), rows, jnp.asarray(0), KEY)[1].returns[
            0, rows.drawable
        ]
    assert bool((returns[3] >= returns[1] - 1e-6).all())
    assert bool((returns[None] >= returns[3] - 1e-6).all())
    assert bool((returns[None] > returns[1] + 1e-3).any())


def test_iql_without_temperature_clones(rows, spec):
    algorithm = iql.make(iql.IQL(value_hidden=(8,), policy_hidden=(8,)), spec, 1)
    state = algorithm.init(KEY, swept(expectile=0.7, inverse_temperature=0.0))
    cloning = bc.make(bc.BC(policy_hidden=(8,), log_std_low=-1.0, log_std_high=1.0), spec, 1)
    clone = cloning.init(KEY, {})._replace(actor=state.actor)
    batch = gather(rows, draw_uniformly((), rows, 16, KEY))
    _, ours = jax.jit(algorithm.stages[0].update)(state, (), batch, KEY)
    _, theirs = jax.jit(cloning.stages[0].update)(clone, (), batch, KEY)
    assert float(ours["policy_loss"]) == pytest.approx(float(theirs["policy_loss"]), rel=1e-4)
    assert float(ours["effective_share"]) == pytest.approx(1.0)


def test_td3bc_without_values_clones_by_squared_error(rows, spec):
    algorithm = td3bc.make(td3bc.TD3BC(value_hidden=(8,), policy_hidden=(8,)), spec, 1)
    state = algorithm.init(KEY, swept(value_weight=0.0))
    state = state._replace(num_done=state.num_done + 1)  # the actor is updated after every second critic update
    batch = gather(rows, draw_uniformly((), rows, 16, KEY))
    _, metrics = jax.jit(algorithm.stages[0].update)(state, (), batch, KEY)
    expected = jnp.mean((policy_mean(state.actor, batch.observations) - batch.actions) ** 2)
    assert float(metrics["policy_loss"]) == pytest.approx(2 * float(expected), rel=1e-5)
