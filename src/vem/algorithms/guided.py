"""The second way from values to a policy: a guide says where to, an executor says how.

    guide      g(s_t) ≈ Δ_t = (s_{t+k} − s_t) / σ       on rows drawn by the advantage of the move
    executor   e(s_t, Δ) ≈ a_t                          on all rows, with moves of c to k steps
    acting     a = e(s, g(s))

A regression of actions on the few good rows forgets what all other rows know about how to move. Here the good rows only
say where good trajectories are k steps later, and every row teaches how to get from one state to another. Both are
regressions on recorded moves and actions, so nothing leaves the data's support. The advantage of a move is its own
k-step return against the value, A_t = R_t⁽ᵏ⁾ − V(s_t), in the units of ``core.advantages``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vem.algorithms.base import Batch, Metrics, Rows, Spec, Stage
from vem.algorithms.vem import (
    VEM,
    PolicyLearner,
    VEMState,
    compute_advantages,
    empty_scale,
    final_values,
    fit_scale,
    policy_optimizer,
    sample_rows,
    weigh,
)
from vem.losses import AdvantageScale, effective_share
from vem.networks import (
    Network,
    Shares,
    apply_network,
    cumulate,
    descend,
    draw_rows,
    empty_shares,
    init_network,
    log_deviation,
)
from vem.plan import Steps, n_step

SHORTEST_MOVE = 0.2
"""Share of the horizon from which on the executor learns moves."""


class GuidedState(NamedTuple):
    """Both networks with the free parameters of their log σ, their optimizers, and the unit of moves."""

    guide: Network
    guide_log_std: jax.Array
    guide_opt_state: Any
    executor: Network
    free_log_std: jax.Array
    executor_opt_state: Any
    move_scale: jax.Array
    """1/σ of each dimension's k-step moves; 0 for dimensions that moves leave out."""


class MoveMemory(NamedTuple):
    """Where each row's episode ends, and what the guide's rows are drawn by."""

    ends: jax.Array
    """Row of the final observation of each row's episode."""
    advantages: jax.Array
    """Of each row's move, in the unit of ``scale``; −∞ for moves that are not drawn."""
    scale: AdvantageScale
    effective_share: jax.Array
    shares: Shares


def guided(config: VEM, spec: Spec, num_steps: int) -> PolicyLearner:
    """The guide first, then the executor, so that the executor's stage can be evaluated on the way."""
    num_guide = max(1, round(num_steps * config.guide_share))
    num_executor = max(1, num_steps - num_guide)
    return PolicyLearner(
        init=partial(init_networks, config, spec, num_guide, num_executor),
        stages=(guide_stage(config, spec, num_guide), executor_stage(config, spec, num_executor)),
        export=partial(export_policy, config),
        kind="guided",
    )


# ---- networks ----


def init_networks(config: VEM, spec: Spec, num_guide: int, num_executor: int, key: jax.Array) -> GuidedState:
    """Guide and executor before the first step."""
    guide_key, executor_key = jax.random.split(key)
    observed, head = spec.observation_size, spec.head
    guide = init_network(guide_key, (observed, *config.guide_hidden, observed))
    executor = init_network(executor_key, (2 * observed, *config.policy_hidden, head.num_outputs))
    guide_log_std, free_log_std = jnp.zeros(observed), jnp.zeros(head.num_boxes)
    return GuidedState(
        guide=guide,
        guide_log_std=guide_log_std,
        guide_opt_state=policy_optimizer(config, num_guide).init((guide, guide_log_std)),
        executor=executor,
        free_log_std=free_log_std,
        executor_opt_state=policy_optimizer(config, num_executor).init((executor, free_log_std)),
        move_scale=jnp.ones(observed),
    )


def export_policy(config: VEM, state: VEMState) -> dict[str, Any]:
    """What the policy file holds."""
    log_std = log_deviation(state.policy.free_log_std, config.log_std_low, config.log_std_high)
    return {
        "guide": state.policy.guide,
        "actor": state.policy.executor,
        "log_std": log_std,
        "move_scale": state.policy.move_scale,
        "critics": state.critics,
    }


