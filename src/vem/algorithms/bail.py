"""Best-action imitation learning: an upper envelope of the returns, then cloning of the rows that come close to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import Algorithm, Batch, Configuration, Method, Metrics, Preset, Rows, Spec, Stage, setting
from vem.data.actions import ACTION_KINDS
from vem.networks import Network, apply_network, apply_networks, descend, init_network, init_networks
from vem.plan import Steps, monte_carlo, value_rows

LEAST_VALUE = 0.01
"""Values below this share of the largest return count as that share when returns are divided by them."""


@dataclass(frozen=True)
class BAIL(Configuration):
    """The official settings.

        L_V = E[(V − G)²·(1 where V ≥ G, else K)],  G the discounted return
        L_π = E[(π(s) − a)²] over the rows whose G/V is among the highest quarter

    Paper: Chen, Zhou, Wang, Wang, Wu, Ross, BAIL: Best-Action Imitation Learning for Batch Deep Reinforcement
    Learning, NeurIPS 2020 (https://arxiv.org/abs/1910.12179). Official program: https://github.com/lanyavik/BAIL.
    """

    kept: float = setting(0.25, "Share of the rows that is cloned: those closest to the envelope", "positive share")
    below_weight: float = setting(
        1000.0, "Weight of the envelope's error where the envelope lies below a return", "positive"
    )
    envelope_share: float = setting(0.3, "Share of the steps that train the envelope", "level")
    discount: float = setting(0.99, "Discount γ", "discount")
    value_hidden: tuple[int, ...] = setting((128, 128), "Hidden layers of the envelope", "positive")
    policy_hidden: tuple[int, ...] = setting((400, 300), "Hidden layers of the actor", "positive")
    value_lr: float = setting(3e-3, "Adam's learning rate for the envelope", "positive")
    value_weight_decay: float = setting(2e-2, "Weight decay of the envelope, added to its gradient", "not negative")
    policy_lr: float = setting(1e-3, "Adam's learning rate for the actor", "positive")
    batch_size: int = setting(256, "Selected rows in an update", "positive")
    normalize_observations: bool = setting(False, "Standardize observations; the policy does it too")
    reward_scale: float = setting(1.0, "Rewards become scale·r + shift", "positive")
    reward_shift: float = setting(0.0, "Added to each reward after scaling")


class BAILState(NamedTuple):
    """The envelope (leading axis 1), the actor and their optimizers."""

    envelope: Network
    actor: Network
    value_opt_state: Any
    policy_opt_state: Any
    swept: dict[str, jax.Array]


def envelope_loss(difference: jax.Array, below_weight: float) -> jax.Array:
    """(V−G)² where V ≥ G, else K·(G−V)², for ``difference`` = G − V and K = ``below_weight``."""
    return jnp.where(difference > 0, below_weight, 1.0) * difference**2


def closeness(returns: jax.Array, values: jax.Array) -> jax.Array:
    """G/V, continued below small V by the margin: 1 + (G − V)/max(V, b), b a hundredth of the largest |G|.

    The ratio alone would rank rows backwards where V is negative.
    """
    least = LEAST_VALUE * jnp.maximum(jnp.abs(returns).max(), 1e-8)
    return 1 + (returns - values) / jnp.maximum(values, least)


def select(scores: jax.Array, rows: Rows, kept: float) -> jax.Array:
    """For each row whether it is among the best ``kept`` share of the drawable rows.

    Rows level with the last of them are all kept or all left out, whichever comes nearer to the share: with sparse
    rewards most rows have G = 0, and keeping those would be cloning everything.
    """
    drawn = scores[rows.drawable]
    border = jnp.quantile(drawn, 1 - kept)
    with_ties, without = jnp.mean(drawn >= border), jnp.mean(drawn > border)
    is_tied = (without > 0) & (kept - without < with_ties - kept)
    return jnp.where(is_tied, scores > border, scores >= border)


def make(config: BAIL, spec: Spec, num_steps: int) -> Algorithm:
    """BAIL for data of the given sizes."""
    value_optimizer = optax.chain(optax.add_decayed_weights(config.value_weight_decay), optax.adam(config.value_lr))
    policy_optimizer = optax.adam(config.policy_lr)
    head = spec.head

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> BAILState:
        envelope_key, actor_key = jax.random.split(key)
        envelope = init_networks(envelope_key, (spec.observation_size, *config.value_hidden, 1), 1)
        actor = init_network(actor_key, (spec.observation_size, *config.policy_hidden, head.num_outputs))
        return BAILState(envelope, actor, value_optimizer.init(envelope), policy_optimizer.init(actor), swept)

    def recorded_returns(rows: Rows) -> jax.Array:
        steps = Steps(rows.rewards, config.discount * rows.continues, rows.valid)
        return monte_carlo(jnp.zeros((1, spec.num_rows)), steps)[0]

    def refresh_returns(
        state: BAILState, old: jax.Array, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[BAILState, jax.Array]:
        return state, recorded_returns(rows)

    def refresh_selection(
        state: BAILState, old: jax.Array, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[BAILState, jax.Array]:
        value = lambda observations: apply_networks(state.envelope, rows.observe(observations))
        values = value_rows(value, rows.observations, 1)[0]
        return state, select(closeness(recorded_returns(rows), values), rows, config.kept)

    def update_envelope(
        state: BAILState, returns: jax.Array, batch: Batch, key: jax.Array
    ) -> tuple[BAILState, Metrics]:
        def compute_loss(envelope: Network) -> tuple[jax.Array, jax.Array]:
            v = apply_networks(envelope, batch.observations)[0]
            return envelope_loss(returns[batch.rows] - v, config.below_weight).mean(), v

        (loss, v), grads = jax.value_and_grad(compute_loss, has_aux=True)(state.envelope)
        envelope, opt_state = descend(value_optimizer, grads, state.value_opt_state, state.envelope)
        metrics = {
            "value_loss": loss,
            "value_mean": v.mean(),
            "value_largest": jnp.abs(v).max(),
            "below_share": jnp.mean(v < returns[batch.rows]),
        }
        return state._replace(envelope=envelope, value_opt_state=opt_state), metrics

    def update_actor(state: BAILState, selected: jax.Array, batch: Batch, key: jax.Array) -> tuple[BAILState, Metrics]:
        # More rows are drawn than needed, so that about batch_size of them are selected; only those are computed.
        chosen = jnp.argsort(~selected[batch.rows])[: config.batch_size]
        weight = selected[batch.rows][chosen].astype(jnp.float32)
        observations, actions = batch.observations[chosen], batch.actions[chosen]

        def compute_loss(actor: Network) -> jax.Array:
            errors = head.error(apply_network(actor, observations), actions)
            return jnp.sum(weight * errors) / jnp.maximum(weight.sum(), 1)

        loss, grads = jax.value_and_grad(compute_loss)(state.actor)
        actor, opt_state = descend(policy_optimizer, grads, state.policy_opt_state, state.actor)
        return state._replace(actor=actor, policy_opt_state=opt_state), {"policy_loss": loss, "used": weight.sum()}

    num_envelope = max(1, round(num_steps * config.envelope_share))
    num_drawn = -int(-config.batch_size // config.kept)
    stages = (
        Stage(
            "envelope",
            num_envelope,
            None,
            config.batch_size,
            lambda: jnp.zeros(spec.num_rows),
            refresh_returns,
            update_envelope,
            trains_policy=False,
        ),
        Stage(
            "clone",
            max(1, num_steps - num_envelope),
            None,
            num_drawn,
            lambda: jnp.zeros(spec.num_rows, bool),
            refresh_selection,
            update_actor,
        ),
    )

    def export(state: BAILState) -> dict[str, Any]:
        return {"actor": state.actor, "critics": state.envelope}

    return Algorithm("bail", init, stages, export, "deterministic")


OFFICIAL = Preset(
    settings={},
    rules={},
    source="the official program's settings, the same for every task",
    steps=286_000,  # 200,000 steps of cloning, and the share of the envelope before them
)
METHOD = Method(BAIL, make, "best-action imitation learning", {"default": OFFICIAL}, ACTION_KINDS)
