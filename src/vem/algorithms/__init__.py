"""The methods, by name. Each is one file: a configuration and ``make(config, spec, num_steps)``."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from vem.algorithms import awr, bail, bc, bcq, cql, iql, td3bc, vem
from vem.algorithms import bcq as discrete_bcq
from vem.algorithms import cql as discrete_cql
from vem.algorithms.base import METHODS, PRESETS, Method, Preset, check_actions, find_method, method_of, register
from vem.data.actions import ACTION_KINDS

__all__ = ["METHODS", "Method", "Preset", "check_actions", "find_method", "method_of", "register"]


def _add(
    name: str, module: Any, config: type, summary: str, make: Any = None, actions: tuple[str, ...] = ACTION_KINDS
) -> None:
    make, count = make or module.make, module.arithmetic
    register(name, config, make, summary, PRESETS[name], arithmetic=count, actions=actions)


def _add_both(name: str, box: Any, discrete: Any, config: type, summary: str) -> None:
    """A method whose discrete version is another program, with the same configuration."""
    make = lambda config, spec, num_steps: (discrete if spec.choices else box).make(config, spec, num_steps)
    count = lambda config, spec: (discrete if spec.choices else box).arithmetic(config, spec)
    register(name, config, make, summary, PRESETS[name], arithmetic=count, actions=("box", "discrete"))


def _ablate(name: str, summary: str, **overrides: Any) -> None:
    base = METHODS["vem"]
    METHODS[name] = base._replace(
        summary=f"VEM, ablated: {summary}", ablates="vem", overrides=MappingProxyType(overrides)
    )


_add("vem", vem, vem.VEM, "Value-based Episodic Memory")
_add("bc", bc, bc.BC, "behavior cloning")
_add("awr", awr, awr.AWR, "advantage-weighted regression")
_add("bail", bail, bail.BAIL, "best-action imitation learning")
_add_both("bcq", bcq, discrete_bcq, bcq.BCQ, "batch-constrained Q-learning")
_add("bcq-em", bcq, bcq.BCQEM, "BCQ with VEM's episodic plan", bcq.make_episodic, actions=("box",))
_add_both("cql", cql, discrete_cql, cql.CQL, "conservative Q-learning")
_add("iql", iql, iql.IQL, "implicit Q-learning")
_add("td3bc", td3bc, td3bc.TD3BC, "TD3+BC", actions=("box",))
_ablate("vem-1step", "no memory, one-step targets", plan="one-step", num_plan_steps=None)
_ablate("vem-nstep", "10-step returns instead of the maximum", plan="n-step", num_plan_steps=10)
_ablate("vem-abs", "quantile loss", order="plan-then-expectile", value_loss="quantile")
_ablate("vem-operator", "τ acts before planning", order="expectile-then-plan", value_loss="squared")
_ablate("vem-crossed", "the authors' crossed selection", plan="crossed")
_ablate("vem-4critics", "two groups of two critics", num_critics=4)
_ablate(
    "vem-guided",
    "always a guided policy",
    policy="guided",
    schedule="value-then-policy",
    policy_draw="weights",
    weight="softmax",
)
_ablate("vem-regression", "always weighted regression", policy="regression")
_ablate("vem-joint", "values and policy together", schedule="joint", policy_draw="uniform")
