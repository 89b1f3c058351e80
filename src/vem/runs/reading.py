"""The dataset that a run names, read by its rules."""

from __future__ import annotations

from typing import Any

from vem.data import Dataset, load
from vem.data.transforms import repeat_terminals
from vem.errors import SettingsError
from vem.runs.capacity import fits
from vem.runs.config import Config


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
