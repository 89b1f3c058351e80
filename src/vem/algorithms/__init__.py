"""The methods, by name. Each is one file: a settings dataclass and ``make(settings, spec, num_steps)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from vem.algorithms import awr, bail, bc, bcq, cql, iql, td3bc, vem
from vem.algorithms.base import Algorithm, Spec
from vem.errors import SettingsError


class Method(NamedTuple):
    """A method before it is bound to settings and data."""

    settings: type
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
    "bc": Method(bc.BCSettings, bc.make, "behavior cloning"),
    "awr": Method(awr.AWRSettings, awr.make, "advantage-weighted regression"),
    "bail": Method(bail.BAILSettings, bail.make, "best-action imitation learning"),
    "bcq": Method(bcq.BCQSettings, bcq.make, "batch-constrained Q-learning"),
    "bcq-em": Method(bcq.BCQEMSettings, bcq.make_episodic, "BCQ with VEM's episodic plan"),
    "cql": Method(cql.CQLSettings, cql.make, "conservative Q-learning"),
    "iql": Method(iql.IQLSettings, iql.make, "implicit Q-learning"),
    "td3bc": Method(td3bc.TD3BCSettings, td3bc.make, "TD3+BC"),
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
