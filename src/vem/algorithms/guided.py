"""The second way from values to a policy: a guide says where to, an executor says how.

    guide      g(s_t) ≈ Δ_t = (s_{t+k} − s_t) / σ       on rows drawn by the advantage of the move
    executor   e(s_t, Δ) ≈ a_t                          on all rows, with moves of c to k steps
    acting     a = e(s, g(s))

A regression of actions on the few good rows forgets what all other rows know about how to move. Here the good rows only
say where good trajectories are k steps later, and every row teaches how to get from one state to another. Both are
regressions on recorded moves and actions, so nothing leaves the data's support. The advantage of a move is its own
k-step return against the value, A_t = R_t⁽ᵏ⁾ − V(s_t), in the units of ``vem.losses``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vem.algorithms.base import Batch, Metrics, Rows, Spec, Stage
from vem.algorithms.vem import (
    VEM,
    PolicyLearner,
    VEMState,
    empty_weights,
    final_values,
    policy_optimizer,
    sample_rows,
    steps_of,
    weigh_rows,
)
from vem.losses import WEIGHTS, AdvantageScale
from vem.networks import Network, Shares, apply_network, descend, draw_rows, init_network, log_deviation
from vem.plan import n_step

GUIDE_SHARE = 0.33
"""Share of a guided policy's steps that go to the guide."""
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
    """Where each row's episode ends, and what the guide's rows are drawn by (as ``vem.PolicyMemory``)."""

    ends: jax.Array
    """Row of the final observation of each row's episode."""
    advantages: jax.Array
    """Of each row's move, in the unit of ``scale``; −∞ for moves that are not drawn."""
    scale: AdvantageScale
    effective_share: jax.Array
    shares: Shares | None


# ---- Moves ----


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
    moving = travels & varies & (jumps < 1e-3)
    moving = jnp.where(moving.any(), moving, varies)
    size = jnp.sqrt(mean((move - here) ** 2))
    return jnp.where(moving, 1 / jnp.maximum(size, 1e-3), 0.0)


def shortest_move(horizon: int) -> int:
    """The shortest move that the executor learns: a fifth of the horizon."""
    return max(1, round(SHORTEST_MOVE * horizon))


# ---- The guide, then the executor ----


