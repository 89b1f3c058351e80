"""From the state of a run to the policies of its members, in memory and as files."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from vem.data.action_columns import choices_of
from vem.errors import RunError
from vem.policy import Policy, make_policy
from vem.policy_kinds import find_problem
from vem.runs.records import package_versions
from vem.runs.support import measure_support
from vem.runs.warnings import find_warnings

if TYPE_CHECKING:
    from vem.runs.run import Run


def make_policies(run: Run, state: Any) -> list[Policy]:
    """The policies in a state of training, in the members' order."""
    exported = jax.device_get(jax.vmap(run.algorithm.export)(state))
    units = run.pool.units if run.pool is not None else run.rows
    normalizer = (np.asarray(units.observation_mean), np.asarray(units.observation_deviation))
    config, info = run.config, run.dataset.info
    bounds = (np.asarray(info.action_low), np.asarray(info.action_high))
    kind, policies = run.algorithm.policy_kind, []
    for index, member in enumerate(config.members):
        facts = {
            "algorithm": config.algorithm,
            "preset": config.preset,
            "settings": {**config.settings, **member.swept},
            "seed": member.seed,
            "member": member.name,
            "steps": config.steps,
            "dataset": info.name,
            "data_sha256": run.files.facts.sha256,
            "environment": info.environment,
            "action_columns": [dataclasses.asdict(column) for column in info.action_columns],
            "packages": package_versions(),
            **({"hold_out": config.hold_out} if config.hold_out else {}),
        }
        parameters = jax.tree.map(lambda leaf, index=index: leaf[index], exported)
        parameters["value_unit"] = np.asarray(units.value_unit, np.float32)
        if choices := choices_of(info.action_columns):
            parameters["action_choices"] = np.asarray(choices, np.int32)
        policies.append(make_policy(kind, parameters, bounds, normalizer, facts, info.encoder))
    return policies


def write_policies(run: Run, state: Any) -> None:
    """Write the policies with their support data, and before them what speaks against them.

    RunError, and no file, if one of them could not be read again: the run has not ended then.
    """
    policies, support = make_policies(run, state), measure_support(run.training_data)
    if support is not None:
        policies = [policy.with_support(support) for policy in policies]
    for policy, path in zip(policies, run.policy_paths, strict=True):
        if problem := find_problem(policy.kind, policy.tensors):
            raise RunError(
                f"the policy of {path.stem} cannot act: {problem}; training saw numbers too large or too small, so "
                "bring observations, actions and rewards to the size of 1 and train again"
            )
    run.files.write_warnings(find_warnings(run.training_data, policies, run.files.metrics().records, support))
    for policy, path in zip(policies, run.policy_paths, strict=True):
        policy.save(path)
