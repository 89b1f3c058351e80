"""What a method is: a NamedTuple of pure functions over arrays, run by ``vem.training.loop``."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, TypeVar

import jax

from vem.data.actions import ACTION_KINDS, action_kind, choices_of
from vem.data.dataset import Dataset, typical_steps, unrewarded_share
from vem.errors import SettingsError
from vem.networks import Head, make_head
from vem.policy.kinds import Actor, Value, register_kind
from vem.tasks import Task

State = Any
"""A pytree of arrays: parameters, targets, optimizer states, and the swept settings under ``swept``."""
Memory = Any
"""A pytree of arrays computed from the state and all rows: what a refresh writes and the steps read."""
Metrics = dict[str, jax.Array]


class Rows(NamedTuple):
    """A Dataset on the device, in the units that networks see."""

    observations: jax.Array
    """As recorded; ``observe`` normalizes them."""
    actions: jax.Array
    """Numbers mapped so that the bounds are ±1; codes of choices as they are."""
    rewards: jax.Array
    continues: jax.Array
    """1, or 0 where the step ended the MDP."""
    valid: jax.Array
    drawable: jax.Array
    """Indices of the rows that training draws."""
    observation_mean: jax.Array
    observation_deviation: jax.Array
    value_unit: jax.Array
    """The reward's unit was divided by this; values times it are in the recorded unit."""

    def observe(self, observations: jax.Array) -> jax.Array:
        """Observations as the networks see them."""
        return (observations - self.observation_mean) / self.observation_deviation


class Batch(NamedTuple):
    """Drawn transitions."""

    rows: jax.Array
    observations: jax.Array
    actions: jax.Array
    rewards: jax.Array
    continues: jax.Array
    next_observations: jax.Array


class Spec(NamedTuple):
    """The static facts of the data that decide shapes."""

    observation_size: int
    action_size: int
    num_rows: int
    typical_steps: int = 1
    """Steps of the episode that the median transition is in."""
    unrewarded: float = 0.0
    """Share of the steps after which their own trajectory earns nothing more than its smallest reward."""
    choices: tuple[int, ...] = ()
    """Number of choices of each action column, 0 for numbers; empty: numbers only."""
    num_transitions: int = 0
    """Steps that can be learned from; 0: as many as rows. Unlike ``num_rows`` of all data, where rows take turns."""

    @property
    def head(self) -> Head:
        """What a policy network's outputs say about such actions."""
        return make_head(self.action_size, self.choices)


def draw_uniformly(memory: Memory, rows: Rows, count: int, key: jax.Array) -> jax.Array:
    """Indices of rows with an action, all equally likely, with replacement."""
    return rows.drawable[jax.random.randint(key, (count,), 0, rows.drawable.size)]


class Stage(NamedTuple):
    """A phase of training: refreshes of the memory and, between them, steps of the state."""

    name: str
    num_steps: int
    steps_per_refresh: int | None
    """None: one refresh, at the start of the stage."""
    batch_size: int
    empty: Callable[[], Memory]
    """A memory of the right shapes, before the first refresh."""
    refresh: Callable[[State, Memory, Rows, jax.Array, jax.Array], tuple[State, Memory]]
    """(state, memory, rows, number of refreshes so far in this stage, key) → (state, memory)."""
    update: Callable[[State, Memory, Batch, jax.Array], tuple[State, Metrics]]
    draw: Callable[[Memory, Rows, int, jax.Array], jax.Array] = draw_uniformly
    """(memory, rows, batch size, key) → indices of the rows of an update."""
    successor: Callable[[Memory, jax.Array, jax.Array], jax.Array] | None = None
    """(memory, drawn rows, key) → the rows whose observations are ``next_observations``; None: the rows after."""
    trains_policy: bool = True
    """False where the policy stays as it is, so that evaluating it on the way would show nothing."""
    fresh_rows: int | None = None
    """Rows, in whole slices, that each refresh after the first values anew, in turn; None: it computes all anew."""
    weights: Callable[[Memory, Rows], jax.Array] | None = None
    """(memory, rows) → the weight of each drawable row for the policy; None: this stage weighs none by its memory."""
    only_first: bool = False
    """Left out when a run goes on: the stage is a start from which the others train."""