# ---- moves ----


def episode_ends(valid: jax.Array) -> jax.Array:
    """Row of the final observation of each row's episode."""
    count = valid.shape[0]
    return jax.lax.cummin(jnp.where(valid, count - 1, jnp.arange(count)), reverse=True)


def fit_move_scale(rows: Rows, ends: jax.Array, horizon: int) -> jax.Array:
    """1/σ of the k-step moves of each dimension, 0 for dimensions that do not travel.

    A dimension travels if it goes farther in k steps than a random walk would, √k times its single step: position and
    heading do, while the joints of a gait come back. Dimensions that jump by more than half of their range now and then
    (angles that wrap, flags) are left out too. If none is left, all that vary are taken.
    """
    sample = sample_rows(rows)
    at = lambda index: rows.observe(rows.observations[index])
    here, step, move = at(sample), at(sample + 1), at(jnp.minimum(sample + horizon, ends[sample]))
    is_whole = (ends[sample] - sample >= horizon)[:, None]
    is_whole = is_whole | ~is_whole.any()
    mean = lambda values: jnp.sum(values * is_whole, axis=0) / is_whole.sum()
    single = jnp.abs(step - here)
    jumps = jnp.mean(single > 0.5 * jnp.ptp(here, axis=0), axis=0)
    travels = mean(jnp.abs(move - here)) > jnp.sqrt(horizon) * mean(single)
    varies = jnp.ptp(here, axis=0) > 1e-6
    kept = travels & varies & (jumps < 1e-3)
    kept = jnp.where(kept.any(), kept, varies)
    size = jnp.sqrt(mean((move - here) ** 2))
    return jnp.where(kept, 1 / jnp.maximum(size, 1e-3), 0.0)


def moves_of(state: GuidedState, batch: Batch) -> jax.Array:
    """Δ of each row of a batch whose ``next_observations`` are those that the moves lead to."""
    return (batch.next_observations - batch.observations) * state.move_scale


# ---- the guide: rows drawn by the advantage of their moves ----


def empty_memory(spec: Spec) -> MoveMemory:
    """The memory before the refresh."""
    ends = jnp.zeros(spec.num_rows, jnp.int32)
    shares = empty_shares(spec.num_rows)
    return MoveMemory(ends, jnp.zeros(spec.num_rows), empty_scale(), jnp.zeros(()), shares)


def refresh_moves(
    config: VEM, spec: Spec, state: VEMState, old: MoveMemory, rows: Rows, index: jax.Array, key: jax.Array
) -> tuple[VEMState, MoveMemory]:
    """The unit of moves, and the weight of each row's move under the final values.

    Moves that a time limit cut short are not drawn; those that end with the task are, however short.
    """
    assert config.horizon is not None, "complete decides it"
    assert config.discount is not None, "complete decides it"
    ends = episode_ends(rows.valid)
    # The unit of moves stays when other rows take the place of these: guide and executor must agree on it.
    scale_of_moves = jnp.where(index == 0, fit_move_scale(rows, ends, config.horizon), state.policy.move_scale)
    state = state._replace(policy=state.policy._replace(move_scale=scale_of_moves))
    values = final_values(state, rows)
    steps = Steps(rows.rewards, config.discount * rows.continues, rows.valid)
    returns = n_step(values, steps, config.horizon)
    is_whole = (ends - jnp.arange(spec.num_rows) >= config.horizon) | (rows.continues[ends - 1] == 0)
    usable = rows.valid & is_whole
    usable = jnp.where(usable.any(), usable, rows.valid)
    sample = sample_rows(rows)
    scale = fit_scale(config, returns[sample], values[sample], rows, state.swept)
    adv = jnp.where(usable, compute_advantages(config, returns, values, scale), -jnp.inf)
    weights = weigh(config, adv, scale)
    share = effective_share(weights) * spec.num_rows / rows.drawable.size
    return state, MoveMemory(ends, adv, scale, share, cumulate(weights))


