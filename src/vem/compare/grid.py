"""The cells of a comparison (datasets × methods) and of a sweep (datasets × combinations of settings)."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from vem.algorithms import find_method
from vem.algorithms.config import build, convert, type_hints
from vem.algorithms.presets import split_label
from vem.compare.cells import Cell
from vem.data import Dataset, sources
from vem.errors import SettingsError
from vem.runs.config import reading_rules
from vem.runs.reading import check_rules
from vem.tasks import find_task

DEFAULT_STEPS = 100_000
RULES = ("split", "time_limit", "teleports", "task", "discrete", "action_bounds", "mapping", "repeat_terminals")
"""The reading rules by which a dataset in hand is read again from its file."""
MOST_CELLS = 10_000
LONGEST_LABEL = 200
"""Letters of a label, which is a directory's name."""


class Choice(NamedTuple):
    """A method and its settings: what a cell does with its dataset."""

    label: str
    algorithm: str
    preset: str
    settings: dict[str, Any]
    steps: int
    swept: dict[str, Any]
    minutes: float | None = None
    """In place of steps: minutes of one core for all seeds together."""


def make_cells(
    datasets: Sequence[str | Dataset],
    algorithms: Sequence[str],
    out: str | Path,
    *,
    seeds: int | Sequence[int] = 3,
    steps: int | Mapping[str, int] | None = None,
    minutes: float | None = None,
    preset: str = "default",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    rules: Mapping[str, Any] | None = None,
    data_dir: str | None = None,
    hold_out: float = 0.0,
) -> list[Cell]:
    """The cells of a comparison, checked, dataset by dataset; nothing is read or written.

    ``steps`` is given for all methods or by name, or else ``minutes`` of one core; ``settings`` are given by name. A
    method may be named with its preset, as in ``vem-paper``; of the others, those that lack ``preset`` take their
    default. ``rules`` say how named datasets are read; those in hand must have been loaded by the presets' rules.
    """
    _check_unique(algorithms, "algorithm")
    if steps is not None and minutes is not None:
        raise SettingsError("--steps and --minutes are both given; steps follow from minutes: leave one out")
    named = {label: split_label(label) for label in algorithms}
    if preset != "default" and not any(preset in find_method(name).presets for name, _ in named.values()):
        raise SettingsError(f"none of {', '.join(algorithms)} has a preset {preset!r}")
    steps = DEFAULT_STEPS if steps is None else steps
    for label in (*(settings or {}), *([] if isinstance(steps, int) else steps)):
        split_label(label)  # a misspelled name would set nothing
    choices = [
        Choice(
            label,
            name,
            own or _preset_of(name, preset),
            dict((settings or {}).get(label, {})),
            steps if isinstance(steps, int) else steps.get(label, DEFAULT_STEPS),
            {},
            minutes,
        )
        for label, (name, own) in named.items()
    ]
    return _lay_out(datasets, choices, out, seeds, rules, data_dir, hold_out)


def make_sweep_cells(
    datasets: Sequence[str | Dataset],
    algorithm: str,
    values: Mapping[str, Sequence[Any]],
    out: str | Path,
    *,
    seeds: int | Sequence[int] = 3,
    steps: int = DEFAULT_STEPS,
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
    data_dir: str | None = None,
    hold_out: float = 0.0,
) -> list[Cell]:
    """The cells of a sweep, checked: one for each dataset and each combination of ``values``, by setting.

    ``settings`` are the same in all of them.
    """
    swept = {name: _distinct(algorithm, name, several) for name, several in values.items()}
    if not any(len(several) > 1 for several in swept.values()):
        raise SettingsError("nothing is swept; give at least one setting several values, such as --discount 0.99,0.997")
    both = [name for name in swept if name in (settings or {})]
    if both:
        raise SettingsError(f"--{both[0].replace('_', '-')} is given both as a setting and as values to sweep")
    choices = []
    for combination in product(*swept.values()):
        chosen = dict(zip(swept, combination, strict=True))
        label = ",".join(f"{name.replace('_', '-')}={label_text(value)}" for name, value in chosen.items())
        if len(label) > LONGEST_LABEL:
            raise SettingsError(f"{label[:60]}… is too long for a directory's name; sweep fewer settings at once")
        choices.append(Choice(label, algorithm, preset, {**(settings or {}), **chosen}, steps, chosen))
    if len(choices) * len(datasets) > MOST_CELLS:
        raise SettingsError(f"the sweep has {len(choices) * len(datasets):,} cells; run at most {MOST_CELLS:,} at once")
    return _lay_out(datasets, choices, out, seeds, rules, data_dir, hold_out)


