"""The methods, by name. Each is one file: a configuration and ``make(config, spec, num_steps)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from vem.algorithms import awr, bail, bc, bcq, cql, iql, td3bc, vem
from vem.algorithms.base import Algorithm, Spec
from vem.algorithms.config import Configuration
from vem.errors import SettingsError


class Method(NamedTuple):
    """A method before it is bound to settings and data."""

    config: type[Any]
    make: Callable[[Any, Spec, int], Algorithm]
    summary: str
    ablates: str | None = None
    """The method this one is a variation of, whose presets it shares."""
    overrides: Mapping[str, Any] = MappingProxyType({})
    """What the variation changes: settings put on top of any preset."""


def _ablation(summary: str, **overrides: Any) -> Method:
    return Method(vem.VEM, vem.make, f"VEM, ablated: {summary}", "vem", MappingProxyType(overrides))


METHODS: dict[str, Method] = {
    "vem": Method(vem.VEM, vem.make, "Value-based Episodic Memory"),
    "bc": Method(bc.BC, bc.make, "behavior cloning"),
    "awr": Method(awr.AWR, awr.make, "advantage-weighted regression"),
    "bail": Method(bail.BAIL, bail.make, "best-action imitation learning"),
    "bcq": Method(bcq.BCQ, bcq.make, "batch-constrained Q-learning"),
    "bcq-em": Method(bcq.BCQEM, bcq.make_episodic, "BCQ with VEM's episodic plan"),
    "cql": Method(cql.CQL, cql.make, "conservative Q-learning"),
    "iql": Method(iql.IQL, iql.make, "implicit Q-learning"),
    "td3bc": Method(td3bc.TD3BC, td3bc.make, "TD3+BC"),
    "vem-1step": _ablation("no memory, one-step targets", plan="one-step", num_plan_steps=None),
    "vem-nstep": _ablation("10-step returns instead of the maximum", plan="n-step", num_plan_steps=10),
    "vem-abs": _ablation("quantile loss", order="plan-then-expectile", value_loss="quantile"),
    "vem-operator": _ablation("τ acts before planning", order="expectile-then-plan", value_loss="squared"),
    "vem-crossed": _ablation("the authors' crossed selection", plan="crossed"),
    "vem-4critics": _ablation("two groups of two critics", num_critics=4),
    "vem-joint": _ablation("values and policy together", schedule="joint", policy_draw="uniform"),
}


def find_method(name: str) -> Method:
    """The method of that name; SettingsError lists the known ones."""
    if name not in METHODS:
        raise SettingsError(f"there is no algorithm {name!r}; choose from {', '.join(METHODS)}")
    return METHODS[name]


def method_of(config: Configuration) -> str:
    """The name of the method that a configuration object is of; "vem" for all of VEM's ablations."""
    for name, method in METHODS.items():
        if method.ablates is None and type(config) is method.config:
            return name
    raise SettingsError(f"{type(config).__name__} is not the configuration of a known method; register it first")
