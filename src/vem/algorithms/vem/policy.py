"""From values to a policy: advantages, their weights, regression of the recorded actions (paper, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import Batch, Metrics, Rows, Spec, Stage, draw_uniformly
from vem.algorithms.vem.config import VEM
from vem.algorithms.vem.values import VEMState, final_returns, final_values
from vem.core import advantages, sampling
from vem.core.distributions import log_deviation
from vem.core.heads import Head
from vem.core.networks import Network, apply_network, descend, init_network, scheduled_lr

SCALE_SAMPLE = 16384
"""Rows that the scale of the advantages is fitted to."""


class PolicyState(NamedTuple):
    """The actor, the free parameters of its log σ, and their optimizer."""

    actor: Network
    free_log_std: jax.Array
    opt_state: Any


class PolicyMemory(NamedTuple):
    """The advantage of every row, in the unit of ``scale``, and what rows are drawn by."""

    advantages: jax.Array
    scale: advantages.AdvantageScale
    effective_share: jax.Array
    shares: sampling.Shares | None
    """None: rows are drawn uniformly."""


class PolicyLearner(NamedTuple):
    """A way from values to a policy; its state is ``VEMState.policy``."""

    init: Callable[[jax.Array], Any]
    stages: tuple[Stage, ...]
    """They follow the value stage."""
    export: Callable[[VEMState], dict[str, Any]]
    kind: str
    """How ``vem.policy`` acts with it."""


# ---- networks ----


def policy_optimizer(config: VEM, num_steps: int) -> optax.GradientTransformation:
    """Adam with decoupled weight decay; the learning rate falls over ``num_steps`` steps if scheduled."""
    assert config.policy_weight_decay is not None, "complete decides it"
    lr = scheduled_lr(config.policy_lr, config.policy_lr_schedule, num_steps)
    return optax.adamw(lr, weight_decay=config.policy_weight_decay)


def init_policy(config: VEM, spec: Spec, num_steps: int, key: jax.Array) -> PolicyState:
    """The actor before the first step."""
    head = spec.head
    actor = init_network(key, (spec.observation_size, *config.policy_hidden, head.num_outputs))
    free_log_std = jnp.zeros(head.num_boxes)
    return PolicyState(actor, free_log_std, policy_optimizer(config, num_steps).init((actor, free_log_std)))


def export_policy(config: VEM, state: VEMState) -> dict[str, Any]:
    """What the policy file holds."""
    log_std = log_deviation(state.policy.free_log_std, config.log_std_low, config.log_std_high)
    return {"actor": state.policy.actor, "log_std": log_std, "critics": state.critics}


# ---- advantages and their weights ----


def sample_rows(rows: Rows) -> jax.Array:
    """Evenly spaced drawable rows, at most ``SCALE_SAMPLE`` of them."""
    count = min(SCALE_SAMPLE, rows.drawable.size)
    return rows.drawable[(jnp.arange(count) * (rows.drawable.size / count)).astype(jnp.int32)]


def fit_scale(
    config: VEM, returns: jax.Array, values: jax.Array, rows: Rows, swept: dict[str, jax.Array]
) -> advantages.AdvantageScale:
    """The unit, clipping bounds and temperature of the advantages of a sample of rows."""
    share = swept.get("effective_sample", advantages.typical_share(rows.drawable.size))
    temperature = swept.get("temperature")
    return advantages.fit_scale(returns, values, config.advantage, temperature, config.clip_quantile, share)


def empty_scale() -> advantages.AdvantageScale:
    """A scale before it is fitted."""
    return advantages.AdvantageScale(*[jnp.zeros(()) for _ in advantages.AdvantageScale._fields])


def compute_advantages(
    config: VEM, returns: jax.Array, values: jax.Array, scale: advantages.AdvantageScale
) -> jax.Array:
    """A = R − V in the chosen unit, clipped; −∞ for rows that are left out."""
    return advantages.advantage(returns, values, scale, config.advantage, config.drop_below)


def weigh(config: VEM, adv: jax.Array, scale: advantages.AdvantageScale) -> jax.Array:
    """The regression weight f(A) of each row."""
    return advantages.WEIGHTS[config.weight](adv, scale.temperature)


def empty_memory(config: VEM, spec: Spec) -> PolicyMemory:
    """The memory before the refresh."""
    shares = sampling.empty_shares(spec.num_rows) if config.policy_draw == "weights" else None
    return PolicyMemory(jnp.zeros(spec.num_rows), empty_scale(), jnp.zeros(()), shares)


def refresh_memory(
    config: VEM, spec: Spec, state: VEMState, old: PolicyMemory, rows: Rows, index: jax.Array, key: jax.Array
) -> tuple[VEMState, PolicyMemory]:
    """Advantages and weights of all rows under the final values."""
    returns = final_returns(config, spec, state, rows)
    values = final_values(state, rows)
    sample = sample_rows(rows)
    scale = fit_scale(config, returns[sample], values[sample], rows, state.swept)
    adv = compute_advantages(config, returns, values, scale)
    shares = None
    if config.policy_draw == "weights":
        shares = sampling.cumulate(weigh(config, jnp.where(rows.valid, adv, -jnp.inf), scale))
    share = advantages.effective_share(jnp.abs(weigh(config, adv[rows.drawable], scale)))
    return state, PolicyMemory(adv, scale, share, shares)


def draw_by_weight(memory: PolicyMemory, rows: Rows, count: int, key: jax.Array) -> jax.Array:
    """Indices of rows, drawn in proportion to their weights."""
    assert memory.shares is not None
    return sampling.draw_rows(memory.shares, count, key)


# ---- the update ----


def update_policy(
    config: VEM, head: Head, num_steps: int, state: VEMState, weight: jax.Array, batch: Batch, key: jax.Array
) -> tuple[VEMState, Metrics]:
    """One step on −mean(w·log π(a|s))."""
    policy: PolicyState = state.policy
    least = config.least_log_likelihood * batch.actions.shape[-1]

    def compute_loss(parameters: tuple[Network, jax.Array]) -> tuple[jax.Array, jax.Array]:
        actor, free = parameters
        outputs = apply_network(actor, batch.observations, key, config.policy_dropout)
        log_std = log_deviation(free, config.log_std_low, config.log_std_high)
        likelihood = head.log_likelihood(outputs, log_std, batch.actions)
        return advantages.weighted_likelihood_loss(weight, likelihood, least), likelihood.mean()

    parameters = (policy.actor, policy.free_log_std)
    (loss, likelihood), grads = jax.value_and_grad(compute_loss, has_aux=True)(parameters)
    optimizer = policy_optimizer(config, num_steps)
    (actor, free), opt_state = descend(optimizer, grads, policy.opt_state, parameters)
    metrics = {
        "policy_loss": loss,
        "log_likelihood": likelihood,
        "effective_share": advantages.effective_share(jnp.abs(weight)),
    }
    return state._replace(policy=PolicyState(actor, free, opt_state)), metrics


def policy_stage(config: VEM, spec: Spec, num_steps: int) -> Stage:
    """The stage that learns the policy from final values."""
    head = spec.head

    def update(state: VEMState, memory: PolicyMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        if memory.shares is None:
            weight = weigh(config, memory.advantages[batch.rows], memory.scale)
            state, metrics = update_policy(config, head, num_steps, state, weight, batch, key)
        else:
            state, metrics = update_policy(config, head, num_steps, state, jnp.ones(batch.rows.shape), batch, key)
            metrics["effective_share"] = memory.effective_share
        return state, metrics | {"temperature": memory.scale.temperature}

    return Stage(
        name="policy",
        num_steps=num_steps,
        steps_per_refresh=None,
        batch_size=config.batch_size,
        empty=partial(empty_memory, config, spec),
        refresh=partial(refresh_memory, config, spec),
        update=update,
        draw=draw_by_weight if config.policy_draw == "weights" else draw_uniformly,
    )


def regression(config: VEM, spec: Spec, num_steps: int) -> PolicyLearner:
    """Weighted regression of the recorded actions."""
    return PolicyLearner(
        init=partial(init_policy, config, spec, num_steps),
        stages=(policy_stage(config, spec, num_steps),),
        export=partial(export_policy, config),
        kind="gaussian",
    )
