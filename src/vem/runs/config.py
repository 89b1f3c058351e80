"""The Config: all that decides the result of a run."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

from vem.algorithms import find_method, presets
from vem.algorithms.config import build, convert, sweepable
from vem.data.hold_out import check_hold_out
from vem.errors import SettingsError
from vem.tasks import Task

LEAST_POOL_ROWS = 64
MOST_STEPS = 2**31 - 1
MOST_MEMBERS = 10_000
"""Policies of one run at most; each has its own networks and its own file."""


class Member(NamedTuple):
    """One trained policy of a run: its seed and its values of the swept settings."""

    seed: int
    swept: dict[str, float]

    @property
    def name(self) -> str:
        """Unique in a run and fit for a file name, e.g. ``seed0`` or ``seed0-expectile0.3``."""
        return "-".join([f"seed{self.seed}", *(f"{k.replace('_', '-')}{v:g}" for k, v in self.swept.items())])


@dataclass(frozen=True)
class Config:
    """All that decides the result of a run."""

    dataset: str
    """What ``vem.load`` takes, or the name of a dataset made in Python."""
    algorithm: str = "vem"
    preset: str = "default"
    settings: dict[str, Any] = field(default_factory=dict)
    """Complete settings of the method."""
    sweep: dict[str, list[float]] = field(default_factory=dict)
    """Settings that take several values; every combination is trained, for every seed."""
    seeds: tuple[int, ...] = (0,)
    steps: int = 100_000
    """Of each member; those that fit into ``minutes``, where they are given, once the run is made."""
    rules: dict[str, Any] = field(default_factory=dict)
    """How the data was read."""
    data_dir: str | None = None
    pool_rows: int | None = None
    """Rows held at a time, the others on disk; None: all, once the run is made."""
    hold_out: float = 0.0
    """Share of the recordings that training never sees (``vem.data.hold_out``)."""
    minutes: float | None = None
    """Minutes of one core that training may take, all members together; None: the steps were asked for."""

    @property
    def members(self) -> list[Member]:
        """One for each policy that the run trains."""
        combinations = [dict(zip(self.sweep, values, strict=True)) for values in product(*self.sweep.values())]
        return [Member(seed, swept) for swept in combinations for seed in self.seeds]


def build_settings(algorithm: str, values: dict[str, Any]) -> Any:
    """The settings object of a method with ``values``, each checked."""
    return build(find_method(algorithm).config, values)


def reading_rules(algorithm: str, preset: str, rules: dict[str, Any] | None = None) -> dict[str, Any]:
    """How a preset reads the data, with ``rules`` on top; known before the data is, whatever the task."""
    return {**presets.find_preset(algorithm, preset).rules, **(rules or {})}


def make_config(
    dataset: str,
    algorithm: str = "vem",
    preset: str = "default",
    settings: dict[str, Any] | None = None,
    seeds: int | Sequence[int] = 1,
    steps: int = 100_000,
    rules: dict[str, Any] | None = None,
    data_dir: str | None = None,
    task: Task | None = None,
    pool_rows: int | None = None,
    hold_out: float = 0.0,
    minutes: float | None = None,
) -> Config:
    """A complete, checked Config; a sweepable setting may be given as a list of values.

    ``minutes`` of one core, for all members together, stand in place of ``steps``, which are then found when the run
    is made (``vem.runs.budget``).
    ``task`` is the benchmark task of the loaded data, if any: presets have settings for its family.
    """
    method = find_method(algorithm)
    given = {**presets.find_preset(algorithm, preset, task).settings, **(settings or {})}
    sweep: dict[str, list[float]] = {}
    for name in sweepable(method.config):
        if isinstance(given.get(name), list | tuple):
            values = _swept_values(method.config, name, given[name])
            if len(values) > 1:
                sweep[name] = values
            given[name] = values[0]
    return check_config(
        Config(
            dataset=dataset,
            algorithm=algorithm,
            preset=preset,
            settings=given,
            sweep=sweep,
            seeds=check_seeds(seeds),
            steps=steps,
            rules=reading_rules(algorithm, preset, rules),
            data_dir=data_dir,
            pool_rows=pool_rows,
            hold_out=hold_out,
            minutes=minutes,
        )
    )


def check_config(config: Config) -> Config:
    """The config with complete settings; SettingsError unless a run could be made of it, wherever it comes from."""
    kinds = {"dataset": str, "algorithm": str, "preset": str, "data_dir": str | None, "settings": dict, "sweep": dict}
    for name, kind in {**kinds, "rules": dict}.items():
        if not isinstance(value := getattr(config, name), kind):
            raise SettingsError(f"{name} is a {type(value).__name__}")
    cls = find_method(config.algorithm).config
    sweep = {name: _swept_values(cls, name, values) for name, values in config.sweep.items()}
    seeds = check_seeds(config.seeds)
    count = len(seeds) * math.prod(map(len, sweep.values()))
    if count > MOST_MEMBERS:
        raise SettingsError(
            f"seeds and swept settings make {count:,} policies; train at most {MOST_MEMBERS:,} in one run"
        )
    for name, values in sweep.items():
        for value in values:
            build_settings(config.algorithm, {**config.settings, name: value})
    checked = dataclasses.replace(
        config,
        settings=dataclasses.asdict(build_settings(config.algorithm, config.settings)),
        sweep=sweep,
        seeds=seeds,
        steps=check_steps(config.steps),
        pool_rows=check_pool_rows(config.pool_rows),
        hold_out=check_hold_out(config.hold_out),
        minutes=check_minutes(config.minutes),
    )
    if len({member.name for member in checked.members}) < count:
        raise SettingsError("two swept values are the same in their first six digits; give values farther apart")
    return checked


def _swept_values(cls: type, name: str, values: Any) -> list[float]:
    """The values of a swept setting as numbers; SettingsError if it cannot be swept, or not over these."""
    if name not in sweepable(cls):
        raise SettingsError(f"{cls.__name__} cannot sweep {name!r}; it can sweep {', '.join(sweepable(cls))}")
    if not isinstance(values, list | tuple):
        raise SettingsError(f"the sweep of {name} is {values!r}; give a list of numbers")
    found = [convert(value, typing.get_type_hints(cls)[name], name) for value in values]
    if not found or len(set(found)) != len(found) or None in found:
        raise SettingsError(f"--{name.replace('_', '-')} lists {found}; give different numbers")
    return found


def check_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds that a number of seeds, or a list of them, means."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= MOST_MEMBERS:
            raise SettingsError(f"seeds is {seeds}; give how many, from 1 to {MOST_MEMBERS:,}, or a list of them")
        return tuple(range(seeds))
    if isinstance(seeds, str | bytes | bool) or not isinstance(seeds, Sequence):
        raise SettingsError(f"seeds is {seeds!r}; give how many as a whole number, or a list of them")
    chosen = tuple(seeds)
    if any(isinstance(seed, bool) or not isinstance(seed, int) for seed in chosen):
        raise SettingsError(f"seeds are {list(chosen[:8])}; give whole numbers")
    if not chosen or len(set(chosen)) != len(chosen) or min(chosen) < 0 or max(chosen) >= 2**31:
        raise SettingsError(f"seeds are {list(chosen[:8])}; give at least one, all different, from 0 to 2³¹ − 1")
    return chosen


def check_pool_rows(pool_rows: int | None) -> int | None:
    """``pool_rows``, if it is a number of rows that a pool can have."""
    if pool_rows is None:
        return None
    if isinstance(pool_rows, bool) or not isinstance(pool_rows, int) or pool_rows < LEAST_POOL_ROWS:
        raise SettingsError(f"--pool-rows is {pool_rows!r}; give a whole number, {LEAST_POOL_ROWS} or more")
    return pool_rows


def check_minutes(minutes: float | None) -> float | None:
    """``minutes``, if that is a time."""
    if minutes is None:
        return None
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not (0 < minutes < float("inf")):
        raise SettingsError(f"--minutes is {minutes!r}; give a number above 0: the minutes of one core")
    return float(minutes)


def check_steps(steps: int) -> int:
    """``steps``, if it is a number of steps."""
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise SettingsError(f"steps is {steps!r}; give a whole number, 1 or more")
    if steps < 1:
        raise SettingsError(f"--steps is {steps}; it must be 1 or more")
    if steps > MOST_STEPS:
        raise SettingsError(f"--steps is {steps:,}; it must be {MOST_STEPS:,} or less")
    return steps


def check_period(every: float | None) -> float | None:
    """``every``, if it is a number of steps between two evaluations, a share of them, or None for no evaluation."""
    is_steps = isinstance(every, int) and not isinstance(every, bool) and every >= 1
    is_share = isinstance(every, float) and 0 < every < 1
    if every is not None and not is_steps and not is_share:
        raise SettingsError(
            f"--evaluate-every is {every!r}; give a whole number of steps, 1 or more, or a share of them such as 0.2"
        )
    return every
