"""The methods, by name, and how one is added from outside."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from vem.algorithms.base import Algorithm, Spec
from vem.algorithms.config import Configuration, build
from vem.data.action_columns import ACTION_KINDS, action_kind
from vem.errors import SettingsError
from vem.policy import Actor, Value, register_kind


class Preset(NamedTuple):
    """Named settings of a method, and rules for reading the data."""

    settings: dict[str, Any]
    rules: dict[str, Any]
    """Reading rules of ``vem.data.load``, and ``repeat_terminals``."""
    source: str
    """Where the numbers come from."""
    families: Mapping[str, dict[str, Any]] = MappingProxyType({})
    """Settings that differ by task family, put on top of ``settings``."""


class Method(NamedTuple):
    """A method before it is bound to a configuration and data."""

    config: type[Any]
    """Its ``Configuration``."""
    make: Callable[[Any, Spec, int], Algorithm]
    """(configuration, sizes of the data, steps) → Algorithm."""
    summary: str
    presets: Mapping[str, Preset]
    arithmetic: Callable[[Any, Spec], dict[str, float]] | None = None
    """(configuration, sizes of the data) → stage → floating-point operations that one update needs."""
    ablates: str | None = None
    """The method this one is a variation of, whose presets it shares."""
    overrides: Mapping[str, Any] = MappingProxyType({})
    """What the variation changes: settings put on top of any preset."""
    actions: tuple[str, ...] = ("box",)
    """Kinds of actions that it can learn: of ``vem.data.action_columns.ACTION_KINDS``."""


METHODS: dict[str, Method] = {}
KIND_NAMES = {
    "box": "actions that are numbers",
    "discrete": "discrete actions",
    "several": "several discrete actions at once",
    "mixed": "actions with numbers and discrete columns",
}


def register(
    name: str,
    config: type[Configuration],
    make: Callable[[Any, Spec, int], Algorithm],
    summary: str,
    presets: Mapping[str, Preset] | None = None,
    actor: Actor | None = None,
    value: Value | None = None,
    arithmetic: Callable[[Any, Spec], dict[str, float]] | None = None,
    overwrite: bool = False,
    actions: Sequence[str] = ("box",),
) -> None:
    """Add a method: programs that import the module of this call can then train and compare it by ``name``.

    ``actor`` and ``value`` are needed only for a new kind of policy: how it acts and values states in NumPy
    (``vem.policy``). Its kind is ``name``, so ``make`` returns an Algorithm with ``policy_kind=name``. Without
    ``presets`` the method has one, ``default``: the configuration's own defaults. ``overwrite`` replaces a method of
    the same name, for example when a notebook cell runs again. ``actions`` are the kinds of actions that it can learn:
    ``box`` (numbers), ``discrete`` (one choice), ``several`` (choices), ``mixed`` (both); with ``spec.head`` as its
    distribution a method learns all of them.
    """
    if not re.fullmatch(r"[a-z0-9-]+", name):
        raise SettingsError(f"{name!r} cannot name a method; use small letters, digits and hyphens, as in my-method")
    if name in METHODS and not overwrite:
        raise SettingsError(f"there is a method {name!r} already; choose another name, or give overwrite=True")
    _check_config(name, config)
    if unknown := [kind for kind in actions if kind not in ACTION_KINDS]:
        raise SettingsError(f"method {name!r} has actions {unknown[0]!r}; choose from {', '.join(ACTION_KINDS)}")
    chosen = {"default": Preset({}, {}, "the configuration's own defaults"), **(presets or {})}
    for preset in chosen.values():
        for family in ({}, *preset.families.values()):
            build(config, preset.settings | family)
    if value is not None and actor is None:
        raise SettingsError(f"method {name!r} has a value function but no actor; give both, or neither")
    if actor is not None:
        register_kind(name, actor, value, overwrite)
    METHODS[name] = Method(config, make, summary, MappingProxyType(chosen), arithmetic, actions=tuple(actions))


def _check_config(name: str, config: Any) -> None:
    is_own = isinstance(config, type) and issubclass(config, Configuration) and "__dataclass_fields__" in vars(config)
    if not is_own:
        found = getattr(config, "__name__", repr(config))
        raise SettingsError(
            f"the configuration of method {name!r} is {found}; it must be a frozen dataclass derived from "
            "vem.algorithms.config.Configuration"
        )
    if plain := [field.name for field in dataclasses.fields(config) if "meaning" not in field.metadata]:
        raise SettingsError(f"{config.__name__}.{plain[0]} has no description; define it with setting(default, text)")
    for other, method in METHODS.items():
        if method.config is config and method.ablates is None and other != name:
            raise SettingsError(f"{config.__name__} is the configuration of method {other!r}; derive one of your own")


def find_method(name: str) -> Method:
    """The method of that name; SettingsError lists the known ones."""
    if name not in METHODS:
        raise SettingsError(f"there is no algorithm {name!r}; choose from {', '.join(METHODS)}")
    return METHODS[name]


def check_actions(name: str, spec: Spec) -> None:
    """SettingsError unless the method can learn actions of the data's kind; it names those that can."""
    kind = action_kind(spec.choices)
    if kind in find_method(name).actions:
        return
    able = [other for other, method in METHODS.items() if kind in method.actions and method.ablates is None]
    raise SettingsError(f"{name} cannot learn {KIND_NAMES[kind]}; these can: {', '.join(able)}")


def method_of(config: Configuration) -> str:
    """The name of the method that a configuration object is of; "vem" for all of VEM's ablations."""
    for name, method in METHODS.items():
        if method.ablates is None and type(config) is method.config:
            return name
    raise SettingsError(f"{type(config).__name__} is not the configuration of a known method; register it first")
