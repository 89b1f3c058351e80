"""Value-based Episodic Memory: expectile V-learning, planning along trajectories, weighted regression.

Each setting (``vem.algorithms.vem.config``) names a function; none is tested inside the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import Algorithm, Batch, Metrics, Rows, Spec, Stage, draw_uniformly
from vem.algorithms.vem.config import VEMSettings, check
from vem.core import advantages, losses, memory, sampling
from vem.core.distributions import log_deviation, log_likelihood, policy_mean
from vem.core.networks import Network, apply_networks, descend, init_network, init_networks, move_targets, scheduled_lr


class VEMState(NamedTuple):
    """Networks, their optimizers and the swept settings."""

    critics: Network
    targets: Network
    actor: Network
    free_log_std: jax.Array
    value_opt_state: Any
    policy_opt_state: Any
    swept: dict[str, jax.Array]


class ValueMemory(NamedTuple):
    """Target values and planned returns of every row, one line a critic group."""

    values: jax.Array
    returns: jax.Array
    scale: advantages.AdvantageScale


class PolicyMemory(NamedTuple):
    """The advantage of every row, in the unit of ``scale``, and what rows are drawn by."""

    advantages: jax.Array
    scale: advantages.AdvantageScale
    effective_share: jax.Array
    shares: sampling.Shares | None
    """None: rows are drawn uniformly."""


SLICE_ROWS = 4096
SCALE_SAMPLE = 16384
VALUE_LOSSES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "expectile": losses.expectile_loss,
    "squared-weight": losses.squared_weight_loss,
    "quantile": losses.quantile_loss,
    "squared": lambda difference, expectile: difference**2,
}
PLANS: dict[str, Callable[..., jax.Array]] = {
    "episodic": memory.episodic_maximum,
    "crossed": memory.crossed_maximum,
    "n-step": memory.n_step,
    "one-step": memory.one_step,
    "monte-carlo": memory.monte_carlo,
}


def least_steps(settings: VEMSettings, spec: Spec) -> int:
    """The shortest rollout of the plan.

    From n = 1 on, a value that is too high keeps itself up: R_t ≥ γ·V(s_{t+1}), so it sinks by a factor γ at a refresh.
    From n on it sinks by γⁿ, and the return of a row tells more of where its recording went than of noise in V. The
    price is that recordings are joined no finer than that, so short recordings keep n = 1.
    """
    chosen = settings.least_plan_steps or min(10, max(1, spec.typical_steps // 20))
    return min(chosen, settings.num_plan_steps or chosen)


def make(settings: VEMSettings, spec: Spec, num_steps: int) -> Algorithm:
    """VEM for data of the given sizes, ``num_steps`` steps in all."""
    check(settings)
    num_groups = min(settings.num_critics, 2)
    plan = PLANS[settings.plan]
    if settings.plan in ("episodic", "crossed", "n-step"):
        plan = partial(plan, num_steps=settings.num_plan_steps)
    if settings.plan == "episodic":
        plan = partial(plan, least_steps=least_steps(settings, spec))
    value_optimizer = optax.adam(settings.value_lr)
    num_value = max(1, round(num_steps * settings.value_share)) if settings.schedule == "value-then-policy" else 0
    num_policy = max(1, num_steps - num_value)
    policy_optimizer = optax.adamw(
        scheduled_lr(settings.policy_lr, settings.policy_lr_schedule, num_policy),
        weight_decay=settings.policy_weight_decay,
    )
    value_loss = VALUE_LOSSES[settings.value_loss]
    weigh = advantages.WEIGHTS[settings.weight]
    operate = _expectile_operator(settings) if settings.order == "expectile-then-plan" else lambda v, steps, tau: v

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> VEMState:
        critic_key, actor_key = jax.random.split(key)
        critics = init_networks(critic_key, (spec.observation_size, *settings.value_hidden, 1), settings.num_critics)
        if settings.initial_values == "zero":
            critics = (*critics[:-1], jax.tree.map(jnp.zeros_like, critics[-1]))
        actor = init_network(actor_key, (spec.observation_size, *settings.policy_hidden, spec.action_size))
        free_log_std = jnp.zeros(spec.action_size)
        return VEMState(
            critics=critics,
            targets=critics,
            actor=actor,
            free_log_std=free_log_std,
            value_opt_state=value_optimizer.init(critics),
            policy_opt_state=policy_optimizer.init((actor, free_log_std)),
            swept=swept,
        )

    # ---- the memory ----

    def group_values(networks: Network, observations: jax.Array) -> jax.Array:
        values = apply_networks(networks, observations)
        return values.reshape(num_groups, -1, values.shape[-1]).min(axis=1)

    def steps_of(rows: Rows) -> memory.Steps:
        return memory.Steps(rows.rewards, settings.discount * rows.continues, rows.valid)

    def planned(values: jax.Array, rows: Rows, state: VEMState) -> jax.Array:
        steps = steps_of(rows)
        return plan(operate(values, steps, state.swept["expectile"]), steps)

    def fit_scale(returns: jax.Array, values: jax.Array, rows: Rows, state: VEMState) -> advantages.AdvantageScale:
        share = state.swept.get("effective_sample", advantages.typical_share(rows.drawable.size))
        temperature = state.swept.get("temperature")
        return advantages.fit_scale(returns, values, settings.advantage, temperature, settings.clip_quantile, share)

    def sample_rows(rows: Rows) -> jax.Array:
        count = min(SCALE_SAMPLE, rows.drawable.size)
        return rows.drawable[(jnp.arange(count) * (rows.drawable.size / count)).astype(jnp.int32)]

    total_slices = memory.count_slices(spec.num_rows, SLICE_ROWS)
    # A refreshed row costs one forward pass, an updated row about three.
    affordable = -(-3 * settings.batch_size * settings.steps_per_refresh // SLICE_ROWS)
    rolling_slices = total_slices if settings.refresh == "full" else min(total_slices, affordable)

    def refresh(
        state: VEMState, old: ValueMemory, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[VEMState, ValueMemory]:
        if settings.target_update == "refresh":
            rate = jnp.where(index == 0, 0.0, settings.target_rate)
            state = state._replace(targets=move_targets(state.targets, state.critics, rate))
        value = lambda observations: group_values(state.targets, rows.observe(observations))
        num_slices = jnp.where(index == 0, total_slices, rolling_slices)
        first = (index - 1) * rolling_slices
        values = memory.refresh_values(value, rows.observations, old.values, first, num_slices, SLICE_ROWS)
        returns = planned(values, rows, state)
        scale = old.scale
        if settings.schedule == "joint":
            sample = sample_rows(rows)
            online = apply_networks(state.critics, rows.observe(rows.observations[sample])).mean(0)
            scale = fit_scale(returns[:, sample].min(0), online, rows, state)
        return state, ValueMemory(values, returns, scale)

    def refresh_advantages(
        state: VEMState, old: PolicyMemory, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[VEMState, PolicyMemory]:
        blank = jnp.zeros((num_groups, spec.num_rows))
        target = lambda observations: group_values(state.targets, rows.observe(observations))
        values = memory.refresh_values(target, rows.observations, blank, 0, total_slices, SLICE_ROWS)
        returns = planned(values, rows, state).min(0)
        online = lambda observations: apply_networks(state.critics, rows.observe(observations)).mean(0, keepdims=True)
        values = memory.refresh_values(online, rows.observations, blank[:1], 0, total_slices, SLICE_ROWS)[0]
        sample = sample_rows(rows)
        scale = fit_scale(returns[sample], values[sample], rows, state)
        advantage = advantages.advantage(returns, values, scale, settings.advantage, settings.drop_below)
        shares = None
        if settings.policy_draw == "weights":
            shares = sampling.cumulate(weigh(jnp.where(rows.valid, advantage, -jnp.inf), scale.temperature))
        share = advantages.effective_share(jnp.abs(weigh(advantage[rows.drawable], scale.temperature)))
        return state, PolicyMemory(advantage, scale, share, shares)

    def draw_by_weight(memory: PolicyMemory, rows: Rows, count: int, key: jax.Array) -> jax.Array:
        assert memory.shares is not None
        return sampling.draw_rows(memory.shares, count, key)

    # ---- the steps ----

    def update_values(state: VEMState, returns: jax.Array, batch: Batch) -> tuple[VEMState, jax.Array, Metrics]:
        targets = jnp.repeat(returns, settings.num_critics // num_groups, axis=0)

        def loss(critics: Network) -> tuple[jax.Array, jax.Array]:
            values = apply_networks(critics, batch.observations)
            errors = value_loss(targets - values, state.swept["expectile"])
            return errors.mean(axis=1).sum(), values

        (value, values), gradient = jax.value_and_grad(loss, has_aux=True)(state.critics)
        critics, optimizer = descend(value_optimizer, gradient, state.value_opt_state, state.critics)
        targets_now = state.targets
        if settings.target_update == "update":
            targets_now = move_targets(state.targets, critics, settings.target_rate)
        state = state._replace(critics=critics, targets=targets_now, value_opt_state=optimizer)
        metrics = {
            "value_loss": value,
            "value_mean": values.mean(),
            "value_largest": jnp.abs(values).max(),
            "return_mean": returns.mean(),
        }
        return state, values.mean(0), metrics

    def update_policy(state: VEMState, weight: jax.Array, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:

        def loss(parameters: tuple[Network, jax.Array]) -> tuple[jax.Array, jax.Array]:
            actor, free = parameters
            mean = policy_mean(actor, batch.observations, key, settings.policy_dropout)
            log_std = log_deviation(free, settings.log_std_low, settings.log_std_high)
            likelihood = log_likelihood(batch.actions, mean, log_std)
            least = settings.least_log_likelihood * spec.action_size
            return advantages.weighted_likelihood_loss(weight, likelihood, least), likelihood.mean()

        parameters = (state.actor, state.free_log_std)
        (value, likelihood), gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
        (actor, free), optimizer = descend(policy_optimizer, gradient, state.policy_opt_state, parameters)
        state = state._replace(actor=actor, free_log_std=free, policy_opt_state=optimizer)
        metrics = {
            "policy_loss": value,
            "log_likelihood": likelihood,
            "effective_share": advantages.effective_share(jnp.abs(weight)),
        }
        return state, metrics

    def value_update(state: VEMState, memory: ValueMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        state, _, metrics = update_values(state, memory.returns[:, batch.rows], batch)
        return state, metrics

    def policy_update(state: VEMState, memory: PolicyMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        if memory.shares is None:
            weight = weigh(memory.advantages[batch.rows], memory.scale.temperature)
            state, metrics = update_policy(state, weight, batch, key)
        else:
            state, metrics = update_policy(state, jnp.ones(batch.rows.shape), batch, key)
            metrics["effective_share"] = memory.effective_share
        return state, metrics | {"temperature": memory.scale.temperature}

    def joint_update(state: VEMState, memory: ValueMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        returns = memory.returns[:, batch.rows]
        state, values, value_metrics = update_values(state, returns, batch)
        advantage = advantages.advantage(returns.min(0), values, memory.scale, settings.advantage, settings.drop_below)
        weight = weigh(advantage, memory.scale.temperature)
        state, policy_metrics = update_policy(state, weight, batch, key)
        return state, value_metrics | policy_metrics | {"temperature": memory.scale.temperature}

    # ---- the stages ----

    def empty_scale() -> advantages.AdvantageScale:
        return advantages.AdvantageScale(*[jnp.zeros(()) for _ in advantages.AdvantageScale._fields])

    def empty() -> ValueMemory:
        blank = jnp.zeros((num_groups, spec.num_rows))
        return ValueMemory(blank, blank, empty_scale())

    def empty_advantages() -> PolicyMemory:
        shares = sampling.empty_shares(spec.num_rows) if settings.policy_draw == "weights" else None
        return PolicyMemory(jnp.zeros(spec.num_rows), empty_scale(), jnp.zeros(()), shares)

    period = settings.steps_per_refresh
    if settings.schedule == "joint":
        stages = (Stage("joint", num_steps, period, settings.batch_size, empty, refresh, joint_update),)
    else:
        stages = (
            Stage("value", num_value, period, settings.batch_size, empty, refresh, value_update, trains_policy=False),
            Stage(
                "policy",
                num_policy,
                None,
                settings.batch_size,
                empty_advantages,
                refresh_advantages,
                policy_update,
                draw_by_weight if settings.policy_draw == "weights" else draw_uniformly,
            ),
        )

    def export(state: VEMState) -> dict[str, Any]:
        log_std = log_deviation(state.free_log_std, settings.log_std_low, settings.log_std_high)
        return {"actor": state.actor, "log_std": log_std, "critics": state.critics}

    return Algorithm("vem", init, stages, export, "gaussian")


def _expectile_operator(settings: VEMSettings) -> Callable[[jax.Array, memory.Steps, jax.Array], jax.Array]:
    """V̂ = V′ + 2α·(τ·[δ]₊ + (1−τ)·[δ]₋), δ = r + γ·V′(s′) − V′(s) (paper, eq. 4); final observations keep V′."""

    def operate(values: jax.Array, steps: memory.Steps, expectile: jax.Array) -> jax.Array:
        step_size = settings.operator_step or 1 / (2 * jnp.maximum(expectile, 1 - expectile))
        difference = memory.one_step(values, steps) - values
        return values + losses.expectile_step(difference, expectile, step_size)

    return operate
