"""The Config: all that decides the result of a run."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from vem.algorithms.base import build, convert, find_method, find_preset, sweepable
from vem.data.dataset import Dataset, check_hold_out, repeat_terminals
from vem.data.load import load
from vem.errors import DataError, RunError, SettingsError
from vem.storage import write_json
from vem.tasks import Task
from vem.training.machine import fits
from vem.training.records import DataFacts

LEAST_POOL_ROWS = 64
MOST_TRIALS = 10_000
"""Policies of one run at most; each has its own networks and its own file."""


class Trial(NamedTuple):
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
    """Of each trial; those that fit into ``minutes``, where they are given, once the run is made."""
    rules: dict[str, Any] = field(default_factory=dict)
    """How the data was read."""
    data_dir: str | None = None
    pool_rows: int | None = None
    """Rows held at a time, the others on disk; None: all, once the run is made."""
    hold_out: float = 0.0
    """Share of the trajectories that training never sees (``vem.data.dataset``)."""
    minutes: float | None = None
    """Minutes of one core that training may take, all trials together; None: the steps were asked for."""

    @property
    def trials(self) -> list[Trial]:
        """One for each policy that the run trains."""
        combinations = [dict(zip(self.sweep, values, strict=True)) for values in product(*self.sweep.values())]
        return [Trial(seed, swept) for swept in combinations for seed in self.seeds]


def build_settings(algorithm: str, values: dict[str, Any]) -> Any:
    """The settings object of a method with ``values``, each checked."""
    return build(find_method(algorithm).config, values)


def reading_rules(algorithm: str, preset: str, rules: dict[str, Any] | None = None) -> dict[str, Any]:
    """How a preset reads the data, with ``rules`` on top; known before the data is, whatever the task."""
    return {**find_preset(algorithm, preset).rules, **(rules or {})}


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

    ``minutes`` of one core, for all trials together, stand in place of ``steps``, which are then found when the run
    is made (``vem.training.budget``).
    ``task`` is the benchmark task of the loaded data, if any: presets have settings for its family.
    """
    method = find_method(algorithm)
    given = {**find_preset(algorithm, preset, task).settings, **(settings or {})}
    hints = typing.get_type_hints(method.config)
    sweep: dict[str, list[float]] = {}
    for name in sweepable(method.config):
        if isinstance(given.get(name), list | tuple):
            values = [convert(value, hints[name], name) for value in given[name]]
            if not values or len(set(values)) != len(values) or None in values:
                raise SettingsError(f"--{name.replace('_', '-')} lists {values}; give different numbers")
            if len(values) > 1:
                sweep[name] = values
            given[name] = values[0]
    for name, values in sweep.items():
        for value in values:
            build_settings(algorithm, {**given, name: value})
    config = Config(
        dataset=dataset,
        algorithm=algorithm,
        preset=preset,
        settings=dataclasses.asdict(build_settings(algorithm, given)),
        sweep=sweep,
        seeds=check_seeds(seeds),
        steps=check_steps(steps),
        rules=reading_rules(algorithm, preset, rules),
        data_dir=data_dir,
        pool_rows=check_pool_rows(pool_rows),
        hold_out=check_hold_out(hold_out),
        minutes=check_minutes(minutes),
    )
    if len(config.trials) > MOST_TRIALS:
        raise SettingsError(
            f"seeds and swept settings make {len(config.trials):,} policies; train at most {MOST_TRIALS:,} in one run"
        )
    return config


def check_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds that a number of seeds, or a list of them, means."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= MOST_TRIALS:
            raise SettingsError(f"seeds is {seeds}; give how many, from 1 to {MOST_TRIALS:,}, or a list of them")
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
    return steps


# config.json: everything a run depends on, in the layout of this version and of the one before.


CONFIG_VERSION = 2
OLD_NAMES = {
    "num_updates": "steps",
    "policy_rate_decay": "policy_lr_schedule",
    "value_rate": "value_lr",
    "policy_rate": "policy_lr",
    "policy_decay": "policy_weight_decay",
    "value_decay": "value_weight_decay",
    "decay": "td_lambda",
    "updates_per_refresh": "steps_per_refresh",
    "value_updates": "value_share",
    "envelope_updates": "envelope_share",
    "cloning_updates": "cloning_steps",
    "normalise_observations": "normalize_observations",
    "normalise_rewards": "normalize_rewards",
}
"""Names in a config.json of version 1 → names since version 2."""
OLD_WORDS = {"standardised": "standardized"}


def write_config(path: Path, config: Config, facts: DataFacts, packages: dict[str, str]) -> None:
    """Write the file."""
    stored = {
        "version": CONFIG_VERSION,
        "config": {**dataclasses.asdict(config), "seeds": list(config.seeds)},
        "data": facts.to_json(),
        "packages": packages,
    }
    write_json(path, stored)


def read_config(directory: Path) -> tuple[Config, DataFacts, dict[str, str]]:
    """The Config, the data and the packages of the run in ``directory``; RunError if it is no run."""
    path = directory / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        found = "has no config.json" if directory.is_dir() else "is a file" if directory.exists() else "does not exist"
        raise RunError(f"{directory} is not a run directory: it {found}; make one with vem train --out") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); start the run again in another directory") from None
    if not isinstance(stored, dict) or stored.get("version") not in (1, CONFIG_VERSION):
        raise RunError(f"{path} has no config of version {CONFIG_VERSION}; it was written by another vem")
    try:
        fields = stored["config"]
        if stored["version"] == 1:
            fields = _renamed(fields) | {"settings": _renamed(fields["settings"])}
        config = Config(**{**fields, "seeds": tuple(fields["seeds"])})
        settings = build_settings(config.algorithm, config.settings)
        facts = DataFacts.from_json(stored["data"])
    except (KeyError, TypeError, ValueError, AttributeError, DataError, SettingsError) as error:
        raise RunError(f"{path} does not describe a run ({error}); it was edited or written by another vem") from None
    packages = stored.get("packages")
    config = dataclasses.replace(config, settings=dataclasses.asdict(settings))
    return config, facts, packages if isinstance(packages, dict) else {}


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """Names and words of version 1 as they are called now."""
    return {
        OLD_NAMES.get(name, name): OLD_WORDS.get(value, value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


# The dataset that a run names, read by its rules.


def load_data(config: Config) -> Dataset:
    """The dataset of a config, read by its rules."""
    return read_data(config.dataset, config.rules, config.data_dir)


def read_data(source: str, rules: dict[str, Any], data_dir: str | None = None) -> Dataset:
    """The dataset of a source, read by a preset's rules or a run's."""
    rules = dict(rules)
    repeat = rules.pop("repeat_terminals", False)
    dataset = load(source, data_dir=data_dir, **rules)
    if repeat and dataset.shards is not None and not fits(dataset):
        raise SettingsError(
            f"{source} does not fit into the memory, which repeat_terminals (preset authors) needs; use another preset"
        )
    return repeat_terminals(dataset) if repeat else dataset
