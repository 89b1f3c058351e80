"""CQL(H) for discrete actions: deep Q-learning whose values are pushed down where the data lacks the action.

    L = mean(½·(r + γ·Q′(s′, a*) − Q(s, a))² + w·(log Σ_b exp Q(s, b) − Q(s, a))),   a* = argmax_b Q(s′, b)

The sum over actions needs no samples and the policy is the argmax, so there is no actor (Kumar et al. 2020, eq. 4).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import Algorithm, Batch, Metrics, Spec, Stage, no_memory, no_refresh
from vem.algorithms.cql import CQL
from vem.core.arithmetic import forward, trained
from vem.core.heads import one_hot
from vem.core.networks import Network, apply_network, descend, init_network

WEIGHT = 1.0
"""Weight of the conservative term unless one is given: the paper's for Atari."""


class DiscreteCQLState(NamedTuple):
    """The Q network (s → Q of each action), its target, its optimizer and the swept settings."""

    critic: Network
    target: Network
    opt_state: Any
    swept: dict[str, jax.Array]


def double_q_target(next_q: jax.Array, next_target_q: jax.Array) -> jax.Array:
    """Q′(s′, argmax_b Q(s′, b)): one network chooses the action and the other values it."""
    return jnp.sum(next_target_q * one_hot(next_q.argmax(axis=-1), next_q.shape[-1]), axis=-1)


def conservative_gap(q: jax.Array, recorded: jax.Array) -> jax.Array:
    """The term log Σ_b exp Q(s, b) − Q(s, a) of each row."""
    return jax.nn.logsumexp(q, axis=-1) - recorded


def arithmetic(config: CQL, spec: Spec) -> dict[str, float]:
    """Stage → floating-point operations that one update needs."""
    critic = (spec.observation_size, *config.value_hidden, spec.head.num_outputs)
    return {"joint": config.batch_size * (trained(critic) + 2 * forward(critic))}


def make(config: CQL, spec: Spec, num_steps: int) -> Algorithm:
    """Discrete CQL for data of the given sizes."""
    optimizer = optax.adam(config.value_lr)
    head = spec.head

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> DiscreteCQLState:
        critic = init_network(key, (spec.observation_size, *config.value_hidden, head.num_outputs))
        return DiscreteCQLState(critic, critic, optimizer.init(critic), swept)

    def update(
        state: DiscreteCQLState, memory: tuple[()], batch: Batch, key: jax.Array
    ) -> tuple[DiscreteCQLState, Metrics]:
        next_q = apply_network(state.critic, batch.next_observations)
        next_v = double_q_target(next_q, apply_network(state.target, batch.next_observations))
        target_q = batch.rewards + config.discount * batch.continues * next_v

        def compute_loss(critic: Network) -> tuple[jax.Array, tuple[jax.Array, ...]]:
            q = apply_network(critic, batch.observations)
            recorded = jnp.sum(q * head.encode(batch.actions), axis=-1)
            error = 0.5 * jnp.mean((target_q - recorded) ** 2)
            gap = state.swept.get("conservative_weight", WEIGHT) * jnp.mean(conservative_gap(q, recorded))
            return error + gap, (error, gap, recorded)

        (_, (error, gap, recorded)), grads = jax.value_and_grad(compute_loss, has_aux=True)(state.critic)
        critic, opt_state = descend(optimizer, grads, state.opt_state, state.critic)
        metrics = {
            "critic_loss": error,
            "conservative_loss": gap,
            "value_mean": recorded.mean(),
            "value_largest": jnp.abs(recorded).max(),
        }
        target = optax.incremental_update(critic, state.target, config.target_rate)
        return state._replace(critic=critic, target=target, opt_state=opt_state), metrics

    def export(state: DiscreteCQLState) -> dict[str, Any]:
        return {"choice_critic": state.critic}

    stage = Stage("joint", num_steps, None, config.batch_size, no_memory, no_refresh, update)
    return Algorithm("cql", init, (stage,), export, "greedy")
