"""Advantage-weighted regression: λ-returns of the trajectories, a value baseline, exponentially weighted cloning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import Algorithm, Batch, Configuration, Method, Metrics, Preset, Rows, Spec, Stage, setting
from vem.data.actions import ACTION_KINDS
from vem.losses import effective_share, exponential_weights
from vem.networks import Network, apply_network, apply_networks, descend, init_network, init_networks
from vem.plan import Steps, lambda_return, value_rows


@dataclass(frozen=True)
class AWR(Configuration):
    """The official settings; only the fixed σ differs between task families.

        L_V = E[(R − V(s))²],  R the TD(λ) return
        J_π = E[min(exp(A/T), 20)·log π(a|s)],  A = R − V(s), standardized

    Paper: Peng, Kumar, Zhang, Levine, Advantage-Weighted Regression, 2019 (https://arxiv.org/abs/1910.00177).
    Official program: https://github.com/xbpeng/awr.
    """

    temperature: float = setting(
        1.0, "Temperature of the weights: exp(A/T) of standardized advantages", "positive", sweep=True
    )
    largest_weight: float = setting(20.0, "Largest weight of a row; larger ones are clipped", "positive")
    td_lambda: float = setting(0.95, "λ of TD(λ) returns; 1: Monte-Carlo returns", "share")
    discount: float = setting(0.99, "Discount γ", "discount")
    steps_per_refresh: int = setting(1000, "Steps between two refreshes of the returns", "positive")
    value_unit: float | None = setting(None, "Unit in which the critic predicts V; none: 1/(1−γ)", "positive")
    value_hidden: tuple[int, ...] = setting((128, 64), "Hidden layers of the critic", "positive")
    policy_hidden: tuple[int, ...] = setting((128, 64), "Hidden layers of the actor", "positive")
    policy_std: float = setting(0.4, "Fixed σ of the policy", "positive")
    value_lr: float = setting(0.01, "Learning rate of the critic", "positive")
    policy_lr: float = setting(5e-5, "Learning rate of the actor", "positive")
    momentum: float = setting(0.9, "Momentum of both gradient descents", "discount")
    batch_size: int = setting(256, "Rows in an update", "positive")
    normalize_observations: bool = setting(True, "Standardize observations; the policy does it too")
    reward_scale: float = setting(1.0, "Rewards become scale·r + shift", "positive")
    reward_shift: float = setting(0.0, "Added to each reward after scaling")


class AWRState(NamedTuple):
    """Networks, their optimizers and the swept settings."""

    critic: Network
    """One V network, in ``value_unit``; leading axis 1."""
    actor: Network
    value_opt_state: Any
    policy_opt_state: Any
    swept: dict[str, jax.Array]


class AWRMemory(NamedTuple):
    """λ-returns of every row, and mean and deviation of their advantages."""

    returns: jax.Array
    mean: jax.Array
    deviation: jax.Array


def make(config: AWR, spec: Spec, num_steps: int) -> Algorithm:
    """AWR for data of the given sizes."""
    value_optimizer = optax.sgd(config.value_lr, config.momentum)
    policy_optimizer = optax.sgd(config.policy_lr, config.momentum)
    # Plain gradient descent needs targets of order 1; (1−γ)·V is of the reward's own size.
    unit = config.value_unit or 1 / (1 - config.discount)
    head = spec.head
    log_std = lambda: jnp.full(head.num_boxes, math.log(config.policy_std))

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> AWRState:
        critic_key, actor_key = jax.random.split(key)
        critic = init_networks(critic_key, (spec.observation_size, *config.value_hidden, 1), 1)
        actor = init_network(actor_key, (spec.observation_size, *config.policy_hidden, head.num_outputs))
        return AWRState(critic, actor, value_optimizer.init(critic), policy_optimizer.init(actor), swept)

    def value(critic: Network, observations: jax.Array) -> jax.Array:
        return apply_networks(critic, observations) * unit

    def refresh(
        state: AWRState, old: AWRMemory, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[AWRState, AWRMemory]:
        value_of = lambda observations: value(state.critic, rows.observe(observations))
        values = value_rows(value_of, rows.observations, 1)
        steps = Steps(rows.rewards, config.discount * rows.continues, rows.valid)
        returns = lambda_return(values, steps, config.td_lambda)
        adv = (returns - values)[0, rows.drawable]
        return state, AWRMemory(returns[0], adv.mean(), jnp.maximum(adv.std(), 1e-5))

    def update(state: AWRState, memory: AWRMemory, batch: Batch, key: jax.Array) -> tuple[AWRState, Metrics]:
        returns = memory.returns[batch.rows]

        def compute_value_loss(critic: Network) -> tuple[jax.Array, jax.Array]:
            v = value(critic, batch.observations)[0]
            return 0.5 * jnp.mean(((returns - v) / unit) ** 2), v

        (value_loss, v), grads = jax.value_and_grad(compute_value_loss, has_aux=True)(state.critic)
        critic, value_opt_state = descend(value_optimizer, grads, state.value_opt_state, state.critic)
        adv = (returns - v - memory.mean) / memory.deviation
        weight = exponential_weights(adv, state.swept["temperature"], config.largest_weight)

        def compute_policy_loss(actor: Network) -> tuple[jax.Array, jax.Array]:
            likelihood = head.log_likelihood(apply_network(actor, batch.observations), log_std(), batch.actions)
            return -jnp.mean(weight * likelihood), likelihood.mean()

        (policy_loss, likelihood), grads = jax.value_and_grad(compute_policy_loss, has_aux=True)(state.actor)
        actor, policy_opt_state = descend(policy_optimizer, grads, state.policy_opt_state, state.actor)
        metrics = {
            "value_loss": value_loss,
            "value_mean": v.mean(),
            "value_largest": jnp.abs(v).max(),
            "return_mean": returns.mean(),
            "policy_loss": policy_loss,
            "log_likelihood": likelihood,
            "effective_share": effective_share(weight),
        }
        return AWRState(critic, actor, value_opt_state, policy_opt_state, state.swept), metrics

    def empty() -> AWRMemory:
        return AWRMemory(jnp.zeros(spec.num_rows), jnp.zeros(()), jnp.ones(()))

    def export(state: AWRState) -> dict[str, Any]:
        *hidden, last = state.critic
        critics = (*hidden, jax.tree.map(lambda leaf: leaf * unit, last))
        return {"actor": state.actor, "log_std": log_std(), "critics": critics}

    stage = Stage("joint", num_steps, config.steps_per_refresh, config.batch_size, empty, refresh, update)
    return Algorithm("awr", init, (stage,), export, "gaussian")


OFFICIAL = Preset(
    settings={},
    rules={},
    source="the official program's configurations: σ 0.4 for the walking robots, 0.2 for Ant, taken for Adroit as well",
    families={"antmaze": {"policy_std": 0.2}, "adroit": {"policy_std": 0.2}},
    steps=1_000_000,  # its program has no number for recorded data: as the others
)
METHOD = Method(AWR, make, "advantage-weighted regression", {"default": OFFICIAL}, ACTION_KINDS)