def guide_stage(config: VEM, spec: Spec, num_steps: int) -> Stage:
    """Regression of the moves of good rows on their states."""

    def update(state: VEMState, memory: MoveMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        learner: GuidedState = state.policy
        moves, kept = moves_of(learner, batch), learner.move_scale > 0

        def compute_loss(parameters: tuple[Network, jax.Array]) -> tuple[jax.Array, jax.Array]:
            guide, free = parameters
            errors = moves - apply_network(guide, batch.observations)
            log_std = log_deviation(free, config.log_std_low, config.log_std_high)
            loss = jnp.sum(jnp.where(kept, 0.5 * (errors * jnp.exp(-log_std)) ** 2 + log_std, 0.0), axis=-1).mean()
            return loss, jnp.sum(jnp.where(kept, errors**2, 0.0)) / (jnp.maximum(kept.sum(), 1) * batch.rows.size)

        parameters = (learner.guide, learner.guide_log_std)
        (loss, error), grads = jax.value_and_grad(compute_loss, has_aux=True)(parameters)
        (guide, free), opt_state = descend(
            policy_optimizer(config, num_steps), grads, learner.guide_opt_state, parameters
        )
        learner = learner._replace(guide=guide, guide_log_std=free, guide_opt_state=opt_state)
        metrics = {
            "guide_loss": loss,
            "guide_error": error,
            "effective_share": memory.effective_share,
            "temperature": memory.scale.temperature,
        }
        return state._replace(policy=learner), metrics

    return Stage(
        name="guide",
        num_steps=num_steps,
        steps_per_refresh=None,
        batch_size=config.batch_size,
        empty=partial(empty_memory, spec),
        refresh=partial(refresh_moves, config, spec),
        update=update,
        draw=lambda memory, rows, count, key: draw_rows(memory.shares, count, key),
        successor=lambda memory, index, key: jnp.minimum(index + (config.horizon or 1), memory.ends[index]),
        trains_policy=False,
        weights=lambda memory, rows: weigh(config, memory.advantages[rows.drawable], memory.scale),
    )


# ---- the executor: all rows, moves of different lengths ----


def shortest_move(horizon: int) -> int:
    """The shortest move that the executor learns: a fifth of the horizon."""
    return max(1, round(SHORTEST_MOVE * horizon))


def executor_stage(config: VEM, spec: Spec, num_steps: int) -> Stage:
    """Regression of recorded actions on states and the moves that followed."""
    horizon, head = config.horizon or 1, spec.head

    def refresh(
        state: VEMState, old: jax.Array, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[VEMState, jax.Array]:
        return state, episode_ends(rows.valid)

    def successor(ends: jax.Array, index: jax.Array, key: jax.Array) -> jax.Array:
        lengths = jax.random.randint(key, index.shape, shortest_move(horizon), horizon + 1)
        return jnp.minimum(index + lengths, ends[index])

    def update(state: VEMState, ends: jax.Array, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        learner: GuidedState = state.policy
        inputs = jnp.concatenate([batch.observations, moves_of(learner, batch)], axis=-1)

        def compute_loss(parameters: tuple[Network, jax.Array]) -> jax.Array:
            executor, free = parameters
            outputs = apply_network(executor, inputs, key, config.policy_dropout)
            log_std = log_deviation(free, config.log_std_low, config.log_std_high)
            return -head.log_likelihood(outputs, log_std, batch.actions).mean()

        parameters = (learner.executor, learner.free_log_std)
        loss, grads = jax.value_and_grad(compute_loss)(parameters)
        (executor, free), opt_state = descend(
            policy_optimizer(config, num_steps), grads, learner.executor_opt_state, parameters
        )
        learner = learner._replace(executor=executor, free_log_std=free, executor_opt_state=opt_state)
        return state._replace(policy=learner), {"policy_loss": loss, "log_likelihood": -loss}

    return Stage(
        name="executor",
        num_steps=num_steps,
        steps_per_refresh=None,
        batch_size=config.batch_size,
        empty=lambda: jnp.zeros(spec.num_rows, jnp.int32),
        refresh=refresh,
        update=update,
        successor=successor,
    )
