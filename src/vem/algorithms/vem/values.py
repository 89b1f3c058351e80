"""VEM's values: target values of all rows, the plan over them, expectile regression (paper, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import Batch, Metrics, Rows, Spec, Stage
from vem.algorithms.vem.config import VEM
from vem.core import losses, memory
from vem.core.networks import Network, apply_networks, descend, init_networks

VALUE_LOSSES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "expectile": losses.expectile_loss,
    "squared-weight": losses.squared_weight_loss,
    "quantile": losses.quantile_loss,
    "squared": lambda difference, expectile: difference**2,
}


class VEMState(NamedTuple):
    """The critics, what the way from values to a policy keeps, and the swept settings."""

    critics: Network
    targets: Network
    value_opt_state: Any
    policy: Any
    """Of the chosen way: ``policy.PolicyState`` for the regression."""
    swept: dict[str, jax.Array]


class ValueMemory(NamedTuple):
    """Target values and planned returns of every row, one line a critic group."""

    values: jax.Array
    returns: jax.Array


# ---- networks ----


def value_optimizer(config: VEM) -> optax.GradientTransformation:
    """Adam for the critics."""
    return optax.adam(config.value_lr)


def init_critics(config: VEM, spec: Spec, key: jax.Array) -> Network:
    """The critics before the first step."""
    critics = init_networks(key, (spec.observation_size, *config.value_hidden, 1), config.num_critics)
    if config.initial_values == "zero":
        critics = (*critics[:-1], jax.tree.map(jnp.zeros_like, critics[-1]))
    return critics


def num_groups(config: VEM) -> int:
    """How many values a state has: one for each group of critics."""
    return min(config.num_critics, 2)


def target_values(config: VEM, state: VEMState, rows: Rows, observations: jax.Array) -> jax.Array:
    """V′(s) of each group, the smaller of its two critics if it has two: shape (groups, rows)."""
    v = apply_networks(state.targets, rows.observe(observations))
    return v.reshape(num_groups(config), -1, v.shape[-1]).min(axis=1)


# ---- the memory: V′ of all rows → V̂ → R ----


def expectile_operator(config: VEM, values: jax.Array, steps: memory.Steps, expectile: jax.Array) -> jax.Array:
    """V̂ = V′ + 2α·(τ·[δ]₊ + (1−τ)·[δ]₋), δ = r + γ·V′(s′) − V′(s) (paper, eq. 4); final observations keep V′."""
    step_size = config.operator_step or 1 / (2 * jnp.maximum(expectile, 1 - expectile))
    difference = memory.one_step(values, steps) - values
    return values + losses.expectile_step(difference, expectile, step_size)


def least_steps(config: VEM, spec: Spec) -> int:
    """The shortest rollout of the plan.

    From n = 1 on, a value that is too high keeps itself up: R_t ≥ γ·V(s_{t+1}), so it sinks by a factor γ at a refresh.
    From n on it sinks by γⁿ, and the return of a row tells more of where its recording went than of noise in V. The
    price is that recordings are joined no finer than that, so short recordings keep n = 1.
    """
    chosen = config.least_plan_steps or min(10, max(1, spec.typical_steps // 20))
    return min(chosen, config.num_plan_steps or chosen)


def find_plan(config: VEM, spec: Spec) -> Callable[[jax.Array, memory.Steps], jax.Array]:
    """The plan with its rollout lengths: (values, steps) → returns."""
    n = config.num_plan_steps
    plans: dict[str, Callable[..., jax.Array]] = {
        "episodic": partial(memory.episodic_maximum, num_steps=n, least_steps=least_steps(config, spec)),
        "crossed": partial(memory.crossed_maximum, num_steps=n),
        "n-step": partial(memory.n_step, num_steps=n or 1),
        "one-step": memory.one_step,
        "monte-carlo": memory.monte_carlo,
    }
    return plans[config.plan]


def plan_returns(config: VEM, spec: Spec, values: jax.Array, rows: Rows, expectile: jax.Array) -> jax.Array:
    """R of every row (paper, eq. 5 and 6): the plan over V̂, or over V′ where τ acts in the regression."""
    assert config.discount is not None, "complete decides it"
    steps = memory.Steps(rows.rewards, config.discount * rows.continues, rows.valid)
    if config.order == "expectile-then-plan":
        values = expectile_operator(config, values, steps, expectile)
    return find_plan(config, spec)(values, steps)


def final_returns(config: VEM, spec: Spec, state: VEMState, rows: Rows) -> jax.Array:
    """R of every row under the target networks as they are, the smallest over the groups: shape (rows,)."""
    values = memory.value_rows(partial(target_values, config, state, rows), rows.observations, num_groups(config))
    return plan_returns(config, spec, values, rows, state.swept["expectile"]).min(0)


def final_values(state: VEMState, rows: Rows) -> jax.Array:
    """V of every row, the mean of the critics: shape (rows,)."""
    value = lambda observations: apply_networks(state.critics, rows.observe(observations)).mean(0, keepdims=True)
    return memory.value_rows(value, rows.observations, 1)[0]


def empty_memory(config: VEM, spec: Spec) -> ValueMemory:
    """The memory before the first refresh."""
    blank = jnp.zeros((num_groups(config), spec.num_rows))
    return ValueMemory(blank, blank)


def num_fresh(config: VEM) -> int | None:
    """Rows valued at a refresh after the first; None: all."""
    # A refreshed row costs one forward pass, an updated row about three.
    return None if config.refresh == "full" else 3 * config.batch_size * config.steps_per_refresh


def refresh_memory(
    config: VEM, spec: Spec, state: VEMState, old: ValueMemory, rows: Rows, index: jax.Array, key: jax.Array
) -> tuple[VEMState, ValueMemory]:
    """Values of all rows at the first refresh, of the next slices of them at later ones, and the plan over all."""
    if config.target_update == "refresh":
        rate = jnp.where(index == 0, 0.0, config.target_rate)
        state = state._replace(targets=optax.incremental_update(state.critics, state.targets, rate))
    value = partial(target_values, config, state, rows)
    fresh, is_zero = num_fresh(config), config.initial_values == "zero"
    values = memory.refresh_values(value, rows.observations, old.values, index, fresh, is_zero_at_first=is_zero)
    return state, ValueMemory(values, plan_returns(config, spec, values, rows, state.swept["expectile"]))


# ---- the update ----


def update_values(
    config: VEM, state: VEMState, returns: jax.Array, batch: Batch
) -> tuple[VEMState, jax.Array, Metrics]:
    """One regression step of the critics toward R: the state, V(s) before the step, the metrics.

    ``returns`` has shape (groups, batch).
    """
    per_critic = jnp.repeat(returns, config.num_critics // num_groups(config), axis=0)
    value_loss = VALUE_LOSSES[config.value_loss]

    def compute_loss(critics: Network) -> tuple[jax.Array, jax.Array]:
        v = apply_networks(critics, batch.observations)
        return value_loss(per_critic - v, state.swept["expectile"]).mean(axis=1).sum(), v

    (loss, v), grads = jax.value_and_grad(compute_loss, has_aux=True)(state.critics)
    critics, opt_state = descend(value_optimizer(config), grads, state.value_opt_state, state.critics)
    targets = state.targets
    if config.target_update == "update":
        targets = optax.incremental_update(critics, targets, config.target_rate)
    metrics = {
        "value_loss": loss,
        "value_mean": v.mean(),
        "value_largest": jnp.abs(v).max(),
        "return_mean": returns.mean(),
    }
    return state._replace(critics=critics, targets=targets, value_opt_state=opt_state), v.mean(0), metrics


def value_stage(config: VEM, spec: Spec, num_steps: int) -> Stage:
    """The stage that learns values alone."""

    def update(state: VEMState, memory: ValueMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        state, _, metrics = update_values(config, state, memory.returns[:, batch.rows], batch)
        return state, metrics

    return Stage(
        name="value",
        num_steps=num_steps,
        steps_per_refresh=config.steps_per_refresh,
        batch_size=config.batch_size,
        empty=partial(empty_memory, config, spec),
        refresh=partial(refresh_memory, config, spec),
        update=update,
        trains_policy=False,
        fresh_rows=memory.rolling_rows(num_fresh(config)),
    )
