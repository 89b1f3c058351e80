"""Conservative Q-learning, CQL(H): soft actor-critic whose critics are pushed down on actions the data lacks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
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
from vem.networks import (
    Network,
    apply_network,
    apply_networks,
    descend,
    gradient_in_tiles,
    init_network,
    init_networks,
    one_hot,
    sample_tanh_gaussian,
    tanh_gaussian_log_likelihood,
)

LOG_STD_BOUNDS = (-20.0, 2.0)
WEIGHT = 5.0
"""Weight of the conservative term unless one is given."""
LARGEST_MULTIPLIER = 1e6
TILE_INPUTS = 480
"""State-action pairs valued together, at most about: 256 numbers each for some layers fit into a cache of 2 MB."""


@dataclass(frozen=True)
class CQL(Configuration):
    """The official settings for MuJoCo; the preset has those of the other task families.

        L_Q = E[(r + γ·min_i Q′_i(s′, a′) − Q_i(s, a))²] + w·E[log Σ_a exp Q_i(s, a) − Q_i(s, a)]
        J_π = E[min_i Q_i(s, π(s)) − α·log π]

    Paper: Kumar, Zhou, Tucker, Levine, Conservative Q-Learning for Offline Reinforcement Learning, NeurIPS 2020
    (https://arxiv.org/abs/2006.04779). Official program: https://github.com/aviralkumar2907/CQL.
    """

    conservative_weight: float | None = setting(
        None, "Weight of the conservative term; none: 5, for discrete actions 1", "not negative", sweep=True
    )
    lagrange_threshold: float | None = setting(
        None, "Value at which a multiplier holds the conservative term; none: no multiplier"
    )
    num_sampled_actions: int = setting(
        10, "Sampled actions of each kind: uniform, of the policy at s, of the policy at s′", "positive"
    )
    cloning_steps: int = setting(
        40_000, "First steps that clone the recorded actions; at most half of all steps", "not negative"
    )
    discount: float = setting(0.99, "Discount γ", "discount")
    target_rate: float = setting(
        0.005, "κ: share by which target networks move toward the trained ones", "positive share"
    )
    value_hidden: tuple[int, ...] = setting((256, 256, 256), "Hidden layers of a critic", "positive")
    policy_hidden: tuple[int, ...] = setting((256, 256, 256), "Hidden layers of the actor", "positive")
    value_lr: float = setting(3e-4, "Adam's learning rate for critics and multiplier", "positive")
    policy_lr: float = setting(1e-4, "Adam's learning rate for actor and entropy weight", "positive")
    batch_size: int = setting(256, "Rows in an update", "positive")
    normalize_observations: bool = setting(False, "Standardize observations; the policy does it too")
    reward_scale: float = setting(1.0, "Rewards become scale·r + shift", "positive")
    reward_shift: float = setting(0.0, "Added to each reward after scaling")


class CQLState(NamedTuple):
    """Networks, multipliers, their optimizers and the swept settings."""

    actor: Network
    critics: Network
    targets: Network
    log_entropy_weight: jax.Array
    log_multiplier: jax.Array
    policy_opt_state: Any
    value_opt_state: Any
    entropy_opt_state: Any
    multiplier_opt_state: Any
    swept: dict[str, jax.Array]


def conservative_gap(sampled: jax.Array, log_densities: jax.Array, recorded: jax.Array) -> jax.Array:
    """mean_s[log Σ_k exp(Q(s, a_k) − log p(a_k)) − Q(s, a)]: samples first, then rows; p is a_k's own proposal."""
    return jnp.mean(jax.nn.logsumexp(sampled - log_densities, axis=-2) - recorded, axis=-1)


def action_density(actor: Network, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and log σ of the policy before the tanh."""
    mean, log_std = jnp.split(apply_network(actor, observations), 2, axis=-1)
    return mean, jnp.clip(log_std, *LOG_STD_BOUNDS)


def q_values(critics: Network, observations: jax.Array, actions: jax.Array) -> jax.Array:
    """Q of each critic for actions (…, rows, size): shape (critics, …, rows)."""
    repeated = jnp.broadcast_to(observations, (*actions.shape[:-1], observations.shape[-1]))
    return apply_networks(critics, jnp.concatenate([repeated, actions], axis=-1))


def update_policy(
    config: CQL, state: CQLState, batch: Batch, key: jax.Array, is_cloning: bool
) -> tuple[CQLState, Metrics]:
    """One step of the actor and of the entropy's weight: toward high Q, or toward the recorded actions."""

    def compute_loss(actor: Network) -> tuple[jax.Array, jax.Array]:
        mean, log_std = action_density(actor, batch.observations)
        actions, log_density = jax.tree.map(lambda leaf: leaf[0], sample_tanh_gaussian(key, mean, log_std, 1))
        if is_cloning:
            free = jnp.arctanh(jnp.clip(batch.actions, -1 + 1e-6, 1 - 1e-6))
            gain = tanh_gaussian_log_likelihood(free, mean, log_std)
        else:
            gain = q_values(state.critics, batch.observations, actions).min(0)
        return jnp.mean(jnp.exp(state.log_entropy_weight) * log_density - gain), log_density.mean()

    optimizer = optax.adam(config.policy_lr)
    (loss, log_density), grads = jax.value_and_grad(compute_loss, has_aux=True)(state.actor)
    actor, policy_opt_state = descend(optimizer, grads, state.policy_opt_state, state.actor)
    # The gradient of −log α·(log π + H): the weight α grows while the entropy is below its target H.
    target_entropy = -float(batch.actions.shape[-1])
    log_weight, entropy_opt_state = descend(
        optimizer, -(log_density + target_entropy), state.entropy_opt_state, state.log_entropy_weight
    )
    state = state._replace(
        actor=actor,
        log_entropy_weight=log_weight,
        policy_opt_state=policy_opt_state,
        entropy_opt_state=entropy_opt_state,
    )
    return state, {"policy_loss": loss, "entropy": -log_density, "entropy_weight": jnp.exp(log_weight)}


def update_critics(
    config: CQL, state: CQLState, actor: Network, batch: Batch, key: jax.Array
) -> tuple[CQLState, Metrics]:
    """One step of the critics, of their targets and of the multiplier; ``actor`` proposes the actions."""
    uniform_key, here_key, next_key, target_key = jax.random.split(key, 4)
    next_density = action_density(actor, batch.next_observations)
    next_actions, _ = sample_tanh_gaussian(target_key, *next_density, 1)
    next_q = q_values(state.targets, batch.next_observations, next_actions)[:, 0].min(0)
    target_q = batch.rewards + config.discount * batch.continues * next_q

    num_samples, size = config.num_sampled_actions, batch.actions.shape[-1]
    uniform = jax.random.uniform(uniform_key, (num_samples, *batch.actions.shape), minval=-1.0, maxval=1.0)
    here, here_log = sample_tanh_gaussian(here_key, *action_density(actor, batch.observations), num_samples)
    ahead, ahead_log = sample_tanh_gaussian(next_key, *next_density, num_samples)
    actions = jnp.concatenate([uniform, here, ahead, batch.actions[None]])
    log_densities = jnp.concatenate([jnp.full_like(here_log, -size * jnp.log(2.0)), here_log, ahead_log])

    def compute_loss(parameters: tuple[Network, jax.Array], rows: Any) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        critics, log_multiplier = parameters
        observations, actions, log_densities, target_q = rows
        q = q_values(critics, observations, actions.swapaxes(0, 1))
        recorded = q[:, -1]
        gap = conservative_gap(q[:, :-1], log_densities.T, recorded)
        gap = state.swept.get("conservative_weight", WEIGHT) * gap
        if config.lagrange_threshold is not None:
            multiplier = jnp.clip(jnp.exp(log_multiplier), 0, LARGEST_MULTIPLIER)
            gap = multiplier * (gap - config.lagrange_threshold)
        errors = jnp.mean((target_q - recorded) ** 2, axis=1)
        return jnp.sum(errors + gap), (recorded, errors, gap)

    rows = (batch.observations, actions.swapaxes(0, 1), log_densities.T, target_q)
    (grads, multiplier_grad), (recorded, errors, gap) = gradient_in_tiles(
        compute_loss, (state.critics, state.log_multiplier), rows, TILE_INPUTS // actions.shape[0] + 1
    )
    optimizer = optax.adam(config.value_lr)
    critics, value_opt_state = descend(optimizer, grads, state.value_opt_state, state.critics)
    # The multiplier ascends: it grows while the mean gap of the two critics exceeds the threshold.
    log_multiplier, multiplier_opt_state = descend(
        optimizer, -0.5 * multiplier_grad, state.multiplier_opt_state, state.log_multiplier
    )
    metrics = {
        "critic_loss": errors.mean(),
        "conservative_loss": gap.mean(0).sum(),
        "multiplier": jnp.exp(log_multiplier),
        "value_mean": recorded.mean(),
        "value_largest": jnp.abs(recorded).max(),
    }
    state = state._replace(
        critics=critics,
        targets=optax.incremental_update(critics, state.targets, config.target_rate),
        log_multiplier=log_multiplier,
        value_opt_state=value_opt_state,
        multiplier_opt_state=multiplier_opt_state,
    )
    return state, metrics


def make(config: CQL, spec: Spec, num_steps: int) -> Algorithm:
    """CQL for data of the given sizes: a stage of cloning, if any, then soft actor-critic."""
    if spec.choices:
        return make_discrete(config, spec, num_steps)

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> CQLState:
        actor_key, critic_key = jax.random.split(key)
        observed, acted = spec.observation_size, spec.action_size
        actor = init_network(actor_key, (observed, *config.policy_hidden, 2 * acted))
        critics = init_networks(critic_key, (observed + acted, *config.value_hidden, 1), 2)
        zero = jnp.zeros(())
        policy_optimizer, value_optimizer = optax.adam(config.policy_lr), optax.adam(config.value_lr)
        return CQLState(
            actor=actor,
            critics=critics,
            targets=critics,
            log_entropy_weight=zero,
            log_multiplier=zero,
            policy_opt_state=policy_optimizer.init(actor),
            value_opt_state=value_optimizer.init(critics),
            entropy_opt_state=policy_optimizer.init(zero),
            multiplier_opt_state=value_optimizer.init(zero),
            swept=swept,
        )

    def update(
        state: CQLState, memory: tuple[()], batch: Batch, key: jax.Array, is_cloning: bool
    ) -> tuple[CQLState, Metrics]:
        policy_key, critic_key = jax.random.split(key)
        actor = state.actor
        state, policy_metrics = update_policy(config, state, batch, policy_key, is_cloning)
        state, critic_metrics = update_critics(config, state, actor, batch, critic_key)
        return state, policy_metrics | critic_metrics

    def stage(name: str, count: int, is_cloning: bool) -> Stage:
        step = partial(update, is_cloning=is_cloning)
        return Stage(name, count, None, config.batch_size, no_memory, no_refresh, step, only_first=is_cloning)

    num_cloning = min(config.cloning_steps, num_steps // 2)
    stages = (stage("policy", num_steps - num_cloning, False),)
    if num_cloning:
        stages = (stage("cloning", num_cloning, True), *stages)

    def export(state: CQLState) -> dict[str, Any]:
        bounds = jnp.asarray(LOG_STD_BOUNDS)
        return {"actor": state.actor, "log_std_bounds": bounds, "action_critics": state.critics}

    return Algorithm("cql", init, stages, export, "tanh-gaussian")


# ---- Discrete actions: deep Q-learning whose values are pushed down where the data lacks the action ----


DISCRETE_WEIGHT = 1.0
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


def choice_gap(q: jax.Array, recorded: jax.Array) -> jax.Array:
    """The term log Σ_b exp Q(s, b) − Q(s, a) of each row."""
    return jax.nn.logsumexp(q, axis=-1) - recorded


def make_discrete(config: CQL, spec: Spec, num_steps: int) -> Algorithm:
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
            gap = state.swept.get("conservative_weight", DISCRETE_WEIGHT) * choice_gap(q, recorded).mean()
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


LAGRANGE = {"conservative_weight": 5.0, "lagrange_threshold": 5.0}
OFFICIAL = Preset(
    settings={},
    rules={},
    source="the official program's settings for MuJoCo and AntMaze; for Adroit, which has none, the Lagrange ones",
    families={
        "mujoco": {"conservative_weight": 5.0},
        "antmaze": {**LAGRANGE, "reward_scale": 4.0, "reward_shift": -2.0},
        "adroit": LAGRANGE,
    },
    steps=3_000_000,  # 3,000 epochs of 1,000 steps
)
METHOD = Method(CQL, make, "conservative Q-learning", {"default": OFFICIAL}, ("box", "discrete"))
