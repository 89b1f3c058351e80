"""The Request: all that decides the result of a run, made once and passed on whole.

    request = make_request("log.parquet", "iql", mapping="map.toml", expectile=0.9, seeds=3, steps=50_000)
    request = make_request(config="run.toml", steps=500)      # TOML, JSON or a run's config.json, with changes on top
    request = make_request(dataset, preset="paper")           # a Dataset or a DataFrame in hand

``make_request`` takes what is asked for in the words of flags and keywords, and checks it. ``request.load()`` is the
Dataset, read by ``request.rules``; ``request.for_task(task)`` has the settings that the preset gives to that task, and
``request.complete(dataset)`` those that follow from the data, too. ``request.trials`` are the policies that are
trained, ``to_json``/``from_json`` what config.json holds. ``dataclasses.replace`` makes others from it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import tomllib
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Self

from vem.algorithms.base import (
    METHODS,
    Configuration,
    build,
    convert,
    find_method,
    find_preset,
    import_installed_methods,
    import_methods,
    method_of,
    spec_of,
    sweepable,
    unknown_setting,
)
from vem.data.dataset import Dataset, check_hold_out, repeat_terminals
from vem.data.load import load
from vem.errors import RunError, SettingsError
from vem.storage import misfit, read_json
from vem.tasks import Task, task_of
from vem.training.machine import fits
from vem.training.records import DataFacts

LEAST_POOL_ROWS = 64
MOST_STEPS = 2**31 - 1
MOST_TRIALS = 10_000
"""Policies of one run at most; each has its own networks and its own file."""
DEFAULT_STEPS = 100_000
ROW_RULES = ("split", "time_limit", "teleports", "repeat_terminals")
"""The reading rules that decide which rows there are."""
RULES = (*ROW_RULES, "task", "environment", "discrete", "action_bounds", "mapping")
"""The reading rules of all sources; tables know the entries of a mapping, too."""


class Trial(NamedTuple):
    """One trained policy of a run: its seed and its values of the swept settings."""

    seed: int
    swept: dict[str, float]

    @property
    def name(self) -> str:
        """Unique in a run and fit for a file name, e.g. ``seed0`` or ``seed0-expectile0.3``."""
        return "-".join([f"seed{self.seed}", *(f"{k.replace('_', '-')}{v:g}" for k, v in self.swept.items())])


@dataclass(frozen=True)
class Request:
    """All that decides the result of a run; make one with ``make_request``."""

    data: str
    """What ``vem.load`` takes, or the name of a dataset made in Python."""
    algorithm: str = "vem"
    preset: str = "default"
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the method that were asked for; all of them once the data is known."""
    sweep: dict[str, list[float]] = field(default_factory=dict)
    """Settings that take several values; every combination is trained, for every seed."""
    seeds: tuple[int, ...] = (0,)
    steps: int = DEFAULT_STEPS
    """Of each trial; those that fit into ``minutes``, where they are given, once the run is made."""
    rules: dict[str, Any] = field(default_factory=dict)
    """How the data is read: those of the preset and those that were asked for."""
    data_dir: str | None = None
    pool_rows: int | None = None
    """Rows held at a time, the others on disk; None: all, once the run is made."""
    hold_out: float = 0.0
    """Share of the trajectories that training never sees (``vem.data.dataset``)."""
    minutes: float | None = None
    """Minutes of one core that training may take, all trials together; None: the steps were asked for."""
    evaluate_every: int | float | None = None
    """Steps between two evaluations on the way, or a share of all; None: no evaluation. It changes no result."""
    imports: tuple[str, ...] = ()
    """Files and modules that were named because they register methods; nothing imports them by itself."""
    ends: tuple[int, ...] = ()
    """Steps at which the run had ended, before it was gone on with."""
    restarts: tuple[int, ...] = ()
    """Those of the ends at which the schedules of learning rates began anew."""
    dataset: Dataset | None = field(default=None, repr=False, compare=False)
    """The data, where it was given and not named; no part of config.json."""

    @property
    def trials(self) -> list[Trial]:
        """One for each policy that the run trains."""
        combinations = [dict(zip(self.sweep, values, strict=True)) for values in product(*self.sweep.values())]
        return [Trial(seed, swept) for swept in combinations for seed in self.seeds]

    @property
    def stem(self) -> str:
        """The data's name in the name of a run directory."""
        return Path(self.data.removeprefix("minari:")).stem

    @property
    def configuration(self) -> Any:
        """The settings as the method's configuration object; SettingsError if the method is not known."""
        return build(find_method(self.algorithm).config, self.settings)

    @classmethod
    def read(cls, path: str | Path, **changes: Any) -> Request:
        """The request in a TOML or JSON file, or that of a run's config.json, with ``changes`` on top."""
        return make_request(config=path, **changes)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """The request that config.json holds, checked as a new one is; of a method that is not known, its form."""
        if not isinstance(stored, dict):
            raise SettingsError("it is no object")
        if unknown := stored.keys() - _FIELDS:
            raise SettingsError(f"a request has no field {min(unknown)!r}")
        lists = {name: tuple(stored[name]) for name in _LISTS if isinstance(stored.get(name), list)}
        request = cls(**{**stored, **lists})
        if (part := misfit(request, cls)) is not None:
            raise SettingsError(f"{part} is of another kind than it must be")
        import_installed_methods()
        return request.checked() if request.algorithm in METHODS else request.checked_without_method()

    def to_json(self) -> dict[str, Any]:
        """The request as config.json holds it."""
        stored = {name: getattr(self, name) for name in _FIELDS}
        return {name: list(value) if name in _LISTS else value for name, value in stored.items()}

    def checked(self) -> Self:
        """The same with numbers as numbers; SettingsError unless a run could be made of it."""
        cls = find_method(self.algorithm).config
        sweep = {name: _swept_values(cls, name, values) for name, values in self.sweep.items()}
        known = {**find_preset(self.algorithm, self.preset).settings, **self.settings}
        whole = build(cls, known)
        for name, values in sweep.items():
            for value in values:
                build(cls, {**known, name: value})
        checked = dataclasses.replace(
            self,
            settings={name: getattr(whole, name) for name in self.settings},
            sweep=sweep,
            seeds=check_seeds(self.seeds),
            steps=check_steps(self.steps),
            pool_rows=check_pool_rows(self.pool_rows),
            hold_out=check_hold_out(self.hold_out),
            minutes=check_minutes(self.minutes),
            evaluate_every=check_period(self.evaluate_every),
        )
        checked._check_trials()
        return checked

    def checked_without_method(self) -> Self:
        """The same; SettingsError unless a run could be made of it with some method."""
        for name, values in self.sweep.items():
            numbers = [value for value in values if isinstance(value, float | int) and math.isfinite(value)]
            if not re.fullmatch("[a-z][a-z0-9_]*", name) or not values or len(numbers) < len(values):
                raise SettingsError(f"the sweep of {name[:40]!r} is {str(values)[:40]}; give different numbers")
        check_seeds(self.seeds)
        check_steps(self.steps)
        check_hold_out(self.hold_out)
        self._check_trials()
        return self

    def _check_trials(self) -> None:
        ends = (*self.ends, self.steps)
        if any(earlier >= later for earlier, later in zip((0, *ends[:-1]), ends, strict=True)):
            raise SettingsError(f"the run ends after {list(ends)} steps; each end must be later than the one before")
        count = len(self.seeds) * math.prod(map(len, self.sweep.values()))
        if count > MOST_TRIALS:
            raise SettingsError(
                f"seeds and swept settings make {count:,} policies; train at most {MOST_TRIALS:,} in one run"
            )
        if len({trial.name for trial in self.trials}) < count:
            raise SettingsError("two swept values are the same in their first six digits; give values farther apart")

    def load(self, source: str | Path | None = None, data_dir: str | Path | None = None) -> Dataset:
        """The data, or that at another place, read by the rules of this request."""
        rules = dict(self.rules)
        repeat = rules.pop("repeat_terminals", False)
        if self.dataset is not None and source is None:
            return repeated(self.dataset, repeat)
        return repeated(load(source or self.data, data_dir=data_dir or self.data_dir, **rules), repeat)

    def for_task(self, task: Task | None) -> Self:
        """The same with every setting that does not follow from the data, for presets that differ by task."""
        settings = {**find_preset(self.algorithm, self.preset, task).settings, **self.settings}
        return dataclasses.replace(
            self, settings=dataclasses.asdict(build(find_method(self.algorithm).config, settings))
        )

    def complete(self, dataset: Dataset) -> tuple[Self, tuple[str, ...]]:
        """The same with all settings decided for the rows that training sees, and sentences that say why."""
        known = self.for_task(task_of(dataset.info))
        settings, notes = known.configuration.complete(spec_of(dataset))
        return dataclasses.replace(known, settings=dataclasses.asdict(settings)), notes

    def before(self, end: int) -> Self:
        """The request as it was when the run ended after ``end`` steps."""
        earlier = [tuple(each for each in ends if each < end) for ends in (self.ends, self.restarts)]
        return dataclasses.replace(self, steps=end, ends=earlier[0], restarts=earlier[1])

    def digest(self, facts: DataFacts) -> str:
        """SHA-256 of all that decides the result of a run: the settings, the rows, and what their actions mean.

        Where the data are does not count, so they may be moved.
        """
        others = ("data", "data_dir", "evaluate_every", "imports", "minutes")
        settings = {name: value for name, value in self.to_json().items() if name not in others}
        columns = [dataclasses.asdict(column) for column in facts.info.action_columns]
        bounds = [list(map(float, ends)) for ends in (facts.info.action_low, facts.info.action_high)]
        text = json.dumps([settings, facts.sha256, bounds, columns], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


_FIELDS = {entry.name for entry in dataclasses.fields(Request)} - {"dataset"}
_LISTS = ("seeds", "imports", "ends", "restarts")
_WORDS = ("seed", *sorted(_FIELDS - {"ends", "restarts"}))
"""What can be asked for beside settings and rules."""


# What is asked for, in the words of flags, of keywords or of a file.


def make_request(
    data: Any = None,
    algorithm: str | Configuration | None = None,
    *,
    config: str | Path | None = None,
    settings: dict[str, Any] | None = None,
    rules: dict[str, Any] | None = None,
    imports: Sequence[str] = (),
    **words: Any,
) -> Request:
    """The checked request of what is asked for; SettingsError says what is wrong, and what may have been meant.

    ``data`` is a path, a benchmark name, ``minari:ID``, a Dataset, or a frame with its ``mapping``. ``algorithm`` is a
    name or a configuration object. ``words`` are fields of the Request, ``seed`` (which seed or seeds; ``seeds`` is how
    many), settings of the method (a sweepable one may be a list) and reading rules; None means not asked for, except
    of a setting. ``config`` is a file that says the same, over which the others go.
    """
    import_methods(imports)
    asked = {"data": data, "algorithm": algorithm, "imports": tuple(imports), **words}
    asked = {name: value for name, value in asked.items() if name not in _WORDS or value is not None}
    stored = {} if config is None else read_words(config)
    if "minutes" in asked and "steps" in asked:
        raise SettingsError("--steps and --minutes are both given; steps follow from minutes: leave one out")
    for other in {"seed": ("seeds",), "seeds": ("seed",), "minutes": ("steps",), "steps": ("minutes",)}.items():
        if other[0] in asked:
            stored.pop(other[1][0], None)
    if isinstance(asked.get("algorithm", "vem"), Configuration):
        asked = _spelled_out(asked, settings)
    settings = {**stored.pop("settings", {}), **(settings or {}), **asked.pop("settings", {})}
    rules = {**stored.pop("rules", {}), **(rules or {})}
    words = {**stored, **asked}
    name = words.get("algorithm", "vem")
    if not isinstance(name, str):
        raise SettingsError(f"the algorithm is {name!r}; give a name ('vem') or an object (vem.VEM())")
    known = [entry.name for entry in dataclasses.fields(find_method(name).config)]
    for word in [word for word in words if word not in _WORDS]:
        value = words.pop(word)
        if word in known:
            settings[word] = value
        elif word in RULES or word in _table_entries():
            rules[word] = value
        else:
            raise SettingsError(unknown_setting(name, word, (*_WORDS, *RULES, *_table_entries())))
    return _with_data(words, settings, rules).checked()


def _spelled_out(asked: dict[str, Any], settings: dict[str, Any] | None) -> dict[str, Any]:
    """What is asked for with the name and the settings of a configuration object in its place."""
    chosen, cls = method_of(asked["algorithm"]), type(asked["algorithm"])
    names = [entry.name for entry in dataclasses.fields(cls)]
    doubled = [*(settings or {}), *(name for name in asked if name in names)]
    doubled += ["preset"] if asked.get("preset", "default") != "default" else []
    if doubled:
        raise SettingsError(
            f"{', '.join(doubled)} and a configuration object are given; put settings into the object, or name the "
            "algorithm"
        )
    return {**asked, "algorithm": chosen, "settings": dataclasses.asdict(asked["algorithm"])}


def _with_data(words: dict[str, Any], settings: dict[str, Any], rules: dict[str, Any]) -> Request:
    """The request of sorted words, with the rules of the preset and, of data in hand, those it was read by."""
    algorithm, preset = words.get("algorithm", "vem"), words.get("preset", "default")
    rules = {**find_preset(algorithm, preset).rules, **{name: rule for name, rule in rules.items() if rule is not None}}
    data = words.pop("data", None)
    if rules.get("mapping") is not None and not _is_frame(data):
        from vem.data.mapping import make_map

        # The content, not the file: a run can be resumed without it.
        roles = {name: rules.pop(name) for name in _table_entries() if name in rules}
        rules["mapping"] = make_map(rules["mapping"], **roles).to_json()
    if _is_frame(data):
        from vem.data.tables import from_table

        repeat = {"repeat_terminals": True} if rules.pop("repeat_terminals", False) else {}
        data = from_table(data, **rules)
        rules = {**{name: rules[name] for name in ROW_RULES if name in rules}, **repeat}
    dataset = None
    if isinstance(data, Dataset):
        dataset, info = data, data.info
        check_rules(dataset, rules)
        data = info.name if info.source == "arrays" else info.source
        rules = {**{name: info.rules[name] for name in RULES if name in info.rules}, **rules}
    if not isinstance(data, str | Path) or not str(data):
        raise SettingsError(
            f"the data is {data!r}; give a path, a benchmark's name, minari:ID, a Dataset or a DataFrame"
        )
    seeds, seed = words.pop("seeds", None), words.pop("seed", None)
    if seeds is not None and seed is not None:
        raise SettingsError("--seeds (how many) and --seed (which) are both given; leave one out")
    settings, sweep = _split_sweep(algorithm, settings, words.pop("sweep", {}))
    data_dir = words.pop("data_dir", None)
    return Request(
        str(data),
        settings=settings,
        sweep=sweep,
        rules=rules,
        seeds=chosen_seeds(1 if seeds is None else seeds) if seed is None else chosen_seeds(seed, "seed"),
        data_dir=None if data_dir is None else str(data_dir),
        dataset=dataset,
        **words,
    )


def _table_entries() -> tuple[str, ...]:
    """What may be said of a table's columns; its readers are imported only where somebody does."""
    from vem.data.tables import ENTRIES

    return ENTRIES


def _is_frame(data: Any) -> bool:
    return isinstance(data, dict) or hasattr(data, "__dataframe__") or hasattr(data, "__arrow_c_stream__")


def _split_sweep(
    algorithm: str, settings: dict[str, Any], sweep: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Settings with one value each, and those that were given several."""
    cls, settings, swept = find_method(algorithm).config, {**settings, **sweep}, {}
    for name in sweepable(cls):
        if isinstance(settings.get(name), list | tuple):
            values = _swept_values(cls, name, settings[name])
            settings[name] = values[0]
            if len(values) > 1:
                swept[name] = values
    return settings, swept


def read_words(path: str | Path) -> dict[str, Any]:
    """What a file asks for: TOML or JSON with the words of ``make_request``, or a run's config.json.

    What it names to be imported is left out: only who types the name imports a file.
    """
    place = Path(path)
    place = place / "config.json" if place.is_dir() else place
    try:
        if place.suffix == ".toml":
            content: dict[str, Any] = tomllib.loads(place.read_text(encoding="utf-8"))
        else:
            content = read_json(place, dict)
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"cannot read {place}: {getattr(error, 'strerror', None) or error}") from None
    except RunError as error:
        raise SettingsError(str(error)) from None
    if isinstance(content.get("config"), dict) and "version" in content:
        content = {**content["config"]}
        for name in ("ends", "restarts", "minutes"):  # its steps were found, or gone on to
            content.pop(name, None)
    content.pop("imports", None)
    content = {name: value for name, value in content.items() if value is not None}
    for name in ("settings", "rules", "sweep"):
        if not isinstance(content.get(name, {}), dict):
            raise SettingsError(f"{place}: {name} is {content[name]!r}; it must be a table")
    if "minutes" in content and "steps" in content:
        raise SettingsError(f"{place} gives steps and minutes; steps follow from minutes: leave one out")
    return content


def check_rules(dataset: Dataset, rules: dict[str, Any]) -> None:
    """SettingsError if a dataset in hand was read by other rules; only ``repeat_terminals`` can be applied later."""
    for name, value in rules.items():
        found = dataset.info.rules.get(name)
        if (name == "repeat_terminals" and value) or found == value:
            continue
        source = dataset.info.source
        call = "vem.from_arrays(…" if source == "arrays" else f"vem.load({source!r}"
        raise SettingsError(
            f"the dataset {dataset.info.name} was read with {name}={found!r}, and {name}={value!r} is asked for, by "
            f"the preset or as a rule; load it so, {call}, {name}={value!r}), or choose another preset"
        )


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


# The checks of single words.


def _swept_values(cls: type, name: str, values: Any) -> list[float]:
    """The values of a swept setting as numbers; SettingsError if it cannot be swept, or not over these."""
    if name not in sweepable(cls):
        raise SettingsError(f"{cls.__name__} cannot sweep {name!r}; it can sweep {', '.join(sweepable(cls))}")
    if not isinstance(values, list | tuple):
        raise SettingsError(f"the sweep of {name} is {values!r}; give a list of numbers")
    numbers = [convert(value, typing.get_type_hints(cls)[name], name) for value in values]
    if not numbers or len(set(numbers)) != len(numbers) or None in numbers:
        raise SettingsError(f"--{name.replace('_', '-')} lists {numbers}; give different numbers")
    return numbers


def chosen_seeds(seeds: Any, word: str = "seeds") -> tuple[int, ...]:
    """The seeds that ``seeds`` (how many, or a list of them) or ``seed`` (which one, or a list) means."""
    if word == "seed" and isinstance(seeds, int) and not isinstance(seeds, bool):
        seeds = (seeds,)
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= MOST_TRIALS:
            raise SettingsError(
                f"seeds is {seeds}; give how many, from 1 to {MOST_TRIALS:,}, or say which with --seed {max(seeds, 0)}"
            )
        return tuple(range(seeds))
    if isinstance(seeds, str | bytes | bool) or not isinstance(seeds, Sequence):
        kind = "how many as a whole number" if word == "seeds" else "a whole number"
        raise SettingsError(f"{word} is {seeds!r}; give {kind}, or a list of them")
    return check_seeds(tuple(seeds))


def check_seeds(seeds: tuple[int, ...]) -> tuple[int, ...]:
    """``seeds``, if those are different seeds."""
    if any(isinstance(seed, bool) or not isinstance(seed, int) for seed in seeds):
        raise SettingsError(f"seeds are {list(seeds[:8])}; give whole numbers")
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0 or max(seeds) >= 2**31:
        raise SettingsError(f"seeds are {list(seeds[:8])}; give at least one, all different, from 0 to 2³¹ − 1")
    return seeds


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
