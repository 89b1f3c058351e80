"""Value-based Episodic Memory: expectile V-learning, planning along trajectories, weighted regression.

``config`` has every choice of the method, ``values`` learns values (paper, sections 3.1 and 3.2), ``policy`` gets a
policy from them (section 3.3). Each setting names a function; none is tested inside the loop.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from vem.algorithms.base import Algorithm, Batch, Metrics, Rows, Spec, Stage
from vem.algorithms.vem import guided, policy, values
from vem.algorithms.vem.config import VEM
from vem.algorithms.vem.values import ValueMemory, VEMState
from vem.core import advantages
from vem.core.arithmetic import trained
from vem.core.memory import rolling_rows
from vem.core.networks import apply_networks

__all__ = ["VEM", "VEMState", "make"]


def arithmetic(config: VEM, spec: Spec) -> dict[str, float]:
    """Stage → floating-point operations that one update needs."""
    value = config.num_critics * trained((spec.observation_size, *config.value_hidden, 1))
    regression = trained((spec.observation_size, *config.policy_hidden, spec.action_size))
    guide = trained((spec.observation_size, *config.guide_hidden, spec.observation_size))
    executor = trained((2 * spec.observation_size, *config.policy_hidden, spec.action_size))
    counts = {"value": value, "policy": regression, "joint": value + regression, "guide": guide, "executor": executor}
    return {stage: config.batch_size * count for stage, count in counts.items()}


def make(config: VEM, spec: Spec, num_steps: int) -> Algorithm:
    """VEM for data of the given sizes, ``num_steps`` steps in all."""
    config, _ = config.complete(spec)
    assert config.value_share is not None, "complete decides it"
    num_value = max(1, round(num_steps * config.value_share)) if config.schedule == "value-then-policy" else 0
    learn = guided.guided if config.policy == "guided" else policy.regression
    learner = learn(config, spec, max(1, num_steps - num_value))
    if config.schedule == "joint":
        stages = (joint_stage(config, spec, num_steps),)
    else:
        stages = (values.value_stage(config, spec, num_value), *learner.stages)

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> VEMState:
        critic_key, policy_key = jax.random.split(key)
        critics = values.init_critics(config, spec, critic_key)
        value_opt_state = values.value_optimizer(config).init(critics)
        return VEMState(critics, critics, value_opt_state, learner.init(policy_key), swept)

    return Algorithm("vem", init, stages, learner.export, learner.kind)


class JointMemory(NamedTuple):
    """The values' memory, and the scale of the advantages taken from it."""

    values: jax.Array
    returns: jax.Array
    scale: advantages.AdvantageScale


def joint_stage(config: VEM, spec: Spec, num_steps: int) -> Stage:
    """The stage that learns values and policy from the same batches (paper, algorithm 1)."""

    def refresh(
        state: VEMState, old: JointMemory, rows: Rows, index: jax.Array, key: jax.Array
    ) -> tuple[VEMState, JointMemory]:
        before = ValueMemory(old.values, old.returns)
        state, memory = values.refresh_memory(config, spec, state, before, rows, index, key)
        sample = policy.sample_rows(rows)
        v = apply_networks(state.critics, rows.observe(rows.observations[sample])).mean(0)
        scale = policy.fit_scale(config, memory.returns[:, sample].min(0), v, rows, state.swept)
        return state, JointMemory(*memory, scale)

    def update(state: VEMState, memory: JointMemory, batch: Batch, key: jax.Array) -> tuple[VEMState, Metrics]:
        returns = memory.returns[:, batch.rows]
        state, v, value_metrics = values.update_values(config, state, returns, batch)
        adv = policy.compute_advantages(config, returns.min(0), v, memory.scale)
        weight = policy.weigh(config, adv, memory.scale)
        state, policy_metrics = policy.update_policy(config, num_steps, state, weight, batch, key)
        return state, value_metrics | policy_metrics | {"temperature": memory.scale.temperature}

    return Stage(
        name="joint",
        num_steps=num_steps,
        steps_per_refresh=config.steps_per_refresh,
        batch_size=config.batch_size,
        empty=lambda: JointMemory(*values.empty_memory(config, spec), policy.empty_scale()),
        refresh=refresh,
        update=update,
        fresh_rows=rolling_rows(values.num_fresh(config)),
    )
