"""TD3+BC: deterministic policy gradient with twin critics, and a squared distance to the recorded action."""

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
from vem.networks import Network, apply_network, apply_networks, descend, init_network, init_networks, policy_mean


@dataclass(frozen=True)
class TD3BC(Configuration):
    """The official settings.

        L_Q = E[(r + γ·min_i Q′_i(s′, π′(s′) + noise) − Q_i(s, a))²]
        J_π = E[α·Q(s, π(s))/mean|Q| − (π(s) − a)²]

    Paper: Fujimoto, Gu, A Minimalist Approach to Offline Reinforcement Learning, NeurIPS 2021
    (https://arxiv.org/abs/2106.06860). Official program: https://github.com/sfujim/TD3_BC.
    """

    value_weight: float = setting(
        2.5, "α: weight of Q/mean|Q| against the squared error of behavior cloning", "not negative", sweep=True
    )
    target_noise: float = setting(0.2, "σ of the noise on the target policy's action", "not negative")
    largest_noise: float = setting(0.5, "Largest noise; larger is clipped", "not negative")
    critic_updates: int = setting(2, "Critic steps for each step of the actor and the targets", "positive")
    discount: float = setting(0.99, "Discount γ", "discount")
    target_rate: float = setting(
        0.005, "κ: share by which target networks move toward the trained ones", "positive share"
    )
    value_hidden: tuple[int, ...] = setting((256, 256), "Hidden layers of a critic", "positive")
    policy_hidden: tuple[int, ...] = setting((256, 256), "Hidden layers of the actor", "positive")
    value_lr: float = setting(3e-4, "Adam's learning rate for the critics", "positive")
    policy_lr: float = setting(3e-4, "Adam's learning rate for the actor", "positive")
    batch_size: int = setting(256, "Rows in an update", "positive")
    normalize_observations: bool = setting(True, "Standardize observations; the policy does it too")
    reward_scale: float = setting(1.0, "Rewards become scale·r + shift", "positive")
    reward_shift: float = setting(0.0, "Added to each reward after scaling")


class TD3BCState(NamedTuple):
    """Networks, their optimizers, the number of steps done and the swept settings."""

    actor: Network
    critics: Network
    target_actor: Network
    targets: Network
    policy_opt_state: Any
    value_opt_state: Any
    num_done: jax.Array
    swept: dict[str, jax.Array]


def make(config: TD3BC, spec: Spec, num_steps: int) -> Algorithm:
    """TD3+BC for data of the given sizes."""
    policy_optimizer = optax.adam(config.policy_lr)
    value_optimizer = optax.adam(config.value_lr)

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> TD3BCState:
        actor_key, critic_key = jax.random.split(key)
        observed, acted = spec.observation_size, spec.action_size
        actor = init_network(actor_key, (observed, *config.policy_hidden, acted))
        critics = init_networks(critic_key, (observed + acted, *config.value_hidden, 1), 2)
        opt_state = (policy_optimizer.init(actor), value_optimizer.init(critics))
        return TD3BCState(actor, critics, actor, critics, *opt_state, jnp.zeros((), jnp.int32), swept)

    def q_values(critics: Network, observations: jax.Array, actions: jax.Array) -> jax.Array:
        return apply_networks(critics, jnp.concatenate([observations, actions], axis=-1))

    def update_critics(state: TD3BCState, batch: Batch, key: jax.Array) -> tuple[TD3BCState, Metrics]:
        noise = config.target_noise * jax.random.normal(key, batch.actions.shape)
        noise = jnp.clip(noise, -config.largest_noise, config.largest_noise)
        actions = jnp.clip(policy_mean(state.target_actor, batch.next_observations) + noise, -1, 1)
        next_q = q_values(state.targets, batch.next_observations, actions).min(0)
        target_q = batch.rewards + config.discount * batch.continues * next_q

        def compute_loss(critics: Network) -> tuple[jax.Array, jax.Array]:
            q = q_values(critics, batch.observations, batch.actions)
            return jnp.sum(jnp.mean((target_q - q) ** 2, axis=1)), q

        (loss, q), grads = jax.value_and_grad(compute_loss, has_aux=True)(state.critics)
        critics, opt_state = descend(value_optimizer, grads, state.value_opt_state, state.critics)
        metrics = {"critic_loss": loss, "value_mean": q.mean(), "value_largest": jnp.abs(q).max()}
        return state._replace(critics=critics, value_opt_state=opt_state), metrics

    def update_policy(state: TD3BCState, batch: Batch, times: float) -> tuple[TD3BCState, Metrics]:
        first = jax.tree.map(lambda leaf: leaf[0], state.critics)

        def compute_loss(actor: Network) -> tuple[jax.Array, jax.Array]:
            actions = policy_mean(actor, batch.observations)
            q = apply_network(first, jnp.concatenate([batch.observations, actions], axis=-1))[:, 0]
            scale = state.swept["value_weight"] / jnp.maximum(jax.lax.stop_gradient(jnp.abs(q).mean()), 1e-8)
            error = jnp.mean((actions - batch.actions) ** 2)
            return error - scale * q.mean(), error

        (loss, error), grads = jax.value_and_grad(compute_loss, has_aux=True)(state.actor)
        actor, opt_state = descend(policy_optimizer, grads, state.policy_opt_state, state.actor)
        state = state._replace(
            actor=actor,
            policy_opt_state=opt_state,
            target_actor=optax.incremental_update(actor, state.target_actor, config.target_rate),
            targets=optax.incremental_update(state.critics, state.targets, config.target_rate),
        )
        return state, {"policy_loss": times * loss, "cloning_error": times * error}

    def update(state: TD3BCState, memory: tuple[()], batch: Batch, key: jax.Array) -> tuple[TD3BCState, Metrics]:
        state, critic_metrics = update_critics(state, batch, key)
        state = state._replace(num_done=state.num_done + 1)
        # The other steps count as 0 in the means of the metrics, so this one counts for all of them.
        times = float(config.critic_updates)
        state, policy_metrics = jax.lax.cond(
            state.num_done % config.critic_updates == 0,
            lambda state: update_policy(state, batch, times),
            lambda state: (state, {"policy_loss": jnp.zeros(()), "cloning_error": jnp.zeros(())}),
            state,
        )
        return state, critic_metrics | policy_metrics

    def export(state: TD3BCState) -> dict[str, Any]:
        return {"actor": state.actor, "action_critics": state.critics}

    stage = Stage("joint", num_steps, None, config.batch_size, no_memory, no_refresh, update)
    return Algorithm("td3bc", init, (stage,), export, "deterministic")


OFFICIAL = Preset(
    settings={}, rules={}, source="the official program's settings, the same for every task", steps=1_000_000
)
METHOD = Method(TD3BC, make, "TD3+BC", {"default": OFFICIAL})