def split_values(algorithm: str, name: str, text: str) -> list[str]:
    """The values in the text of a flag: between commas, or between slashes if the setting is a list itself."""
    return text.split("/" if _is_list(algorithm, name) else ",")


def label_text(value: Any) -> str:
    """A value as a directory's name has it, e.g. ``0.3``, ``256x256`` or ``none``."""
    if isinstance(value, tuple | list):
        return "x".join(map(label_text, value))
    text = f"{value:.10g}" if isinstance(value, float) else str(value).lower()
    return "".join(letter if letter.isalnum() or letter in "-.+" else "-" for letter in text)


def _lay_out(
    datasets: Sequence[str | Dataset],
    choices: Sequence[Choice],
    out: str | Path,
    seeds: int | Sequence[int],
    rules: Mapping[str, Any] | None,
    data_dir: str | None,
    hold_out: float,
) -> list[Cell]:
    """A cell for every dataset and choice, in the directory ``out/DATASET/LABEL``."""
    names = [dataset_name(dataset) for dataset in datasets]
    _check_unique([d if isinstance(d, str) else name for d, name in zip(datasets, names, strict=True)], "dataset")
    _check_unique(names, "dataset directory")
    cells = []
    for dataset, name in zip(datasets, names, strict=True):
        for choice in choices:
            own = dict(rules or {})
            if not isinstance(dataset, str):
                own = reading_rules(choice.algorithm, choice.preset)
                check_rules(dataset, own)
                own = {**_rules(dataset), **own}
            request = {
                "dataset": dataset if isinstance(dataset, str) else _source(dataset),
                "algorithm": choice.algorithm,
                "preset": choice.preset,
                "settings": choice.settings,
                "seeds": seeds if isinstance(seeds, int) else list(seeds),
                "steps": choice.steps,
                "rules": own,
                "data_dir": data_dir,
                "hold_out": hold_out,
                "minutes": choice.minutes,
            }
            data = None if isinstance(dataset, str) else dataset
            directory = Path(out) / name / choice.label
            cells.append(Cell(name, choice.label, choice.algorithm, directory, request, choice.swept, data))
            cells[-1].config(find_task(name))  # settings that cannot be are found before any work
    return cells


def _distinct(algorithm: str, name: str, values: Sequence[Any]) -> list[Any]:
    """The values of a setting, converted to its type and different from each other."""
    config = find_method(algorithm).config
    hint = type_hints(config).get(name)
    if hint is None:
        build(config, {name: None})  # says which settings there are
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise SettingsError(f"--{name.replace('_', '-')} is {values!r}; give a list of values to sweep")
    converted = [convert(value, hint, name) for value in values]
    if not converted or len({label_text(value) for value in converted}) != len(converted):
        raise SettingsError(f"--{name.replace('_', '-')} lists {converted}; give different values")
    return converted


def _is_list(algorithm: str, name: str) -> bool:
    return typing.get_origin(type_hints(find_method(algorithm).config)[name]) is tuple


def dataset_name(dataset: str | Dataset) -> str:
    """The name of a dataset's directory: a file's stem, or a name with its slashes replaced."""
    text = dataset if isinstance(dataset, str) else dataset.info.name
    if text.startswith("minari:"):
        return text.removeprefix("minari:").replace("/", "-")
    path = Path(text)
    return path.stem if path.suffix.lower() in sources.READERS else path.name


def _preset_of(algorithm: str, preset: str) -> str:
    return preset if preset in find_method(algorithm).presets else "default"


def _source(dataset: Dataset) -> str:
    return dataset.info.name if dataset.info.source == "arrays" else dataset.info.source


def _rules(dataset: Dataset) -> dict[str, Any]:
    return {name: dataset.info.rules[name] for name in RULES if name in dataset.info.rules}


def _check_unique(names: Sequence[str], what: str) -> None:
    if not names or "" in names:
        raise SettingsError(f"give at least one {what}, by name")
    repeated = {name for name in names if list(names).count(name) > 1}
    if repeated:
        raise SettingsError(f"the {what} {', '.join(sorted(repeated))} is given twice; each makes one cell")