def guided(config: VEM, spec: Spec, num_steps: int) -> PolicyLearner:
    """The guide first, then the executor, so that the executor's stage can be evaluated on the way."""
    assert config.horizon is not None, "complete decides it"
    horizon, head, observed = config.horizon, spec.head, spec.observation_size
    num_guide = max(1, round(num_steps * GUIDE_SHARE))
    num_executor = max(1, num_steps - num_guide)
    guide_optimizer, executor_optimizer = (policy_optimizer(config, count) for count in (num_guide, num_executor))

    def init(key: jax.Array) -> GuidedState:
        guide_key, executor_key = jax.random.split(key)
        guide = init_network(guide_key, (observed, *config.policy_hidden, observed))
        executor = init_network(executor_key, (2 * observed, *config.policy_hidden, head.num_outputs))
        guide_log_std, free_log_std = jnp.zeros(observed), jnp.zeros(head.num_boxes)
        return GuidedState(
            guide=guide,
            guide_log_std=guide_log_std,
            guide_opt_state=guide_optimizer.init((guide, guide_log_std)),
            executor=executor,
            free_log_std=free_log_std,
            executor_opt_state=executor_optimizer.init((executor, free_log_std)),
            move_scale=jnp.ones(observed),
        )

    def moves_of(learner: GuidedState, batch: Batch) -> jax.Array:
        """Δ of each row; ``next_observations`` are those that the moves lead to."""
        return (batch.next_observations - batch.observations) * learner.move_scale

    def log_std_of(free: jax.Array) -> jax.Array:
        return log_deviation(free, config.log_std_low, config.log_std_high)

    # The guide: regression of the moves of good rows on their states, rows drawn by the advantage of their moves.

    def empty_moves() -> MoveMemory:
        return MoveMemory(jnp.zeros(spec.num_rows, jnp.int32), *empty_weights(config, spec))

    def refresh_moves(
        state: VEMState, old: MoveMemory, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[VEMState, MoveMemory]:
        """Moves that a time limit cut short are not drawn; those that end with the task are, however short."""
        ends = episode_ends(rows.valid)
        # The unit of moves stays when other rows take the place of these: guide and executor must agree on it.
        move_scale = jnp.where(index == 0, fit_move_scale(rows, ends, horizon), state.policy.move_scale)
        state = state._replace(policy=state.policy._replace(move_scale=move_scale))
        values = final_values(state, rows)
        returns = n_step(values, steps_of(config, rows), horizon)
        is_whole = (ends - jnp.arange(spec.num_rows) >= horizon) | (rows.continues[ends - 1] == 0)
        usable = rows.valid & is_whole
        usable = jnp.where(usable.any(), usable, rows.valid)
        return state, MoveMemory(ends, *weigh_rows(config, returns, values, usable, rows, state.swept))

    def draw_moves(memory: MoveMemory, rows: Rows, count: int, key: jax.Array) -> jax.Array:
        assert memory.shares is not None, "guided policies draw rows by their weights"
        return draw_rows(memory.shares, count, key)

    def whole_move(memory: MoveMemory, index: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.minimum(index + horizon, memory.ends[index])

    def update_guide(state: VEMState, memory: MoveMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        learner: GuidedState = state.policy
        moves, travels = moves_of(learner, batch), learner.move_scale > 0

        def compute_loss(parameters: tuple[Network, jax.Array]) -> tuple[jax.Array, jax.Array]:
            guide, free = parameters
            errors, log_std = moves - apply_network(guide, batch.observations), log_std_of(free)
            loss = jnp.sum(jnp.where(travels, 0.5 * (errors * jnp.exp(-log_std)) ** 2 + log_std, 0.0), axis=-1).mean()
            return loss, jnp.sum(jnp.where(travels, errors**2, 0.0)) / (jnp.maximum(travels.sum(), 1) * batch.rows.size)

        parameters = (learner.guide, learner.guide_log_std)
        (loss, error), grads = jax.value_and_grad(compute_loss, has_aux=True)(parameters)
        (guide, free), opt_state = descend(guide_optimizer, grads, learner.guide_opt_state, parameters)
        learner = learner._replace(guide=guide, guide_log_std=free, guide_opt_state=opt_state)
        metrics = {
            "guide_loss": loss,
            "guide_error": error,
            "effective_share": memory.effective_share,
            "temperature": memory.scale.temperature,
        }
        return state._replace(policy=learner), metrics

    # The executor: regression of recorded actions on states and moves of different lengths, over all rows.

    def refresh_ends(
        state: VEMState, old: jax.Array, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[VEMState, jax.Array]:
        return state, episode_ends(rows.valid)

    def any_move(ends: jax.Array, index: jax.Array, key: jax.Array) -> jax.Array:
        lengths = jax.random.randint(key, index.shape, shortest_move(horizon), horizon + 1)
        return jnp.minimum(index + lengths, ends[index])

    def update_executor(state: VEMState, ends: jax.Array, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        learner: GuidedState = state.policy
        inputs = jnp.concatenate([batch.observations, moves_of(learner, batch)], axis=-1)

        def compute_loss(parameters: tuple[Network, jax.Array]) -> jax.Array:
            executor, free = parameters
            return -head.log_likelihood(apply_network(executor, inputs), log_std_of(free), batch.actions).mean()

        parameters = (learner.executor, learner.free_log_std)
        loss, grads = jax.value_and_grad(compute_loss)(parameters)
        (executor, free), opt_state = descend(executor_optimizer, grads, learner.executor_opt_state, parameters)
        learner = learner._replace(executor=executor, free_log_std=free, executor_opt_state=opt_state)
        return state._replace(policy=learner), {"policy_loss": loss, "log_likelihood": -loss}

    def export(state: VEMState) -> dict[str, Any]:
        learner: GuidedState = state.policy
        return {
            "guide": learner.guide,
            "actor": learner.executor,
            "log_std": log_std_of(learner.free_log_std),
            "move_scale": learner.move_scale,
            "critics": state.critics,
        }

    size = config.batch_size
    guide = Stage(
        "guide",
        num_guide,
        None,
        size,
        empty_moves,
        refresh_moves,
        update_guide,
        draw_moves,
        whole_move,
        trains_policy=False,
        weights=lambda memory, rows: WEIGHTS[config.weight](memory.advantages[rows.drawable], memory.scale.temperature),
    )
    empty_ends = lambda: jnp.zeros(spec.num_rows, jnp.int32)
    executor = Stage(
        "executor", num_executor, None, size, empty_ends, refresh_ends, update_executor, successor=any_move
    )
    return PolicyLearner(init, (guide, executor), export, "guided")