class Algorithm(NamedTuple):
    """A method bound to its settings and to the sizes of the data."""

    name: str
    init: Callable[[jax.Array, dict[str, jax.Array]], State]
    """(key, swept settings) → state."""
    stages: tuple[Stage, ...]
    export: Callable[[State], dict[str, Any]]
    """state → the pytree that the policy file holds."""
    policy_kind: str
    """How ``vem.policy`` acts with it."""


def spec_of(dataset: Dataset) -> Spec:
    """The facts of a dataset that decide shapes and plans."""
    sizes = (dataset.observation_size, dataset.action_size, dataset.num_rows)
    choices, count = choices_of(dataset.info.action_columns), dataset.num_transitions
    if dataset.shards is not None:
        facts = dataset.shards.facts
        return Spec(*sizes, facts.typical_steps, facts.unrewarded, choices, count)
    return Spec(*sizes, typical_steps(dataset.episode_lengths), unrewarded_share(dataset), choices, count)


def no_memory() -> Memory:
    """The memory of methods that have none."""
    return ()


def no_refresh(state: State, memory: Memory, rows: Rows, index: jax.Array, key: jax.Array) -> tuple[State, Memory]:
    """The refresh of methods that have no memory."""
    return state, memory


# ---- Typed configurations: what each setting means, which values it takes, and how text becomes one ----


LIMITS: dict[str, tuple[str, Any]] = {
    "level": ("between 0 and 1, both excluded", lambda x: 0 < x < 1),
    "share": ("between 0 and 1", lambda x: 0 <= x <= 1),
    "positive share": ("above 0, at most 1", lambda x: 0 < x <= 1),
    "discount": ("at least 0 and below 1", lambda x: 0 <= x < 1),
    "positive": ("above 0", lambda x: x > 0),
    "not negative": ("0 or more", lambda x: x >= 0),
    "quantile": ("at least 0 and below ½", lambda x: 0 <= x < 0.5),
    "any": ("a finite number", lambda x: True),
}
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def setting(default: Any, meaning: str, limit: str = "any", sweep: bool = False) -> Any:
    """A dataclass field with its meaning, its limits (a key of LIMITS), and whether lists of values can be swept."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "limit": limit, "sweep": sweep})


def sweepable(cls: type) -> tuple[str, ...]:
    """Names of the settings that may take several values in one program."""
    return tuple(f.name for f in dataclasses.fields(cls) if f.metadata.get("sweep"))


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Base of a method's configuration: a frozen dataclass of ``setting`` fields, checked when it is made.

    Values are converted to the fields' types, so "0.7" and 0.7 make the same configuration. SettingsError says which
    setting is wrong and what it must be.
    """

    def __post_init__(self) -> None:
        hints = type_hints(type(self))
        for field in dataclasses.fields(self):
            value = convert(getattr(self, field.name), hints[field.name], field.name)
            object.__setattr__(self, field.name, value)
            expected, holds = LIMITS[field.metadata.get("limit", "any")]
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, float | int) and not (math.isfinite(part) and holds(part)):
                    raise SettingsError(f"{_flag(field.name)} is {part}; it must be {expected}")
        self.check()

    def check(self) -> None:
        """Raise SettingsError for combinations of settings that mean nothing; a method with such overrides this."""

    def complete(self, spec: Spec) -> tuple[Self, tuple[str, ...]]:
        """The configuration with all that follows from the data decided, and sentences that say why."""
        return self, ()


C = TypeVar("C", bound=Configuration)


@functools.cache
def type_hints(cls: type) -> dict[str, Any]:
    """The type of each setting."""
    return typing.get_type_hints(cls)


def build(cls: type[C], values: Mapping[str, Any]) -> C:
    """The configuration with ``values`` in place of its defaults; an unknown name gets the nearest known ones."""
    known = [f.name for f in dataclasses.fields(cls)]
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
            raise SettingsError(f"{cls.__name__} has no setting {name!r}; {hint}")
    return cls(**values)


