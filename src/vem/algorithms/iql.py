"""Implicit Q-learning: expectile regression of V toward Q(s, a) of recorded actions, then weighted cloning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import (
    Algorithm,
    Batch,
    Configuration,
    Method,
    Metrics,
    Preset,
    Spec,
    Stage,
    no_memory,
    no_refresh,
    setting,
)
from vem.data.actions import ACTION_KINDS
from vem.losses import effective_share, expectile_loss, exponential_weights
from vem.networks import Network, apply_network, apply_networks, descend, init_network, init_networks


@dataclass(frozen=True)
class IQL(Configuration):
    """The official settings for MuJoCo; the preset has those of the other task families.

        L_V = E[|τ − 1{u ≤ 0}|·u²],  u = min_i Q′_i(s, a) − V(s)
        L_Q = E[(r + γ·V(s′) − Q_i(s, a))²]
        J_π = E[min(exp(β·(Q(s, a) − V(s))), 100)·log π(a|s)]

    Paper: Kostrikov, Nair, Levine, Offline Reinforcement Learning with Implicit Q-Learning, ICLR 2022
    (https://arxiv.org/abs/2110.06169). Official program: https://github.com/ikostrikov/implicit_q_learning.
    """

    expectile: float = setting(
        0.7, "τ: at ½ V is the mean of Q over recorded actions, toward 1 the best of them", "level", sweep=True
    )
    inverse_temperature: float = setting(3.0, "β: the weight of a row is exp(β·A)", "not negative", sweep=True)
    largest_weight: float = setting(100.0, "Largest weight of a row; larger ones are clipped", "positive")
    discount: float = setting(0.99, "Discount γ", "discount")
    target_rate: float = setting(
        0.005, "κ: share by which target networks move toward the trained ones", "positive share"
    )
    value_hidden: tuple[int, ...] = setting((256, 256), "Hidden layers of V and of Q", "positive")
    policy_hidden: tuple[int, ...] = setting((256, 256), "Hidden layers of the actor", "positive")
    policy_dropout: float = setting(0.0, "Dropout rate in the actor", "discount")
    log_std_low: float = setting(-5.0, "Smallest log σ of the policy; it is clipped here")
    log_std_high: float = setting(2.0, "Largest log σ of the policy; it is clipped here")
    value_lr: float = setting(3e-4, "Adam's learning rate for V and Q", "positive")
    policy_lr: float = setting(
        3e-4, "Adam's learning rate for the actor at the start; it falls to 0 along a cosine", "positive"
    )
    batch_size: int = setting(256, "Rows in an update", "positive")
    normalize_observations: bool = setting(False, "Standardize observations; the policy does it too")
    reward_scale: float = setting(1.0, "Rewards become scale·r + shift", "positive")
    reward_shift: float = setting(0.0, "Added to each reward after scaling")
    return_span: float | None = setting(
        None, "Scale rewards so that the best and the worst episode return differ by this; none: keep them", "positive"
    )


class IQLState(NamedTuple):
    """Networks, their optimizers and the swept settings."""

    values: Network
    """One V network; leading axis 1."""
    critics: Network
    """Two Q networks, stacked."""
    targets: Network
    actor: Network
    free_log_std: jax.Array
    value_opt_state: Any
    critic_opt_state: Any
    policy_opt_state: Any
    swept: dict[str, jax.Array]


def make(config: IQL, spec: Spec, num_steps: int) -> Algorithm:
    """IQL for data of the given sizes."""
    head = spec.head
    value_optimizer = optax.adam(config.value_lr)
    critic_optimizer = optax.adam(config.value_lr)
    policy_optimizer = optax.adam(optax.cosine_decay_schedule(config.policy_lr, num_steps))

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> IQLState:
        value_key, critic_key, actor_key = jax.random.split(key, 3)
        observed = spec.observation_size
        values = init_networks(value_key, (observed, *config.value_hidden, 1), 1)
        critics = init_networks(critic_key, (observed + head.num_inputs, *config.value_hidden, 1), 2)
        actor = init_network(actor_key, (observed, *config.policy_hidden, head.num_outputs))
        free_log_std = jnp.zeros(head.num_boxes)
        return IQLState(
            values=values,
            critics=critics,
            targets=critics,
            actor=actor,
            free_log_std=free_log_std,
            value_opt_state=value_optimizer.init(values),
            critic_opt_state=critic_optimizer.init(critics),
            policy_opt_state=policy_optimizer.init((actor, free_log_std)),
            swept=swept,
        )

    def log_std_of(free: jax.Array) -> jax.Array:
        return jnp.clip(free, config.log_std_low, config.log_std_high)

    def update(state: IQLState, memory: tuple[()], batch: Batch, key: jax.Array) -> tuple[IQLState, Metrics]:
        pairs = jnp.concatenate([batch.observations, head.encode(batch.actions)], axis=-1)
        q = apply_networks(state.targets, pairs).min(0)

        def compute_value_loss(values: Network) -> jax.Array:
            difference = q - apply_networks(values, batch.observations)[0]
            return expectile_loss(difference, state.swept["expectile"]).mean()

        value_loss, grads = jax.value_and_grad(compute_value_loss)(state.values)
        values, value_opt_state = descend(value_optimizer, grads, state.value_opt_state, state.values)

        v = apply_networks(values, batch.observations)[0]
        temperature = 1 / jnp.maximum(state.swept["inverse_temperature"], 1e-8)
        weight = exponential_weights(q - v, temperature, config.largest_weight)

        def compute_policy_loss(parameters: tuple[Network, jax.Array]) -> tuple[jax.Array, jax.Array]:
            actor, free = parameters
            outputs = apply_network(actor, batch.observations, key, config.policy_dropout)
            likelihood = head.log_likelihood(outputs, log_std_of(free), batch.actions)
            return -jnp.mean(weight * likelihood), likelihood.mean()

        parameters = (state.actor, state.free_log_std)
        (policy_loss, likelihood), grads = jax.value_and_grad(compute_policy_loss, has_aux=True)(parameters)
        (actor, free), policy_opt_state = descend(policy_optimizer, grads, state.policy_opt_state, parameters)

        next_v = apply_networks(values, batch.next_observations)[0]
        target_q = batch.rewards + config.discount * batch.continues * next_v

        def compute_critic_loss(critics: Network) -> jax.Array:
            return jnp.sum(jnp.mean((target_q - apply_networks(critics, pairs)) ** 2, axis=1))

        critic_loss, grads = jax.value_and_grad(compute_critic_loss)(state.critics)
        critics, critic_opt_state = descend(critic_optimizer, grads, state.critic_opt_state, state.critics)
        metrics = {
            "value_loss": value_loss,
            "value_mean": v.mean(),
            "value_largest": jnp.abs(v).max(),
            "critic_loss": critic_loss,
            "policy_loss": policy_loss,
            "log_likelihood": likelihood,
            "effective_share": effective_share(weight),
        }
        state = state._replace(
            values=values,
            critics=critics,
            targets=optax.incremental_update(critics, state.targets, config.target_rate),
            actor=actor,
            free_log_std=free,
            value_opt_state=value_opt_state,
            critic_opt_state=critic_opt_state,
            policy_opt_state=policy_opt_state,
        )
        return state, metrics

    def export(state: IQLState) -> dict[str, Any]:
        return {"actor": state.actor, "log_std": log_std_of(state.free_log_std), "critics": state.values}

    stage = Stage("joint", num_steps, None, config.batch_size, no_memory, no_refresh, update)
    return Algorithm("iql", init, (stage,), export, "gaussian")


OFFICIAL = Preset(
    settings={},
    rules={},
    source="the official program's configurations",
    families={
        "antmaze": {"expectile": 0.9, "inverse_temperature": 10.0, "reward_shift": -1.0},
        "adroit": {"expectile": 0.7, "inverse_temperature": 0.5, "policy_dropout": 0.1},
        "mujoco": {"return_span": 1000.0},
    },
    steps=1_000_000,
)
METHOD = Method(IQL, make, "implicit Q-learning", {"default": OFFICIAL}, ACTION_KINDS)
