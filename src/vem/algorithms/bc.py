"""Behavior cloning: the likelihood of the recorded actions, all rows alike."""

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
from vem.networks import Network, apply_network, descend, init_network, log_deviation, scheduled_lr


@dataclass(frozen=True)
class BC(Configuration):
    """Cloning with the policy of VEM: J_π = E[log π(a|s)]."""

    policy_hidden: tuple[int, ...] = setting((256, 256), "Hidden layers of the actor", "positive")
    log_std_low: float = setting(-3.0, "Smallest log σ of the policy")
    log_std_high: float = setting(1.0, "Largest log σ of the policy")
    policy_lr: float = setting(1e-3, "Adam's learning rate for the actor", "positive")
    policy_lr_schedule: Literal["cosine", "none"] = setting(
        "cosine", "cosine: the actor's learning rate falls to 0 at the end; none: it stays"
    )
    policy_weight_decay: float = setting(0.0, "Decoupled weight decay of the actor", "not negative")
    batch_size: int = setting(256, "Rows in an update", "positive")
    normalize_observations: bool = setting(True, "Standardize observations; the policy does it too")


class BCState(NamedTuple):
    """The policy and its optimizer."""

    actor: Network
    free_log_std: jax.Array
    opt_state: Any
    swept: dict[str, jax.Array]


def make(config: BC, spec: Spec, num_steps: int) -> Algorithm:
    """Behavior cloning for data of the given sizes."""
    head = spec.head
    optimizer = optax.adamw(
        scheduled_lr(config.policy_lr, config.policy_lr_schedule, num_steps),
        weight_decay=config.policy_weight_decay,
    )

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> BCState:
        actor = init_network(key, (spec.observation_size, *config.policy_hidden, head.num_outputs))
        free_log_std = jnp.zeros(head.num_boxes)
        return BCState(actor, free_log_std, optimizer.init((actor, free_log_std)), swept)

    def update(state: BCState, memory: tuple[()], batch: Batch, key: jax.Array) -> tuple[BCState, Metrics]:
        def compute_loss(parameters: tuple[Network, jax.Array]) -> jax.Array:
            actor, free = parameters
            outputs = apply_network(actor, batch.observations)
            log_std = log_deviation(free, config.log_std_low, config.log_std_high)
            return -head.log_likelihood(outputs, log_std, batch.actions).mean()

        parameters = (state.actor, state.free_log_std)
        loss, grads = jax.value_and_grad(compute_loss)(parameters)
        (actor, free), opt_state = descend(optimizer, grads, state.opt_state, parameters)
        return BCState(actor, free, opt_state, state.swept), {"policy_loss": loss, "log_likelihood": -loss}

    def export(state: BCState) -> dict[str, Any]:
        log_std = log_deviation(state.free_log_std, config.log_std_low, config.log_std_high)
        return {"actor": state.actor, "log_std": log_std}

    stage = Stage("policy", num_steps, None, config.batch_size, no_memory, no_refresh, update)
    return Algorithm("bc", init, (stage,), export, "gaussian")


OURS = Preset(
    settings={},
    rules={},
    source="the settings' own defaults, chosen by hand in short trials (docs/choices.md)",
    steps=1_000_000,  # no program of its own: as the others
)
METHOD = Method(BC, make, "behavior cloning", {"default": OURS}, ACTION_KINDS)