def convert(value: Any, hint: Any, name: str) -> Any:
    """``value``, from Python, JSON or the command line, as the type of the setting."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return convert(value, next(a for a in arguments if a is not type(None)), name)
    if origin is Literal:
        for choice in arguments:
            if value == choice or (isinstance(value, str) and value == str(choice)):
                return choice
        raise SettingsError(f"{_flag(name)} is {value!r}; choose from {', '.join(map(str, arguments))}")
    if origin is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise SettingsError(f"{_flag(name)} is {value!r}; it must be a list of numbers, such as 256,256")
        return tuple(convert(part, arguments[0], name) for part in parts)
    if hint is bool:
        text = str(value).lower()
        if text not in YES + NO:
            raise SettingsError(f"{_flag(name)} is {value!r}; write yes or no")
        return text in YES
    try:
        if isinstance(value, bool):
            raise TypeError
        number = float(value)
        if hint is int and number != int(number):
            raise ValueError
        return hint(number)
    except (TypeError, ValueError, OverflowError):
        kind = "a whole number" if hint is int else "a number"
        raise SettingsError(f"{_flag(name)} is {value!r}; it must be {kind}") from None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


# ---- The methods, by name, and how one is added from outside ----


class Preset(NamedTuple):
    """Named settings of a method, and rules for reading the data."""

    settings: dict[str, Any]
    rules: dict[str, Any]
    """Reading rules of ``vem.data.load``, and ``repeat_terminals``."""
    source: str
    """Where the numbers come from."""
    families: Mapping[str, dict[str, Any]] = MappingProxyType({})
    """Settings that differ by task family, put on top of ``settings``."""
    by_task: Callable[[Task], dict[str, Any]] | None = None
    """The settings of one task, put on top of those of its family."""
    steps: int | None = None
    """Steps in all that the official program takes by default; None: not known."""


class Method(NamedTuple):
    """A method before it is bound to a configuration and data."""

    config: type[Any]
    """Its ``Configuration``."""
    make: Callable[[Any, Spec, int], Algorithm]
    """(configuration, sizes of the data, steps) → Algorithm."""
    summary: str
    presets: Mapping[str, Preset]
    actions: tuple[str, ...] = ("box",)
    """Kinds of actions that it can learn: of ``vem.data.actions.ACTION_KINDS``."""
    ablates: str | None = None
    """The method this one is a variation of, whose presets it shares."""
    overrides: Mapping[str, Any] = MappingProxyType({})
    """What the variation changes: settings put on top of any preset."""


METHODS: dict[str, Method] = {}
"""Filled by ``vem.algorithms`` and by ``register``."""
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
    overwrite: bool = False,
    actions: Sequence[str] = ("box",),
) -> None:
    """Add a method, which is then known by ``name`` wherever the module of this call is imported.

    On the command line ``--import FILE_OR_MODULE`` does so; an installed package names the module, or a function that
    makes this call, as an entry point in the group ``vem.methods``.

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
    METHODS[name] = Method(config, make, summary, MappingProxyType(chosen), tuple(actions))


def _check_config(name: str, config: Any) -> None:
    is_own = isinstance(config, type) and issubclass(config, Configuration) and "__dataclass_fields__" in vars(config)
    if not is_own:
        found = getattr(config, "__name__", repr(config))
        raise SettingsError(
            f"the configuration of method {name!r} is {found}; it must be a frozen dataclass derived from "
            "vem.algorithms.base.Configuration"
        )
    if plain := [field.name for field in dataclasses.fields(config) if "meaning" not in field.metadata]:
        raise SettingsError(f"{config.__name__}.{plain[0]} has no description; define it with setting(default, text)")
    for other, method in METHODS.items():
        if method.config is config and method.ablates is None and other != name:
            raise SettingsError(f"{config.__name__} is the configuration of method {other!r}; derive one of your own")


