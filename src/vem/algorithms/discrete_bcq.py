"""BCQ for discrete actions: double deep Q-learning over the actions that a cloned behavior finds likely.

    G ≈ recorded behavior (cross-entropy);  A(s) = {b : G(b|s) > τ·max_c G(c|s)}
    L_Q = Huber(r + γ·Q′(s′, a*) − Q(s, a)),   a* = argmax_{b in A(s′)} Q(s′, b)
    policy: argmax_{b in A(s)} Q(s, b)

Fujimoto et al. 2019, Benchmarking Batch Deep Reinforcement Learning Algorithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import Algorithm, Batch, Metrics, Spec, Stage, no_memory, no_refresh
from vem.algorithms.bcq import BCQ
from vem.algorithms.discrete_cql import double_q_target
from vem.core.arithmetic import forward, trained
from vem.core.networks import Network, apply_network, descend, init_network

LOGIT_WEIGHT = 0.01
"""Weight of the mean squared logit of G, which keeps it from becoming certain."""


class DiscreteBCQState(NamedTuple):
    """The Q network (s → Q of each action), its target, the cloned behavior G, optimizers and swept settings."""

    critic: Network
    target: Network
    behavior: Network
    value_opt_state: Any
    behavior_opt_state: Any
    swept: dict[str, jax.Array]


def allowed(logits: jax.Array, threshold: float) -> jax.Array:
    """Whether G(b|s) > τ·max_c G(c|s), for each action; the likeliest always is."""
    ratio = jnp.exp(logits - logits.max(axis=-1, keepdims=True))
    return (ratio > threshold) | (ratio >= 1)


def constrained(q: jax.Array, logits: jax.Array, threshold: float) -> jax.Array:
    """Q of allowed actions, −∞ for the others."""
    return jnp.where(allowed(logits, threshold), q, -jnp.inf)


def arithmetic(config: BCQ, spec: Spec) -> dict[str, float]:
    """Stage → floating-point operations that one update needs."""
    critic = (spec.observation_size, *config.value_hidden, spec.head.num_outputs)
    behavior = (spec.observation_size, *config.generator_hidden, spec.head.num_outputs)
    update = trained(critic) + 2 * forward(critic) + trained(behavior) + forward(behavior)
    return {"joint": config.batch_size * update}


def make(config: BCQ, spec: Spec, num_steps: int) -> Algorithm:
    """Discrete BCQ for data of the given sizes."""
    value_optimizer, behavior_optimizer = optax.adam(config.value_lr), optax.adam(config.generator_rate)
    head = spec.head

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> DiscreteBCQState:
        critic_key, behavior_key = jax.random.split(key)
        critic = init_network(critic_key, (spec.observation_size, *config.value_hidden, head.num_outputs))
        behavior = init_network(behavior_key, (spec.observation_size, *config.generator_hidden, head.num_outputs))
        opt_states = value_optimizer.init(critic), behavior_optimizer.init(behavior)
        return DiscreteBCQState(critic, critic, behavior, *opt_states, swept)

    def update(
        state: DiscreteBCQState, memory: tuple[()], batch: Batch, key: jax.Array
    ) -> tuple[DiscreteBCQState, Metrics]:
        logits = apply_network(state.behavior, batch.next_observations)
        next_q = constrained(apply_network(state.critic, batch.next_observations), logits, config.threshold)
        next_v = double_q_target(next_q, apply_network(state.target, batch.next_observations))
        target_q = batch.rewards + config.discount * batch.continues * next_v

        def compute_value_loss(critic: Network) -> tuple[jax.Array, jax.Array]:
            q = jnp.sum(apply_network(critic, batch.observations) * head.encode(batch.actions), axis=-1)
            return optax.losses.huber_loss(q, target_q).mean(), q

        (critic_loss, q), grads = jax.value_and_grad(compute_value_loss, has_aux=True)(state.critic)
        critic, value_opt_state = descend(value_optimizer, grads, state.value_opt_state, state.critic)

        def compute_behavior_loss(behavior: Network) -> tuple[jax.Array, jax.Array]:
            outputs = apply_network(behavior, batch.observations)
            likelihood = head.log_likelihood(outputs, jnp.zeros(0), batch.actions).mean()
            return LOGIT_WEIGHT * jnp.mean(outputs**2) - likelihood, likelihood

        (behavior_loss, likelihood), grads = jax.value_and_grad(compute_behavior_loss, has_aux=True)(state.behavior)
        behavior, behavior_opt_state = descend(behavior_optimizer, grads, state.behavior_opt_state, state.behavior)
        metrics = {
            "critic_loss": critic_loss,
            "value_mean": q.mean(),
            "value_largest": jnp.abs(q).max(),
            "policy_loss": behavior_loss,
            "log_likelihood": likelihood,
            "allowed_share": allowed(logits, config.threshold).mean(),
        }
        state = state._replace(
            critic=critic,
            target=optax.incremental_update(critic, state.target, config.target_rate),
            behavior=behavior,
            value_opt_state=value_opt_state,
            behavior_opt_state=behavior_opt_state,
        )
        return state, metrics

    def export(state: DiscreteBCQState) -> dict[str, Any]:
        threshold = jnp.asarray(config.threshold)
        return {"choice_critic": state.critic, "behavior": state.behavior, "threshold": threshold}

    stage = Stage("joint", num_steps, None, config.batch_size, no_memory, no_refresh, update)
    return Algorithm("bcq", init, (stage,), export, "constrained-greedy")
