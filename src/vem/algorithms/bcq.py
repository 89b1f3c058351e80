"""Batch-constrained Q-learning, and BCQ-EM: the same with the episodic plan of VEM in place of its target.

Actions come from a conditional variational auto-encoder of the recorded ones, moved by at most Φ by a perturbation
network. A state's value is the best of several such actions under λ·min + (1−λ)·max of two Q networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import (
    Algorithm,
    Batch,
    Configuration,
    Memory,
    Method,
    Metrics,
    Preset,
    Rows,
    Spec,
    Stage,
    no_memory,
    no_refresh,
    setting,
)
from vem.algorithms.cql import double_q_target
from vem.networks import Network, apply_network, apply_networks, descend, init_network, init_networks
from vem.plan import Steps, episodic_maximum, refresh_values, rolling_rows

SLICE_ROWS = 1024
"""Rows valued at a time, each with all its generated actions."""
LARGEST_LATENT = 0.5
"""Latents are clipped here when actions are generated: close to the center the decoder was trained most."""
LOG_STD_BOUNDS = (-4.0, 15.0)
KL_WEIGHT = 0.5


@dataclass(frozen=True)
class BCQ(Configuration):
    """The official settings.

        L_Q = E[(r + γ·max_k [λ·min_i + (1−λ)·max_i] Q′_i(s′, â_k) − Q_i(s, a))²]
        â_k = a_k + Φ·tanh ξ(s, a_k),  a_k drawn from an auto-encoder of the recorded actions

    Papers: Fujimoto, Meger, Precup, Off-Policy Deep Reinforcement Learning without Exploration, ICML 2019
    (https://arxiv.org/abs/1812.02900); for discrete actions https://arxiv.org/abs/1910.01708.
    Official programs: https://github.com/sfujim/BCQ.
    """

    perturbation: float = setting(
        0.05, "Φ: largest change of a generated action; the bounds are ±1", "share", sweep=True
    )
    minimum_weight: float = setting(0.75, "λ in λ·min + (1−λ)·max of the two critics", "share", sweep=True)
    num_target_actions: int = setting(
        10, "Generated actions for each state; the best of them is the state's value", "positive"
    )
    num_acting_actions: int = setting(100, "Generated actions that the policy chooses from", "positive")
    threshold: float = setting(
        0.3, "τ: with discrete actions, the least share of the likeliest action's probability that is allowed", "share"
    )
    discount: float = setting(0.99, "Discount γ", "discount")
    target_rate: float = setting(
        0.005, "κ: share by which target networks move toward the trained ones", "positive share"
    )
    latent_scale: int = setting(2, "Latent dimensions for each action dimension", "positive")
    generator_hidden: tuple[int, ...] = setting((750, 750), "Hidden layers of encoder and decoder", "positive")
    value_hidden: tuple[int, ...] = setting((400, 300), "Hidden layers of a critic", "positive")
    policy_hidden: tuple[int, ...] = setting((400, 300), "Hidden layers of the perturbation", "positive")
    value_lr: float = setting(1e-3, "Adam's learning rate for the critics", "positive")
    policy_lr: float = setting(1e-3, "Adam's learning rate for the perturbation", "positive")
    generator_rate: float = setting(1e-3, "Adam's learning rate for the auto-encoder", "positive")
    batch_size: int = setting(100, "Rows in an update", "positive")
    normalize_observations: bool = setting(False, "Standardize observations; the policy does it too")
    reward_scale: float = setting(1.0, "Rewards become scale·r + shift", "positive")
    reward_shift: float = setting(0.0, "Added to each reward after scaling")


@dataclass(frozen=True)
class BCQEM(BCQ):
    """BCQ's settings and those of the memory."""

    num_plan_steps: int | None = setting(
        None, "Longest rollout n of the plan; none: to the end of the episode", "positive"
    )
    steps_per_refresh: int = setting(200, "Steps between two refreshes of the memory", "positive")
    refresh: Literal["rolling", "full"] = setting(
        "rolling", "Rows valued at a refresh; rolling: as many as BCQ values in the steps between two; full: all"
    )


class BCQState(NamedTuple):
    """Networks, their optimizers and the swept settings."""

    encoder: Network
    decoder: Network
    perturbation: Network
    critics: Network
    target_perturbation: Network
    target_critics: Network
    generator_opt_state: Any
    policy_opt_state: Any
    value_opt_state: Any
    swept: dict[str, jax.Array]


class EpisodicMemory(NamedTuple):
    """Generated-action values of every row, and the plan over them."""

    values: jax.Array
    returns: jax.Array


def soft_minimum(values: jax.Array, minimum_weight: jax.Array) -> jax.Array:
    """λ·min_i Q_i + (1−λ)·max_i Q_i over the first axis."""
    return minimum_weight * values.min(0) + (1 - minimum_weight) * values.max(0)


def divergence(mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """KL(N(μ, σ²) ‖ N(0, 1)) = −½·mean(1 + log σ² − μ² − σ²)."""
    return -0.5 * jnp.mean(1 + 2 * log_std - mean**2 - jnp.exp(2 * log_std))


def join(*parts: jax.Array) -> jax.Array:
    """The inputs side by side."""
    return jnp.concatenate(parts, axis=-1)


def perturb(network: Network, observations: jax.Array, actions: jax.Array, limit: jax.Array) -> jax.Array:
    """Actions moved to a + Φ·tanh(ξ(s, a)), within ±1."""
    return jnp.clip(actions + limit * jnp.tanh(apply_network(network, join(observations, actions))), -1, 1)


def generate(decoder: Network, observations: jax.Array, latents: jax.Array) -> jax.Array:
    """The decoder's actions for given latents, tanh-bounded."""
    return jnp.tanh(apply_network(decoder, join(observations, latents)))


def state_values(state: BCQState, observations: jax.Array, latents: jax.Array) -> jax.Array:
    """max_k λ·min_i Q′_i(s, â_k) + (1−λ)·max_i Q′_i(s, â_k), one â_k for each latent: (rows, k, size) → (rows,)."""
    repeated = jnp.broadcast_to(observations[:, None], (*latents.shape[:2], observations.shape[-1]))
    actions = generate(state.decoder, repeated, latents)
    actions = perturb(state.target_perturbation, repeated, actions, state.swept["perturbation"])
    q = apply_networks(state.target_critics, join(repeated, actions))
    return soft_minimum(q, state.swept["minimum_weight"]).max(axis=1)


def _make(config: BCQ, spec: Spec) -> tuple[Any, Any, Any, Any]:
    """The parts that BCQ and BCQ-EM share: init, draw_latents, update towards given targets, export."""
    generator_optimizer = optax.adam(config.generator_rate)
    policy_optimizer = optax.adam(config.policy_lr)
    value_optimizer = optax.adam(config.value_lr)
    observed, acted = spec.observation_size, spec.action_size
    latent_size = config.latent_scale * acted

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> BCQState:
        encoder_key, decoder_key, policy_key, critic_key = jax.random.split(key, 4)
        encoder = init_network(encoder_key, (observed + acted, *config.generator_hidden, 2 * latent_size))
        decoder = init_network(decoder_key, (observed + latent_size, *config.generator_hidden, acted))
        perturbation = init_network(policy_key, (observed + acted, *config.policy_hidden, acted))
        critics = init_networks(critic_key, (observed + acted, *config.value_hidden, 1), 2)
        return BCQState(
            encoder=encoder,
            decoder=decoder,
            perturbation=perturbation,
            critics=critics,
            target_perturbation=perturbation,
            target_critics=critics,
            generator_opt_state=generator_optimizer.init((encoder, decoder)),
            policy_opt_state=policy_optimizer.init(perturbation),
            value_opt_state=value_optimizer.init(critics),
            swept=swept,
        )

    def draw_latents(key: jax.Array, *shape: int) -> jax.Array:
        return jnp.clip(jax.random.normal(key, (*shape, latent_size)), -LARGEST_LATENT, LARGEST_LATENT)

    def update_generator(state: BCQState, batch: Batch, key: jax.Array) -> tuple[BCQState, Metrics]:
        def compute_loss(networks: tuple[Network, Network]) -> tuple[jax.Array, Metrics]:
            encoder, decoder = networks
            mean, log_std = jnp.split(apply_network(encoder, join(batch.observations, batch.actions)), 2, axis=-1)
            log_std = jnp.clip(log_std, *LOG_STD_BOUNDS)
            latents = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
            error = jnp.mean((generate(decoder, batch.observations, latents) - batch.actions) ** 2)
            kl = divergence(mean, log_std)
            return error + KL_WEIGHT * kl, {"generator_error": error, "generator_divergence": kl}

        networks = (state.encoder, state.decoder)
        (_, metrics), grads = jax.value_and_grad(compute_loss, has_aux=True)(networks)
        (encoder, decoder), opt_state = descend(generator_optimizer, grads, state.generator_opt_state, networks)
        return state._replace(encoder=encoder, decoder=decoder, generator_opt_state=opt_state), metrics

    def update_critics(state: BCQState, target_q: jax.Array, batch: Batch) -> tuple[BCQState, Metrics]:
        def compute_loss(critics: Network) -> tuple[jax.Array, jax.Array]:
            q = apply_networks(critics, join(batch.observations, batch.actions))
            return jnp.sum(jnp.mean((target_q - q) ** 2, axis=1)), q

        (loss, q), grads = jax.value_and_grad(compute_loss, has_aux=True)(state.critics)
        critics, opt_state = descend(value_optimizer, grads, state.value_opt_state, state.critics)
        metrics = {"critic_loss": loss, "value_mean": q.mean(), "value_largest": jnp.abs(q).max()}
        return state._replace(critics=critics, value_opt_state=opt_state), metrics

    def update_perturbation(state: BCQState, batch: Batch, key: jax.Array) -> tuple[BCQState, Metrics]:
        sampled = generate(state.decoder, batch.observations, draw_latents(key, batch.rewards.size))
        first = jax.tree.map(lambda leaf: leaf[0], state.critics)

        def compute_loss(network: Network) -> jax.Array:
            actions = perturb(network, batch.observations, sampled, state.swept["perturbation"])
            return -jnp.mean(apply_network(first, join(batch.observations, actions)))

        loss, grads = jax.value_and_grad(compute_loss)(state.perturbation)
        network, opt_state = descend(policy_optimizer, grads, state.policy_opt_state, state.perturbation)
        return state._replace(perturbation=network, policy_opt_state=opt_state), {"policy_loss": loss}

    def update_towards(find_targets: Any, state: BCQState, batch: Batch, key: jax.Array) -> tuple[BCQState, Metrics]:
        generator_key, target_key, policy_key = jax.random.split(key, 3)
        state, generator_metrics = update_generator(state, batch, generator_key)
        state, critic_metrics = update_critics(state, find_targets(state, target_key), batch)
        state, policy_metrics = update_perturbation(state, batch, policy_key)
        state = state._replace(
            target_critics=optax.incremental_update(state.critics, state.target_critics, config.target_rate),
            target_perturbation=optax.incremental_update(
                state.perturbation, state.target_perturbation, config.target_rate
            ),
        )
        return state, generator_metrics | critic_metrics | policy_metrics

    def export(state: BCQState) -> dict[str, Any]:
        return {
            "decoder": state.decoder,
            "perturbation": state.perturbation,
            "chooser": jax.tree.map(lambda leaf: leaf[0], state.critics),
            "limit": state.swept["perturbation"],
            "num_actions": jnp.asarray(config.num_acting_actions, jnp.int32),
        }

    return init, draw_latents, update_towards, export


def make(config: BCQ, spec: Spec, num_steps: int) -> Algorithm:
    """BCQ for data of the given sizes."""
    if spec.choices:
        return make_discrete(config, spec, num_steps)
    init, draw_latents, update_towards, export = _make(config, spec)

    def update(state: BCQState, memory: Memory, batch: Batch, key: jax.Array) -> tuple[BCQState, Metrics]:
        def find_targets(state: BCQState, key: jax.Array) -> jax.Array:
            latents = draw_latents(key, config.batch_size, config.num_target_actions)
            next_v = state_values(state, batch.next_observations, latents)
            return batch.rewards + config.discount * batch.continues * next_v

        return update_towards(find_targets, state, batch, key)

    stage = Stage("joint", num_steps, None, config.batch_size, no_memory, no_refresh, update)
    return Algorithm("bcq", init, (stage,), export, "bcq")


def make_episodic(config: BCQEM, spec: Spec, num_steps: int) -> Algorithm:
    """BCQ-EM for data of the given sizes: critics regress on R_t = max_n Q_{t,n} (paper, eq. of appendix BCQ-EM)."""
    init, draw_latents, update_towards, export = _make(config, spec)
    num_fresh = None if config.refresh == "full" else config.batch_size * config.steps_per_refresh
    latent_rows = min(SLICE_ROWS, spec.num_rows)

    def refresh(
        state: BCQState, old: EpisodicMemory, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[BCQState, EpisodicMemory]:
        latents = draw_latents(key, latent_rows, config.num_target_actions)
        value = lambda observations: state_values(state, rows.observe(observations), latents)[None]
        values = refresh_values(value, rows.observations, old.values, index, num_fresh, SLICE_ROWS)
        steps = Steps(rows.rewards, config.discount * rows.continues, rows.valid)
        return state, EpisodicMemory(values, episodic_maximum(values, steps, config.num_plan_steps))

    def update(state: BCQState, memory: EpisodicMemory, batch: Batch, key: jax.Array) -> tuple[BCQState, Metrics]:
        return update_towards(lambda state, key: memory.returns[0, batch.rows], state, batch, key)

    def empty() -> EpisodicMemory:
        return EpisodicMemory(jnp.zeros((1, spec.num_rows)), jnp.zeros((1, spec.num_rows)))

    fresh = rolling_rows(num_fresh, SLICE_ROWS)
    stage = Stage(
        "joint", num_steps, config.steps_per_refresh, config.batch_size, empty, refresh, update, fresh_rows=fresh
    )
    return Algorithm("bcq-em", init, (stage,), export, "bcq")


# ---- Discrete actions: double deep Q-learning over the actions that a cloned behavior finds likely ----


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


def make_discrete(config: BCQ, spec: Spec, num_steps: int) -> Algorithm:
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


OFFICIAL = Preset(
    settings={}, rules={}, source="the official program's settings, the same for every task", steps=1_000_000
)
METHOD = Method(BCQ, make, "batch-constrained Q-learning", {"default": OFFICIAL}, ("box", "discrete"))
EPISODIC = Preset(
    settings={},
    rules={},
    source="BCQ's official settings with the memory of the paper's appendix, which gives no numbers",
    steps=1_000_000,  # the paper gives none: as BCQ
)
EPISODIC_METHOD = Method(BCQEM, make_episodic, "BCQ with VEM's episodic plan", {"default": EPISODIC})