def find_method(name: str) -> Method:
    """The method of that name; SettingsError lists the known ones."""
    if name not in METHODS:
        import_installed_methods()
    if name not in METHODS:
        close = [other for other in METHODS if other == str(name).lower()]
        close = close or difflib.get_close_matches(str(name), METHODS, n=3)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise SettingsError(
            f"there is no algorithm {name!r}; {hint}choose from {', '.join(METHODS)}, or name the file or module that "
            "registers it: --import NAME (imports=)"
        )
    return METHODS[name]


@functools.cache
def import_installed_methods() -> None:
    """Register the methods of installed packages: those with an entry point in the group ``vem.methods``."""
    for entry in importlib.metadata.entry_points(group="vem.methods"):
        try:
            found = entry.load()
            if callable(found):
                found()
        except Exception as error:
            raise SettingsError(
                f"the installed methods {entry.name} ({entry.value}) cannot be used: {error}"
            ) from error


def import_methods(names: Sequence[str]) -> None:
    """Import the files and modules of these names, which register methods; those that were imported before stay."""
    for name in [names] if isinstance(names, str) else names:
        path = Path(name)
        try:
            if path.suffix != ".py":
                importlib.import_module(name)
                continue
            place = path.expanduser().resolve()
            module_name = f"vem_import_{hashlib.sha256(str(place).encode()).hexdigest()[:12]}"
            if module_name in sys.modules:
                continue
            spec = importlib.util.spec_from_file_location(module_name, place)
            assert spec is not None, "a name that ends in .py has a loader"
            assert spec.loader is not None, "a name that ends in .py has a loader"
            sys.modules[module_name] = module = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[module_name]
                raise
        except Exception as error:  # whatever the user's program does
            raise SettingsError(f"--import {name}: it cannot be imported ({type(error).__name__}: {error})") from error


def unknown_setting(algorithm: str, name: str, others: Sequence[str] = ()) -> str:
    """What to say of a setting that a method does not have; ``others`` are words that may have been meant as well."""
    config = find_method(algorithm).config
    known = [field.name for field in dataclasses.fields(config)]
    owners = [
        other
        for other, method in METHODS.items()
        if method.ablates is None and name in [field.name for field in dataclasses.fields(method.config)]
    ]
    if owners and algorithm not in owners:
        return f"{config.__name__} has no setting {name!r}, which is one of {', '.join(owners)}; leave it out"
    close = difflib.get_close_matches(name, [*known, *others], n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
    return f"{config.__name__} has no setting {name!r}; {hint}"


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


# ---- Presets: named settings of a method, by task ----


def split_label(label: str) -> tuple[str, str | None]:
    """The method that a cell's label names, and the preset that it names too: ``vem-paper`` is VEM's preset paper.

    SettingsError lists the methods if it is neither a method nor a method and one of its presets.
    """
    if label not in METHODS:
        for name, method in METHODS.items():
            if label.startswith(f"{name}-") and label.removeprefix(f"{name}-") in method.presets:
                return name, label.removeprefix(f"{name}-")
    find_method(label)
    return label, None


def official_steps(label: str) -> int:
    """Steps that the official program of a method takes; SettingsError where none is known."""
    algorithm, preset = split_label(label)
    method = find_method(algorithm)
    steps = method.presets[preset or "default"].steps
    if steps is None or method.ablates is not None:
        raise SettingsError(f"no official number of steps is known of {label}; give --steps or --minutes instead")
    return steps


def find_preset(algorithm: str, name: str, task: Task | None = None) -> Preset:
    """The preset of a method with the settings of the task's family and of the task itself.

    An ablation has the presets of the method it ablates, with its own changes on top.
    """
    method = find_method(algorithm)
    if name not in method.presets:
        raise SettingsError(f"{algorithm} has no preset {name!r}; choose from {', '.join(method.presets)}")
    preset = method.presets[name]
    settings = preset.settings | ({} if task is None else preset.families.get(task.family, {}))
    if task is not None and preset.by_task is not None:
        settings |= preset.by_task(task)
    return preset._replace(settings={**settings, **method.overrides})
