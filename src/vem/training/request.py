"""The Config: all that decides the result of a run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
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
from vem.storage import read_json, write_json
from vem.tasks import Task
from vem.training.machine import fits
from vem.training.records import DataFacts

LEAST_POOL_ROWS = 64
MOST_STEPS = 2**31 - 1
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
    if count > MOST_TRIALS:
        raise SettingsError(
            f"seeds and swept settings make {count:,} policies; train at most {MOST_TRIALS:,} in one run"
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
    if len({trial.name for trial in checked.trials}) < count:
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


class Stored(NamedTuple):
    """What config.json holds."""

    config: Config
    facts: DataFacts
    packages: dict[str, str]
    """Versions that the run was started with; empty where they are not recorded."""
    evaluate_every: float | None = None
    """Steps between two evaluations on the way, or a share of all; None: no evaluation. It changes no result."""


def write_config(path: Path, stored: Stored) -> None:
    """Write the file."""
    config, facts, packages, evaluate_every = stored
    content = {
        "version": CONFIG_VERSION,
        "config": {**dataclasses.asdict(config), "seeds": list(config.seeds)},
        "data": facts.to_json(),
        "packages": packages,
        "evaluate_every": evaluate_every,
    }
    write_json(path, content)


def read_config(directory: Path) -> Stored:
    """What the config.json in ``directory`` holds, checked as a new run is; RunError if it is no run."""
    path = directory / "config.json"
    if not os.path.lexists(path):
        found = "has no config.json" if directory.is_dir() else "is a file" if directory.exists() else "does not exist"
        raise RunError(f"{directory} is not a run directory: it {found}; make one with vem train --out")
    try:
        stored = read_json(path, dict)
    except RunError as error:
        raise RunError(f"{error}; start the run again in another directory") from None
    if stored.get("version") not in (1, CONFIG_VERSION):
        raise RunError(f"{path} has no config of version {CONFIG_VERSION}; it was written by another vem")
    try:
        fields = stored["config"]
        if stored["version"] == 1:
            fields = _renamed(fields) | {"settings": _renamed(fields["settings"])}
        if not isinstance(fields["seeds"], list):
            raise SettingsError(f"seeds is {fields['seeds']!r}")
        config = check_config(Config(**{**fields, "seeds": tuple(fields["seeds"])}))
        facts = DataFacts.from_json(stored["data"])
        evaluate_every = check_period(stored.get("evaluate_every"))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, DataError, SettingsError) as error:
        raise RunError(f"{path} does not describe a run ({error}); it was edited or written by another vem") from None
    packages = stored.get("packages")
    return Stored(config, facts, packages if isinstance(packages, dict) else {}, evaluate_every)


def request_hash(config: Config, facts: DataFacts) -> str:
    """SHA-256 of all that decides the result of a run: its settings, the rows, and what their actions mean.

    Where the data are does not count, so they may be moved.
    """
    places = ("dataset", "data_dir")
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in places}
    columns = [dataclasses.asdict(column) for column in facts.info.action_columns]
    bounds = [list(map(float, ends)) for ends in (facts.info.action_low, facts.info.action_high)]
    return hashlib.sha256(json.dumps([settings, facts.sha256, bounds, columns], sort_keys=True).encode()).hexdigest()


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
    return repeated(load(source, data_dir=data_dir, **rules), repeat)


def repeated(dataset: Dataset, repeat: bool = True) -> Dataset:
    """The dataset with its terminals repeated, if ``repeat`` asks for it and they are not yet."""
    if not repeat or dataset.info.rules.get("repeat_terminals"):
        return dataset
    if dataset.shards is not None and not fits(dataset):
        raise SettingsError(
            f"{dataset.info.source} does not fit into the memory, which repeat_terminals (preset authors) needs; "
            "use another preset"
        )
    return repeat_terminals(dataset)


def check_rules(dataset: Dataset, rules: dict[str, Any]) -> None:
    """SettingsError if a dataset in hand was read by other rules; only ``repeat_terminals`` can be applied later."""
    for name, value in rules.items():
        found = dataset.info.rules.get(name)
        if name != "repeat_terminals" and found != value:
            source = dataset.info.source
            call = "vem.from_arrays(…" if source == "arrays" else f"vem.load({source!r}"
            raise SettingsError(
                f"the dataset {dataset.info.name} was read with {name}={found!r}, and the preset reads data with "
                f"{name}={value!r}; load it so, {call}, {name}={value!r}), or choose another preset"
            )
